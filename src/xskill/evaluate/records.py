"""What became of episodes, on disk: a line for each, written at once, so that an interrupted evaluation goes on."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from xskill.engine.config import from_json
from xskill.engine.folder import json_lines, refused
from xskill.engine.log import Bars
from xskill.errors import ConfigError
from xskill.evaluate.protocol import Trial
from xskill.evaluate.rollouts import Performer, Record, roll_out
from xskill.kitchen.tasks import score


def records_in(folder: Path, method: str, key: str) -> Path:
    """The file for what a method is scored by."""
    return folder / f"{method}-{key}.jsonl"


def _known(path: Path) -> dict[tuple[str, int], Record]:
    return {(record.setting, record.condition): record for record in read_records(path)}


def left_of(todo: Sequence[Trial], path: Path) -> list[Trial]:
    """The trials of which `path` has no record."""
    known = _known(path)
    return [trial for trial in todo if (trial.setting.name, trial.condition) not in known]


def finished(
    todo: Sequence[Trial],
    performer: Callable[[], Performer],
    path: Path,
    workers: int,
    name: str,
    bars: Bars,
    made: dict[str, str],
) -> list[Record]:
    """The record of every trial, those in `path` read, the others `made` and added there at once."""
    left = left_of(todo, path)
    bars.advance(name, len(todo) - len(left), len(todo))
    if left:
        with path.open("ab", buffering=0) as file:
            file.write(b"\n" if file.tell() else b"")  # ends a line that a kill may have torn
            for record in roll_out(left, performer(), workers=workers):
                try:
                    file.write(json.dumps(asdict(record) | made).encode() + b"\n")
                except OSError as error:
                    raise refused(path, error) from error
                bars.advance(name, 1, len(todo))
    known = _known(path)
    return [known[trial.setting.name, trial.condition] for trial in todo]


def read_records(path: Path) -> list[Record]:
    """The records in a file; a line that a kill has torn, or that says what cannot be, is passed over."""
    records = []
    for values in json_lines(path):
        try:
            record = from_json(
                Record, {name: value for name, value in values.items() if name not in ("made", "device")}
            )
        except ConfigError:
            continue
        worth = score(record.asked, [task for task, _ in record.completed])
        if (worth.ordered, worth.order_free) == (record.score, record.order_free):
            records.append(record)
    return records
