"""`xskill sweep`: all that a table needs, trained and scored one after the other; what is there is not done again."""

import hashlib
import json
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
from typing import TYPE_CHECKING, Any

from rich.console import Console

from xskill.engine.config import CORES, DATA, Device, did_you_mean, differences, from_json, to_json
from xskill.engine.folder import MANIFEST, to_bytes, whole, write_file
from xskill.engine.log import plain_console
from xskill.errors import ConfigError, Interrupted, RunError
from xskill.evaluate import SUITES
from xskill.presets import PRESETS, Config
from xskill.rows import OURS, SWEEPS, Row
from xskill.version import exact_version

if TYPE_CHECKING:
    from xskill.evaluate.command import Evaluate


@dataclass(frozen=True)
class Sweep:
    """Train and score all that a table needs. Interrupted, the same command goes on; a finished part is not done again.

    A training that fails is named, and the others go on without it. Tables share trainings and records. What has been
    scored needs no weights any more: with OUT/records, OUT/*.json and the small files of OUT/*/model it is known.
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
    out: Path = Path("runs/sweep")
    """Folder for trainings, records and tables."""
    device: Device = "auto"
    """Where to train and act."""
    workers: int = CORES
    """Processes that simulate and render."""
    at_once: int = 1
    """Trainings that run at the same time, on as many GPUs as there are in turn; each then writes OUT/NAME.log."""
    data_folder: Path = DATA
    """Folder for frames."""


def sweep(name: str, options: Sweep) -> None:
    """Do what the options say for the table of this name."""
    console, out = plain_console(), options.out.expanduser()
    if options.preset not in PRESETS:
        raise ConfigError(f"there is no preset '{options.preset}'{did_you_mean(options.preset, PRESETS)}")
    exact_version()  # of what is run, not of what is there when it ends
    rows = [row.resolved(options.preset) for row in SWEEPS[name][1] if not options.rows or row.name in options.rows]
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
    for job in jobs:
        work.check(*job)
    left = [job for job in jobs if not work.known(*job)]
    failed = [_folder(out, *job) for job, well in zip(left, work.done(left), strict=True) if not well]
    models: dict[str, list[Path]] = {}
    for seed, row in jobs:
        if (folder := _folder(out, seed, row)) not in failed:
            models.setdefault(row.training, []).append(folder / "model")
    from xskill.evaluate.command import tabulate

    scored = {row.name: (row.method, models[row.training]) for row in rows if row.training in models}
    if scored:
        tabulate(suite, scored, _as_evaluated(options), out / name, console)
    if failed:
        raise RunError(f"{len(failed)} trainings failed, their rows are missing: {', '.join(map(str, failed))}")


def _as_evaluated(options: Sweep) -> "Evaluate":
    """What a sweep's options say to an evaluation."""
    from xskill.evaluate.command import Evaluate

    return Evaluate(
        (), options.demos, options.conditions,
        records=options.out.expanduser() / "records",
        device=options.device, workers=options.workers, data_folder=options.data_folder,
    )  # fmt: skip


