"""From records to a table: what the paper says, and what we measured, with its interval."""

from collections.abc import Mapping, Sequence
from typing import Any

from xskill.evaluate.rollouts import Record
from xskill.evaluate.statistics import compared, mean_interval, success_interval

_COLUMNS = ("same x1", "cross x1", "cross x1.3", "cross x1.5")
PAPER: Mapping[str, Mapping[str, float]] = {
    name: dict(zip(_COLUMNS, scores, strict=True))
    for name, scores in {
        "XSkill": (95.8, 89.4, 83.7, 70.2),
        "XSkill, NN-compose": (93.7, 61.2, 23.4, 15.2),
        "XSkill without prototype loss": (80.1, 56.3, 12.5, 3.75),
        "XSkill without TC loss": (3.75, 2.25, 2.25, 1.25),
        "GCD policy": (91.4, 0, 0, 0),
        "GCD policy with TCN": (2.5, 3.55, 2.0, 1.25),
    }.items()
}
"""Scores of the paper's main table, in per cent."""

Seeds = Sequence[Sequence[Record]]
"""Records of one method, a sequence for each training."""


def summary(method: Seeds) -> dict[str, dict[str, Any]]:
    """Setting -> what its episodes came to: the mean score with a 95 % interval, and more."""
    found: dict[str, dict[str, Any]] = {}
    for setting in dict.fromkeys(record.setting for records in method for record in records):
        seeds = [[record for record in records if record.setting == setting] for records in method]
        every = [record for records in seeds for record in records]
        scores = {seed: [record.score for record in records] for seed, records in enumerate(seeds) if records}
        interval = mean_interval(scores)
        if interval.mean in (0, 1):  # no spread to draw from: so many alike say as much as so many coins
            interval = success_interval(round(interval.mean * len(every)), len(every))
        success = success_interval(sum(record.success for record in every), len(every))
        found[setting] = {
            "score": interval.mean, "low": interval.low, "high": interval.high,
            "success": success.mean, "success_low": success.low, "success_high": success.high,
            "order_free": sum(record.order_free for record in every) / len(every),
            "episodes": len(every), "seeds": len(scores),
        }  # fmt: skip
        undone = [record for record in every if record.undone]
        if undone:
            redone = success_interval(sum(record.redone is not None for record in undone), len(undone))
            found[setting] |= {
                "undone": len(undone), "redone": redone.mean, "redone_low": redone.low, "redone_high": redone.high,
            }  # fmt: skip
    return found


def comparisons(methods: Mapping[str, Mapping[int, Sequence[Record]]]) -> dict[str, dict[str, float]]:
    """How far the first method is ahead of each other one, with the same seeds of training and on the same episodes.

    The settings of one condition have prompt, start and noise in common, so their mean is what is compared. A method
    that was scored on other seeds or conditions, as one that needs no training is, is left out.
    """
    keyed: dict[str, dict[tuple[int, str], float]] = {}
    for name, seeds in methods.items():
        every: dict[tuple[int, str], list[float]] = {}
        for seed, records in seeds.items():
            for record in records:
                every.setdefault((seed, str(record.condition)), []).append(record.score)
        keyed[name] = {key: sum(some) / len(some) for key, some in every.items()}
    first = next(iter(keyed))
    found = {}
    for name, scores in keyed.items():
        if name != first and scores.keys() == keyed[first].keys():
            told = compared(keyed[first], scores)
            ahead = told.difference
            found[name] = {"ahead": ahead.mean, "low": ahead.low, "high": ahead.high, "p": told.p_value}
    return found


def sentences(first: str, ahead: Mapping[str, Mapping[str, float]]) -> str:
    """What `comparisons` found, a line for each."""
    lines = []
    for name, found in ahead.items():
        mean, low, high = (f"{100 * found[part]:+.1f}" for part in ("ahead", "low", "high"))
        lines.append(f"{first} less {name}: {mean} ({low} to {high}), p {found['p']:.2g}")
    return "\n".join(lines)


def markdown(suite: str, methods: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The table of a suite: methods in rows, settings in columns, scores in per cent with their 95 % interval.

    Below a method that the paper has, too, stands what it says there.
    """
    columns = list(dict.fromkeys(setting for settings in methods.values() for setting in settings))
    rows = [["", *columns], ["---"] * (1 + len(columns))]
    for name, settings in methods.items():
        cells = [settings.get(column) for column in columns]
        if suite == "perturb":
            rows.append(
                [f"**{name}**: what was undone is done again", *(_cell(cell, "redone", "redone_") for cell in cells)]
            )
            rows.append(
                [f"{name}: and then the rest, in order", *(_cell(cell, "success", "success_") for cell in cells)]
            )
        else:
            rows.append([f"**{name}**", *(_cell(cell, "score", "") for cell in cells)])
        if suite == "table1" and name in PAPER:
            rows.append(["in the paper", *(_plain(PAPER[name].get(column)) for column in columns)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _cell(cell: Mapping[str, Any] | None, name: str, ends: str) -> str:
    """A number in per cent and its interval, whose ends are called `low` and `high`."""
    if cell is None or name not in cell:
        return "-"
    number, low, high = (f"{100 * cell[key]:.1f}" for key in (name, f"{ends}low", f"{ends}high"))
    return f"**{number}** ({low} to {high})"
