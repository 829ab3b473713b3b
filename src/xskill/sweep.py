"""`xskill sweep`: all that a table needs, trained and scored one after the other; what is there is not done again."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from xskill.engine.config import CORES, DATA, Device
from xskill.engine.log import plain_console
from xskill.errors import ConfigError, Interrupted, RunError
from xskill.evaluate import SUITES


@dataclass(frozen=True)
class Row:
    """A row of a table: a training, how it differs from the preset, and how its plans are read."""

    name: str
    training: str = "xskill"
    """Names its folder; rows may share a training."""
    words: tuple[str, ...] = ()
    """Options that set it apart."""
    method: str = "xskill"


_OURS = Row("XSkill")
_CLOCK = Row("plan read by the clock", method="clock")
_BLIND = Row("blind to its prompt", "blind", ("--transfer.policy.blind",))
_LOSSES = (
    Row("XSkill without prototype loss", "no-prototype-loss", ("--discover.prototype-weight", "0")),
    Row("XSkill without TC loss", "no-time-loss", ("--discover.time-weight", "0")),
)
_ALONE = ("--transfer.cross", "0")
_AHEAD = (*_ALONE, "--transfer.policy.ahead", "16")
_TCN = ("--discover.clip-length", "1", "--discover.prototype-weight", "0")


def _prototypes(count: int, level: int = 0) -> Row:
    told = ("--discover.num-prototypes", str(count), *(("--data.level", str(level)) if level else ()))
    return Row(f"K={count}" + (f", Level {level}" if level else ""), f"k{count}" + f"-level{level}" * bool(level), told)


SWEEPS: Mapping[str, tuple[str, tuple[Row, ...]]] = {
    "table1": (
        "the paper's main table: the method, ways to read the plan, ablations, what the prompt is worth",
        (
            _OURS,
            _CLOCK,
            Row("XSkill, NN-compose", method="nearest"),
            Row("XSkill, told what is done", method="told"),
            Row("the paper's aligner", "transformer", ("--transfer.aligner.kind", "transformer")),
            *_LOSSES,
            Row("told the robot's own skills only", "alone", _ALONE),
            Row("GCD policy", "gcd", ("--transfer.policy.told", "goal", *_AHEAD), "gcd"),
            Row("GCD policy with TCN", "gcd-tcn", (*_TCN, *_AHEAD), "gcd"),
            _BLIND,
            Row("the prompt's own actions replayed", method="replay"),
            Row("scripted expert, told the order", method="scripted"),
        ),
    ),
    "losses": ("with and without each loss of discovery", (_OURS, *_LOSSES)),
    "prototypes": ("K = 32, 128, 256, 512", tuple(_prototypes(count) for count in (32, 128, 256, 512))),
    "levels": (
        "K = 128, 256, 512 with fewer and fewer of the task's transitions seen",
        tuple(_prototypes(count, level) for level in (1, 2) for count in (128, 256, 512)),
    ),
    "pairs": ("what a prompt of two sub-tasks is worth, for models that a laptop trains", (_OURS, _CLOCK, _BLIND)),
}
"""Name -> what it tells, and its rows. They are scored on the suite of that name, or else on table1."""


@dataclass(frozen=True)
class Sweep:
    """Train and score all that a table needs. Interrupted, the same command goes on; a finished part is not done again.

    A training that fails is named, and the others go on without it.
    """

    demos: str
    """Recorded demonstrations, or scripted."""
    preset: str = "kitchen"
    """What the trainings start from."""
    seeds: tuple[int, ...] = (0,)
    """One training of every row for each."""
    rows: tuple[str, ...] = ()
    """Only these rows, by name (default: all)."""
    train: str = ""
    """More options for every training, in one string, as in --train="--transfer.loop.steps 2000"."""
    conditions: str = "0:32"
    """Which initial conditions, as first:end."""
    out: Path | None = None
    """Folder for trainings, records and the table (default: runs/sweep/NAME)."""
    device: Device = "auto"
    """Where to train and act."""
    workers: int = CORES
    """Processes that simulate and render."""
    data_folder: Path = DATA
    """Folder for frames."""

    def folder(self, name: str) -> Path:
        """Where all of it is kept."""
        return (self.out or Path("runs/sweep") / name).expanduser()


def sweep(name: str, options: Sweep, out: Path) -> None:
    """Do what the options say, in the folder `out`."""
    console = plain_console()
    rows = [row for row in SWEEPS[name][1] if not options.rows or row.name in options.rows]
    if unknown := set(options.rows) - {row.name for row in rows}:
        names = ", ".join(f"'{row.name}'" for row in SWEEPS[name][1])
        raise ConfigError(f"{name} has no row '{min(unknown)}' (choose from {names})")
    if not options.seeds or len(set(options.seeds)) < len(options.seeds):
        raise ConfigError(f"--seeds are {list(options.seeds)}; name one or more, each once")
    models: dict[str, list[Path]] = {}
    failed = []
    trainings: dict[str, Row] = {}
    for row in rows:
        trainings.setdefault(row.training, row)
    for seed in options.seeds:
        for training, row in trainings.items():
            folder = out / f"{training}-{seed}"
            if not _trained(folder, row, seed, options, console, out):
                failed.append(folder)
            else:
                models.setdefault(training, []).append(folder / "model")
    from xskill.evaluate.command import Evaluate, tabulate

    scored = {row.name: (row.method, models[row.training]) for row in rows if row.training in models}
    suite = name if name in SUITES else "table1"
    told = Evaluate(
        (), options.demos, options.conditions,
        device=options.device, workers=options.workers, data_folder=options.data_folder,
    )  # fmt: skip
    if scored:
        tabulate(suite, scored, told, out / "eval", console)
    if failed:
        raise RunError(f"{len(failed)} trainings failed, their rows are missing: {', '.join(map(str, failed))}")


def _trained(folder: Path, row: Row, seed: int, options: Sweep, console: Console, out: Path) -> bool:
    """Train a row, or go on with it; a finished one is only looked at."""
    _borrow_skills(folder, seed, row, out)
    begun = ["--resume"] if folder.exists() else []
    words = [
        options.preset, "--data.demos", options.demos, "--seed", str(seed), *row.words, *shlex.split(options.train),
        "--out", str(folder), "--device", options.device, "--workers", str(options.workers),
        "--data-folder", str(options.data_folder), *begun,
    ]  # fmt: skip
    console.print(f"{row.name}, seed {seed}: xskill train {shlex.join(words)}")
    try:
        code = subprocess.run([sys.executable, "-m", "xskill", "train", *words]).returncode
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the same command goes on") from None
    if code == Interrupted.exit_code:
        raise Interrupted("interrupted; the same command goes on")
    return code == 0


def _borrow_skills(folder: Path, seed: int, row: Row, out: Path) -> None:
    """Take over discovery from the first row where only transfer differs: it would come to the same."""
    first = out / f"{_OURS.training}-{seed}"
    same = not any(word.startswith(("--discover.", "--data.")) for word in row.words)
    if same and row.training != _OURS.training and not folder.exists() and (first / "discover/done.json").exists():
        aside = folder.with_name(f".aside-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(first / "discover", aside / "discover")
        shutil.copy(first / "config.json", aside)
        aside.rename(folder)
