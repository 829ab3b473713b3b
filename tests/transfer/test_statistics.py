"""Ranges: there and back, and dimensions that hardly move."""

import numpy as np
import pytest
import torch

from xskill.errors import DataError
from xskill.transfer.statistics import Range, Scale, range_from, range_of

RANDOM = np.random.default_rng(0)


def test_values_come_back_and_lie_within_one() -> None:
    values = RANDOM.normal(3, [1, 10, 100], (500, 3)).astype(np.float32)
    scale = Scale(range_of(values))
    scaled = scale(torch.from_numpy(values))
    assert scaled.abs().max() == pytest.approx(1, abs=1e-4)
    assert scale.back(scaled).numpy() == pytest.approx(values, abs=1e-3)


def test_a_finger_that_hardly_moves_is_not_blown_up() -> None:
    values = RANDOM.uniform(-1, 1, (500, 4))
    values[:, 3] = 0.04 + 1e-5 * RANDOM.normal(size=500)
    scaled = Scale(range_of(values))(torch.from_numpy(values).float())
    assert scaled[:, 3].abs().max() < 0.01
    still = np.full((10, 2), 0.5)
    assert Scale(range_of(still))(torch.full((1, 2), 0.5)).abs().max() == 0


def test_statistics_are_written_and_read_back_exactly() -> None:
    one = range_of(RANDOM.normal(size=(50, 3)))
    assert range_from(one.about()) == one


@pytest.mark.parametrize("about", [{}, {"middle": [0]}, {"middle": [0], "half": [0]}, {"middle": "x", "half": [1]}])
def test_damaged_statistics_are_refused(about: dict[str, object]) -> None:
    with pytest.raises(DataError, match="statistics are damaged"):
        range_from(about)


def test_what_has_no_range_is_refused() -> None:
    for values in (np.zeros((0, 3)), np.array([[np.nan, 1.0]]), np.zeros(3)):
        with pytest.raises(DataError, match="finite"):
            range_of(values)
    assert range_of(np.zeros((2, 1))) == Range((0.0,), (1.0,))
