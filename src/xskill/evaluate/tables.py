"""From records to a table: what the paper says, and what we measured, with its interval."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xskill.evaluate.rollouts import Record
from xskill.evaluate.statistics import Interval, compared, mean_interval, success_interval

_SPEEDS = ("same x1", "cross x1", "cross x1.3", "cross x1.5")
_FEW = ("same x1", "cross x1", "cross x1.5")
_SAID: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...]], ...] = (
    (
        (
            "XSkill", "XSkill, raw frames", "XSkill, Level 1",
            "paper-kitchen", "paper-kitchen, Level 1", "paper-kitchen, bodies paired",
        ),
        _SPEEDS, (95.8, 89.4, 83.7, 70.2),
    ),
    (("XSkill, NN-compose", "XSkill, raw frames, NN-compose"), _SPEEDS, (93.7, 61.2, 23.4, 15.2)),
    (("XSkill without prototype loss",), _SPEEDS, (80.1, 56.3, 12.5, 3.75)),
    (("XSkill without TC loss",), _SPEEDS, (3.75, 2.25, 2.25, 1.25)),
    (("GCD policy",), _SPEEDS, (91.4, 0, 0, 0)),
    (("GCD policy with TCN",), _SPEEDS, (2.5, 3.55, 2.0, 1.25)),
    (("K=32",), _FEW, (91.6, 67.5, 48.7)),
    (("K=128", "K=128, Level 1"), _FEW, (95.8, 89.4, 70.2)),
    (("K=256", "K=256, Level 1"), _FEW, (98.3, 86.6, 76.7)),
    (("K=512", "K=512, Level 1"), _FEW, (97.5, 90.7, 71.8)),
    (("K=128, Level 2",), _FEW, (62.5, 55.0, 47.5)),
    (("K=256, Level 2",), _FEW, (91.3, 81.3, 61.3)),
    (("K=512, Level 2",), _FEW, (87.5, 84.4, 67.5)),
)  # fmt: skip
PAPER: Mapping[str, Mapping[str, float]] = {
    name: dict(zip(columns, scores, strict=True)) for names, columns, scores in _SAID for name in names
}
"""Scores of the paper's tables, in per cent. It says that its main table is what we call Level 1."""

ALL = "all"
"""All settings of a comparison."""
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
        if len({record.score for record in every}) == 1:  # no spread to draw from, but others may still come
            same, others = interval.mean, success_interval(0, len(every)).high
            interval = Interval(same, same * (1 - others), same + (1 - same) * others)
        success = success_interval(sum(record.success for record in every), len(every))
        found[setting] = {
            "score": interval.mean, "low": interval.low, "high": interval.high,
            "success": success.mean, "success_low": success.low, "success_high": success.high,
            "order_free": sum(record.order_free for record in every) / len(every),
            "episodes": len(every), "seeds": len(scores),
            "missed": _counted(some.asked[round(some.score * len(some.asked))] for some in every if some.score < 1),
        }  # fmt: skip
        undone = [record for record in every if record.undone]
        if undone:
            redone = success_interval(sum(record.redone is not None for record in undone), len(undone))
            mended = success_interval(sum(record.success for record in undone), len(undone))
            found[setting] |= {
                "mended": mended.mean, "mended_low": mended.low, "mended_high": mended.high,
                "undone": len(undone), "redone": redone.mean, "redone_low": redone.low, "redone_high": redone.high,
                "undone_of": _counted(_undone(record) for record in undone),
                "redone_of": _counted(_undone(record) for record in undone if record.redone is not None),
            }  # fmt: skip
    return found


def _counted(tasks: Iterable[str]) -> dict[str, int]:
    """How often each occurs, the most frequent first."""
    return dict(Counter(tasks).most_common())


def _undone(record: Record) -> str:
    assert record.undone
    return record.undone[0]


