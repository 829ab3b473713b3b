"""Numbers brought to a range that networks like, and back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from xskill.errors import DataError

LEAST = 0.01
"""A dimension that moves less than this share of what the median dimension moves is not stretched further."""


@dataclass(frozen=True)
class Range:
    """Middle and half-width of each dimension."""

    middle: tuple[float, ...]
    half: tuple[float, ...]

    def about(self) -> dict[str, list[float]]:
        """As JSON."""
        return {"middle": list(self.middle), "half": list(self.half)}


def range_of(values: npt.NDArray[np.floating]) -> Range:
    """The range of values (N, D). Raises `DataError` for NaN.

    A dimension that hardly moves, a finger that stays open, would have its noise stretched to the whole range; it is
    stretched no more than one that moves a hundredth of what the others do.
    """
    if values.ndim != 2 or not len(values) or not np.isfinite(values).all():
        raise DataError(f"the range of values needs rows of finite numbers; these are {values.shape}")
    low, high = values.min(0).astype(np.float64), values.max(0).astype(np.float64)
    half = (high - low) / 2
    least = LEAST * float(np.median(half)) or 1.0
    return Range(tuple(((low + high) / 2).tolist()), tuple(np.maximum(half, least).tolist()))


def range_from(about: Mapping[str, Any]) -> Range:
    """The inverse of `Range.about`. Raises `DataError`."""
    try:
        middle, half = (tuple(map(float, about[name])) for name in ("middle", "half"))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"statistics are damaged: {error}") from None
    if len(middle) != len(half) or not all(h > 0 for h in half):
        raise DataError(f"statistics are damaged: {len(middle)} middles, {len(half)} widths above 0")
    return Range(middle, half)


class Scale(nn.Module):
    """Values to about -1 to 1, and back."""

    middle: Tensor
    width: Tensor

    def __init__(self, around: Range) -> None:
        super().__init__()
        self.register_buffer("middle", torch.tensor(around.middle, dtype=torch.float32), persistent=False)
        self.register_buffer("width", torch.tensor(around.half, dtype=torch.float32), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.middle) / self.width

    def back(self, scaled: Tensor) -> Tensor:
        """The inverse."""
        return scaled * self.width + self.middle