def _note(folder: Path) -> Path:
    """Where the words of a training are kept when it is done."""
    return folder.with_name(f"{folder.name}.json")


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
        self._ours: dict[int, threading.Event] = {}
        self._places: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in range(options.at_once):
            self._places.put(place)

    def done(self, jobs: Sequence[tuple[int, Row]]) -> list[bool]:
        """Train and score rows; whether each training went well."""
        if not jobs:
            return []
        self._ours = {seed: threading.Event() for seed, row in jobs if row.training == OURS.training}
        with ThreadPoolExecutor(len(jobs)) as pool:
            try:
                return list(pool.map(self._one, jobs))
            except KeyboardInterrupt:
                raise Interrupted("interrupted; the same command goes on") from None
            finally:
                self._stopping.set()
                for process in self._running:
                    process.terminate()  # it ends with a checkpoint

    def _one(self, job: tuple[int, Row]) -> bool:
        seed, row = job
        folder, alone = _folder(self._out, seed, row), self._options.at_once == 1
        if _borrows(row) and seed in self._ours:
            while not _skills(self._out, seed) and not self._ours[seed].wait(1):
                pass
        with self._place() as place:
            try:
                well = self._trained(folder, seed, row, place)
            finally:
                if row.training == OURS.training:
                    self._ours[seed].set()
            if well:
                write_file(_note(folder), to_bytes(self._told(seed, row)))
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

    def _words(self, seed: int, row: Row) -> list[str]:
        """The words of a training, but for the demonstrations."""
        return [row.preset or self._options.preset, "--seed", str(seed), *row.words, *shlex.split(self._options.train)]

    def _told(self, seed: int, row: Row) -> dict[str, Any]:
        """All that decides what a training comes to."""
        words, demos = self._words(seed, row), Path(self._options.demos).expanduser()
        told: dict[str, Any] = {"train": shlex.join(words), "preset": to_json(PRESETS[words[0]][1])}
        if "--data.demos" not in words:
            told["demos"] = hashlib.sha256(demos.read_bytes()).hexdigest()[:16] if demos.is_file() else str(demos)
        return told

    def check(self, seed: int, row: Row) -> None:
        """Raises `ConfigError` for a training that was told otherwise before."""
        folder, now = _folder(self._out, seed, row), self._told(seed, row)
        try:
            before = json.loads(_note(folder).read_bytes())
            before["preset"] = to_json(from_json(Config, before["preset"]))  # what is new since has its default
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, ConfigError):
            raise ConfigError(f"{_note(folder)} does not say how {folder} was trained; delete both") from None
        for name, (old, new) in differences(before, now).items():
            raise ConfigError(f"{folder} was trained with another {name}: `{old}`, now `{new}`; choose another --out")

    def known(self, seed: int, row: Row) -> bool:
        """Whether all that is to be known of a training is; then its weights may be gone."""
        from xskill.evaluate.command import all_scored

        folder = _folder(self._out, seed, row)
        if not _note(folder).is_file() or not (folder / "model" / MANIFEST).is_file():
            return False
        if all_scored(self._suite, folder / "model", self._methods[row.training], _as_evaluated(self._options)):
            self._console.print(f"{row.name}, seed {seed}: scored already")
            return True
        if not whole(folder / "model"):
            raise RunError(
                f"the weights of {folder} are gone, and {self._suite} needs them; to train it again, delete {folder} "
                f"and {_note(folder)}"
            )
        return False

    def _trained(self, folder: Path, seed: int, row: Row, place: int) -> bool:
        """Train a row, or go on with it; a finished one is only looked at."""
        options = self._options
        _borrow_skills(folder, seed, row, self._out)
        begun = ["--resume"] if folder.exists() else []
        demos = [] if "--data.demos" in row.words else ["--data.demos", options.demos]
        words = [*self._words(seed, row), *demos, "--out", str(folder), *self._common(), *begun]
        self._console.print(f"{row.name}, seed {seed}: xskill train {shlex.join(words)}")
        code = self._run(["train", *words], folder.name, _gpu(place, options.at_once))
        if options.at_once > 1:
            self._console.print(
                f"{row.name}, seed {seed}: {'trained' if code == 0 else f'failed, see {folder}.log'}", soft_wrap=True
            )
        return code == 0

    def _score(self, folder: Path, methods: Sequence[str]) -> None:
        """Have a model's records made; the table is made of them, and of what is still missing then."""
        demos = ["--demos", self._options.demos] if self._suite != "pairs" else []  # which has its own
        told = [*demos, "--conditions", self._options.conditions, *self._common()]
        words = [self._suite, "--model", str(folder / "model"), "--methods", *methods, *told]
        places = ["--out", str(folder / "eval" / self._suite), "--records", str(self._out / "records")]
        if self._run(["eval", *words, *places], folder.name, {}):
            self._console.print(f"{folder} could not be scored yet", style="yellow", soft_wrap=True)

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


def _borrows(row: Row) -> bool:
    """Whether a row differs from the first in transfer alone: its discovery would come to the same."""
    others = row.preset or any(word.startswith(("--discover.", "--data.")) for word in row.words)
    return row.training != OURS.training and not others


def _skills(out: Path, seed: int) -> Path | None:
    """Where the first row has discovered skills, if it has."""
    first = out / f"{OURS.training}-{seed}"
    try:
        done = json.loads((first / "discover/done.json").read_bytes())
        return first if whole(first / done["result"]["checkpoint"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _borrow_skills(folder: Path, seed: int, row: Row, out: Path) -> None:
    """Take over what the first row has discovered where that is the same."""
    first = _skills(out, seed)
    if first and _borrows(row) and not folder.exists():
        aside = folder.with_name(f".aside-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(first / "discover", aside / "discover")
        shutil.copy(first / "config.json", aside)
        aside.rename(folder)