def where_it_ended(methods: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The first sub-task of an episode that was not done in order, and what was done again, a line for each method."""
    lines = []
    for name, settings in methods.items():
        missed, undone, redone = (
            sum((Counter(cell.get(count, {})) for cell in settings.values()), Counter[str]())
            for count in ("missed", "undone_of", "redone_of")
        )
        parts = [f"missed first: {', '.join(f'{t} {n}' for t, n in missed.most_common()) or 'nothing'}"]
        if undone:
            parts.append(f"done again: {', '.join(f'{t} {redone[t]} of {n}' for t, n in undone.most_common())}")
        lines.append(f"{name}, of {sum(cell['episodes'] for cell in settings.values())} episodes {'; '.join(parts)}")
    return "\n".join(lines)


def comparisons(methods: Mapping[str, Mapping[int, Sequence[Record]]]) -> dict[str, dict[str, dict[str, float]]]:
    """How far a method is ahead of each later one, with the same seeds of training and on the same episodes.

    Each is compared with the first that has the same. In every setting; and, where there are several, in all of them:
    those of one condition have prompt, start and noise in common, so their mean is what is compared. A method that was
    scored on other seeds, conditions, prompts or settings, as one that needs no training is, is left out.
    """
    scores = {
        name: {
            (seed, record.setting, f"{record.condition} {record.prompt}"): record.score
            for seed, some in seeds.items()
            for record in some
        }
        for name, seeds in methods.items()
    }
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, theirs in scores.items():
        first = next(other for other, some in scores.items() if some.keys() == theirs.keys())
        if first == name:
            continue
        settings = list(dict.fromkeys(setting for _, setting, _ in theirs))
        parts = {ALL: settings} | {setting: [setting] for setting in settings if len(settings) > 1}
        for part, columns in parts.items():
            told = compared(_means(scores[first], columns), _means(theirs, columns))
            ahead = {"ahead": told.difference.mean, "low": told.difference.low, "high": told.difference.high}
            found.setdefault(f"{first} less {name}", {})[part] = ahead | {"p": told.p_value}
    return found


def _means(scores: Mapping[tuple[int, str, str], float], settings: Sequence[str]) -> dict[tuple[int, str], float]:
    """The mean score of every seed and condition in some settings."""
    every: dict[tuple[int, str], list[float]] = {}
    for (seed, setting, condition), score in scores.items():
        if setting in settings:
            every.setdefault((seed, condition), []).append(score)
    return {key: sum(some) / len(some) for key, some in every.items()}


def sentences(ahead: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """What `comparisons` found, a line for each."""
    lines = []
    for names, parts in ahead.items():
        told = []
        for part, found in parts.items():
            mean, low, high = (f"{100 * found[number]:+.1f}" for number in ("ahead", "low", "high"))
            told.append(f"{'' if part == ALL else part + ' '}{mean} ({low} to {high}), p {found['p']:.2g}")
        lines.append(f"{names}: {'; '.join(told)}")
    return "\n".join(lines)


def markdown(suite: str, methods: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The table of a suite: methods in rows, settings in columns, scores in per cent with their 95 % interval.

    Below a method that the paper has, too, stands what it says there.
    """
    columns = list(dict.fromkeys(setting for settings in methods.values() for setting in settings))
    rows = [["", *columns], ["---"] * (1 + len(columns))]
    for name, settings in methods.items():
        cells = [settings.get(column) for column in columns]
        rows.append([f"**{name}**", *(_cell(cell, "score", "") for cell in cells)])
        if suite == "table1" and name in PAPER:
            rows.append(["in the paper", *(_plain(PAPER[name].get(column)) for column in columns)])
        if any(cell and "redone" in cell for cell in cells):
            again = [_cell(cell, "redone", "redone_") for cell in cells]
            rows.append([f"**{name}**: what was undone is done again", *again])
            rows.append([f"{name}: and then the rest, in order", *(_cell(cell, "mended", "mended_") for cell in cells)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _cell(cell: Mapping[str, Any] | None, name: str, ends: str) -> str:
    """A number in per cent and its interval, whose ends are called `low` and `high`."""
    if cell is None or name not in cell:
        return "-"
    number, low, high = (f"{100 * cell[key]:.1f}" for key in (name, f"{ends}low", f"{ends}high"))
    return f"**{number}** ({low} to {high})"
