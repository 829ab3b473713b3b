"""What is asked of a sweep; the trainings that its tables need, each once, and what one may take over from another."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from xskill.engine.config import CORES, DATA, Device, unset
from xskill.engine.folder import check_folder, fingerprint, read_manifest, whole
from xskill.errors import CheckpointError, ConfigError
from xskill.evaluate import SUITES
from xskill.rows import PLAIN, Row

OWN = "--data.demos"
"""Names the demonstrations of a row that has its own."""


@dataclass(frozen=True)
class Sweep:
    """Train and score all that tables need. Interrupted, the same command goes on; a finished part is not done again.

    A training that fails is named, and the others go on without it. Tables share trainings and records. What has been
    scored needs no weights any more: with OUT/records, OUT/*.json and the small files of OUT/*/model it is known.
    """

    demos: str
    """Recorded demonstrations, or scripted."""
    preset: str = "kitchen"
    """What the trainings start from."""
    seeds: tuple[int, ...] = (0,)
    """One training of every row for each."""
    rows: Annotated[tuple[str, ...], unset("all; a wrong name lists them")] = ()
    """Only these rows, by name."""
    train: str = ""
    """More options for every training, in one string, as in --train="--transfer.loop.steps 2000"."""
    model: Path | None = None
    """A trained model to take as it is for the row XSkill; rows that keep its policy go on from it."""
    suite: Annotated[str, unset("that of each table's name, or table1")] = ""
    """Score the rows on this one instead, and write OUT/TABLE-SUITE: choices should not be made on table1, the test."""
    conditions: str = "0:32"
    """Which initial conditions, as first:end."""
    out: Path = Path("runs/sweep")
    """Folder for trainings, records and tables."""
    as_is: bool = False
    """Train and score nothing more: the tables of what has been scored."""
    device: Device = "auto"
    """Where to train and act."""
    workers: int = CORES
    """Processes that simulate and render."""
    at_once: int = 1
    """Trainings that run at the same time, on as many GPUs as there are in turn; each then writes OUT/NAME.log."""
    data_folder: Path = DATA
    """Folder for frames."""

    def table(self, name: str) -> Path:
        """The folder of a table."""
        return self.out.expanduser() / (f"{name}-{self.suite}" if self.suite else name)


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


def take_model(model: Path, job: Job) -> None:
    """Have a trained model where a training would leave its own. Raises `ConfigError` where it left another."""
    if job.folder.exists():
        if model_of(job.folder) != fingerprint(read_manifest(model)):
            raise ConfigError(f"{job.folder} is there already, and is not {model}; choose another --out")
        return
    check_folder(model)
    aside = job.folder.with_name(f".aside-{job.folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(model, aside / "model")
    aside.rename(job.folder)


def model_of(training: Path) -> str:
    """Names the model that a training has left by what it holds; nothing where there is none."""
    try:
        return fingerprint(read_manifest(training / "model"))
    except CheckpointError:
        return ""
