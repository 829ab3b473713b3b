"""`xskill sweep`: all that a table needs, trained and scored one after the other; what is there is not done again."""

import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
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


def _without(name: str, *words: str) -> Row:
    return Row(f"without {name}", name.replace(" ", "-"), (f"--transfer.{words[0]}", *words[1:]))


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
    "fields": (
        "each thing in transfer that `kitchen` does beyond the paper, left out by itself; and what it could do besides",
        (
            _OURS,
            Row("the paper's aligner", "transformer", ("--transfer.aligner.kind", "transformer")),
            _without("counterparts", "cross", "0"),
            _without("the guess of actions", "policy.guess", "noise"),
            _without("noise on skills", "skill-noise", "0"),
            _without("noise on joints", "state-noise", "0"),
            _without("shifted images", "shift", "0"),
            _without("noise on plans", "plan-noise", "0"),
            _without("hidden tokens", "plan-drop", "0"),
            _without("warped plans", "plan-warp", "0"),
            _without("masked padding", "no-mask-padding"),
            Row("with spliced plans", "spliced-plans", ("--transfer.plan-splice", "0.25")),
            Row("with undone scenes", "undone-scenes", ("--transfer.undo", "0.25")),
        ),
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
    at_once: int = 1
    """Trainings that run at the same time, on as many GPUs as there are in turn; each then writes OUT/NAME.log."""
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
    if options.at_once < 1:
        raise ConfigError(f"--at-once is {options.at_once}; expected at least 1")
    trainings: dict[str, Row] = {}
    for row in rows:
        trainings.setdefault(row.training, row)
    suite = name if name in SUITES else "table1"
    methods = {training: [row.method for row in rows if row.training == training] for training in trainings}
    work = _Work(options, suite, methods, console, out)
    jobs = [(seed, row) for seed in options.seeds for row in trainings.values()]
    trained = work.done(jobs)
    models: dict[str, list[Path]] = {}
    for (_, row), (folder, well) in zip(jobs, trained.items(), strict=True):
        if well:
            models.setdefault(row.training, []).append(folder / "model")
    failed = [folder for folder, done in trained.items() if not done]
    from xskill.evaluate.command import Evaluate, tabulate

    scored = {row.name: (row.method, models[row.training]) for row in rows if row.training in models}
    told = Evaluate(
        (), options.demos, options.conditions,
        device=options.device, workers=options.workers, data_folder=options.data_folder,
    )  # fmt: skip
    if scored:
        tabulate(suite, scored, told, out / "eval", console)
    if failed:
        raise RunError(f"{len(failed)} trainings failed, their rows are missing: {', '.join(map(str, failed))}")


def _folder(out: Path, seed: int, row: Row) -> Path:
    return out / f"{row.training}-{seed}"


class _Work:
    """Trainings, so many at once, and the scoring of each that is done, while others train."""

    def __init__(
        self, options: Sweep, suite: str, methods: Mapping[str, Sequence[str]], console: Console, out: Path
    ) -> None:
        self._options, self._suite, self._methods, self._console, self._out = options, suite, methods, console, out
        self._running: list[subprocess.Popen[bytes]] = []
        self._scoring, self._stopping = threading.Lock(), threading.Event()
        self._skills: dict[int, threading.Event] = {}
        self._places: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(options.at_once):
            self._places.put(place)

    def done(self, jobs: Sequence[tuple[int, Row]]) -> dict[Path, bool]:
        """Train and score rows; folder -> whether its training went well."""
        self._skills = {seed: threading.Event() for seed, row in jobs if row.training == _OURS.training}
        with ThreadPoolExecutor(len(jobs)) as pool:
            try:
                well = list(pool.map(self._one, jobs))
            except KeyboardInterrupt:
                raise Interrupted("interrupted; the same command goes on") from None
            finally:
                self._stopping.set()
                for process in self._running:
                    process.terminate()  # it ends with a checkpoint
        return dict(zip((_folder(self._out, *job) for job in jobs), well, strict=True))

    def _one(self, job: tuple[int, Row]) -> bool:
        seed, row = job
        ours = row.training == _OURS.training
        if not ours and seed in self._skills:
            self._skills[seed].wait()  # they may be the same
        folder, alone = _folder(self._out, seed, row), self._options.at_once == 1
        with self._place() as place:
            try:
                well = self._trained(folder, seed, row, place)
            finally:
                if ours:
                    self._skills[seed].set()
            if well and alone:
                self._score(folder, self._methods[row.training])
        if well and not alone:
            with self._scoring:  # one evaluation takes all of a machine's cores
                self._score(folder, self._methods[row.training])
        return well

    @contextmanager
    def _place(self) -> Iterator[int]:
        place = self._places.get()
        try:
            yield place
        finally:
            self._places.put(place)

    def _trained(self, folder: Path, seed: int, row: Row, place: int) -> bool:
        """Train a row, or go on with it; a finished one is only looked at."""
        options = self._options
        _borrow_skills(folder, seed, row, self._out)
        begun = ["--resume"] if folder.exists() else []
        words = [
            options.preset, "--data.demos", options.demos, "--seed", str(seed), *row.words,
            *shlex.split(options.train), "--out", str(folder), *self._common(), *begun,
        ]  # fmt: skip
        self._console.print(f"{row.name}, seed {seed}: xskill train {shlex.join(words)}")
        code = self._run(["train", *words], folder.name, _gpu(place, options.at_once))
        if options.at_once > 1:
            self._console.print(
                f"{row.name}, seed {seed}: {'trained' if code == 0 else f'failed, see {folder}.log'}", soft_wrap=True
            )
        return code == 0

    def _score(self, folder: Path, methods: Sequence[str]) -> None:
        """Have a model's records made; the table is made of them, and of what is still missing then."""
        told = ["--demos", self._options.demos, "--conditions", self._options.conditions, *self._common()]
        words = [self._suite, "--model", str(folder / "model"), "--methods", *methods, *told]
        self._run(["eval", *words, "--out", str(self._out / "eval")], folder.name, {})

    def _common(self) -> list[str]:
        options = self._options
        where = ["--device", options.device, "--workers", str(options.workers)]
        return [*where, "--data-folder", str(options.data_folder)]

    def _run(self, words: Sequence[str], name: str, more: Mapping[str, str]) -> int:
        """An xskill command, as a process of its own, with its log where several run at once."""
        if self._stopping.is_set():
            raise Interrupted("interrupted; the same command goes on")
        with ExitStack() as stack:
            log = None
            if self._options.at_once > 1:
                self._out.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context((self._out / f"{name}.log").open("ab"))
            # Ctrl-C reaches the sweep alone, which passes it on once: a second one would cost the checkpoint.
            process = subprocess.Popen(
                [sys.executable, "-m", "xskill", *words],
                stdout=log, stderr=log, env=os.environ | more, start_new_session=True,
            )  # fmt: skip
            self._running.append(process)
            code = process.wait()
            self._running.remove(process)
        if code == Interrupted.exit_code:
            raise Interrupted("interrupted; the same command goes on")
        return code


def _gpu(place: int, places: int) -> dict[str, str]:
    """What tells a process to use one of several GPUs, where several run at once."""
    if places == 1:
        return {}
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    return {"CUDA_VISIBLE_DEVICES": named[place % count]} if count > 1 else {}


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
