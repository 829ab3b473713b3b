"""Statistics of a dataset as LeRobot keeps them: of every episode, and of all of them together."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from xskill.data.recording import Pixels

Stats = dict[str, npt.NDArray[np.float64]]
"""min, max, mean, std and five quantiles, each of the shape of a row; count, (1,)."""

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def stats_of(rows: npt.NDArray[np.number]) -> Stats:  # (N, D)
    """Of numbers, one row a frame."""
    values = rows.astype(np.float64)
    found = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0)}
    found |= {name: np.quantile(values, share, axis=0) for name, share in QUANTILES.items()}
    return found | {"count": np.array([len(rows)])}


def stats_of_pictures(frames: Sequence[Pixels]) -> Stats:
    """Of pictures (H, W, 3), as bright as 1: (3, 1, 1) each."""
    levels = np.arange(256) / 255
    counts = np.zeros((3, 256), np.int64)
    for frame in frames:
        counts += np.stack([np.bincount(channel, minlength=256) for channel in frame.reshape(-1, 3).T])
    share = counts / counts.sum(1, keepdims=True)  # (3, 256)
    upto = share.cumsum(1)
    mean = share @ levels
    found = {
        "min": levels[(counts > 0).argmax(1)],
        "max": levels[255 - (counts[:, ::-1] > 0).argmax(1)],
        "mean": mean,
        "std": np.sqrt((share * (levels - mean[:, None]) ** 2).sum(1)),
    }
    found |= {name: levels[(upto >= wanted - 1e-9).argmax(1)] for name, wanted in QUANTILES.items()}
    return {name: value.reshape(3, 1, 1) for name, value in found.items()} | {"count": np.array([len(frames)])}


def together(parts: Sequence[Stats]) -> Stats:
    """Of all episodes from those of each; quantiles are the mean of theirs, as LeRobot has them."""
    counts = np.concatenate([part["count"] for part in parts])
    stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0] if name != "count"}
    found = {name: np.average(stacked[name], axis=0, weights=counts) for name in ("mean", *QUANTILES)}
    spread = stacked["std"] ** 2 + (stacked["mean"] - found["mean"]) ** 2
    found |= {"std": np.sqrt(np.average(spread, axis=0, weights=counts))}
    return found | {"min": stacked["min"].min(0), "max": stacked["max"].max(0), "count": counts.sum(keepdims=True)}
