"""The trainings that tables need, each once, and what one may take over from another."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xskill.engine.folder import whole
from xskill.evaluate import SUITES
from xskill.rows import PLAIN, Row


@dataclass(frozen=True)
class Job:
    """A training, and what it is scored on."""

    seed: int
    row: Row
    """The first that needs it."""
    folder: Path
    methods: Mapping[str, Sequence[str]]
    """Suite -> how plans are read there."""

    @property
    def note(self) -> Path:
        """Where the words of the training are kept when it is done."""
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def __str__(self) -> str:
        return f"{self.row.name}, seed {self.seed}"


def suite_of(table: str) -> str:
    return table if table in SUITES else "table1"


def folder_of(out: Path, seed: int, row: Row) -> Path:
    return out / f"{row.training}-{seed}"


def jobs_of(tables: Mapping[str, Sequence[Row]], seeds: Sequence[int], out: Path, suite: str = "") -> list[Job]:
    """The trainings that tables need, each once; all scored on one `suite`, or on that of each table."""
    rows: dict[str, Row] = {}
    methods: dict[str, dict[str, list[str]]] = {}
    for name, some in tables.items():
        for row in some:
            rows.setdefault(row.training, row)
            read = methods.setdefault(row.training, {}).setdefault(suite or suite_of(name), [])
            read += [row.method] if row.method not in read else []
    return [
        Job(seed, row, folder_of(out, seed, row), methods[training]) for seed in seeds for training, row in rows.items()
    ]


def lender_of(job: Job) -> Path | None:
    """The training whose skills, or model, a row may borrow, as it differs from it in transfer alone; else None."""
    lender = PLAIN.get(job.row.preset)
    discovers = any(word.startswith(("--discover.", "--data.")) for word in job.row.words)
    return None if lender in (None, job.row.training) or discovers else job.folder.with_name(f"{lender}-{job.seed}")


def can_lend(training: Path, job: Job) -> bool:
    """Whether a training has discovered its skills, or has all of its model, where that is what a row needs."""
    if job.row.keeps_policy:
        return whole(training / "model")
    try:
        done = json.loads((training / "discover/done.json").read_bytes())
        return whole(training / done["result"]["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def borrow_skills(job: Job) -> None:
    """Take over what another training has discovered where that is the same."""
    lender = lender_of(job)
    if lender and not job.row.keeps_policy and not job.folder.exists() and can_lend(lender, job):
        aside = job.folder.with_name(f".aside-{job.folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(lender / "discover", aside / "discover")
        shutil.copy(lender / "config.json", aside)
        aside.rename(job.folder)
