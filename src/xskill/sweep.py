"""`xskill sweep`: all that tables need, trained and scored; what is there is not done again."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from xskill.engine.config import CORES, DATA, Device, did_you_mean, differences, from_json, to_json, unset
from xskill.engine.folder import (
    MANIFEST,
    check_folder,
    content_of,
    fingerprint,
    make_folder,
    read_manifest,
    to_bytes,
    whole,
    write_file,
)
from xskill.engine.log import plain_console
from xskill.engine.run import held
from xskill.engine.signals import leaving_at_once
from xskill.engine.workers import PARENT, Places
from xskill.errors import ConfigError, Interrupted, RunError, XSkillError
from xskill.evaluate import SUITES
from xskill.jobs import Job, borrow_skills, can_lend, folder_of, jobs_of, lender_of, suite_of
from xskill.presets import PRESETS, Config
from xskill.rows import OURS, PLAIN, SWEEPS, Row
from xskill.version import exact_version

if TYPE_CHECKING:
    from xskill.evaluate.command import Evaluate


_OWN = "--data.demos"
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


def sweep(names: Sequence[str], options: Sweep) -> None:
    """Do what the options say for the tables of these names."""
    if options.preset not in PRESETS:
        raise ConfigError(f"there is no preset '{options.preset}'{did_you_mean(options.preset, PRESETS)}")
    if not options.seeds or len(set(options.seeds)) < len(options.seeds):
        raise ConfigError(f"--seeds are {list(options.seeds)}; name one or more, each once")
    if options.suite and options.suite not in SUITES:
        raise ConfigError(f"there is no suite '{options.suite}'{did_you_mean(options.suite, SUITES)}")
    if options.model and len(options.seeds) > 1:
        raise ConfigError(f"--model is one training; leave --seeds {' '.join(map(str, options.seeds))} out")
    if options.at_once < 1:
        raise ConfigError(f"--at-once is {options.at_once}; expected at least 1")
    try:
        more = shlex.split(options.train)
    except ValueError as error:
        raise ConfigError(f"--train is {options.train!r}: {error}") from None
    if any(word.split("=")[0] == _OWN for word in more):
        raise ConfigError(f"--demos names the demonstrations of a sweep; leave {_OWN} out of --train")
    with leaving_at_once():
        from xskill.evaluate.command import conditions_of

    conditions_of(options.conditions)
    exact_version()  # of what is run, not of what is there when it ends
    out, tables = options.out.expanduser(), _tables(names, options)
    jobs, work = jobs_of(tables, options.seeds, out, options.suite), _Work(options, plain_console(), out)
    with ExitStack() as stack:
        if not options.as_is:
            make_folder(out)
            stack.enter_context(held(out))
            work.take_model()
        for job in jobs:
            work.check(job)
        left = [job for job in (replace(job, methods=work.missing(job)) for job in jobs) if job.methods]
        if not options.as_is:
            work.do(left)
        unknown = {(job.folder, s, m) for job in left for s, some in work.missing(job).items() for m in some}
        empty = [name for name, rows in tables.items() if not work.tabulate(name, rows, unknown)]
    if options.as_is:
        work.left_out(unknown)
        if empty:
            raise RunError(f"nothing of {' and '.join(empty)} has been scored in {out}")
    elif unknown:
        folders = sorted({str(folder) for folder, *_ in unknown})
        raise RunError(f"{len(folders)} could not be trained or scored, their rows are missing: {', '.join(folders)}")


def _tables(names: Sequence[str], options: Sweep) -> dict[str, list[Row]]:
    """The rows of each table that are wanted."""
    wanted = set(options.rows)
    known = {row.name: row for name in names for row in SWEEPS[name][1]}
    if unknown := wanted - known.keys():
        choice = ", ".join(f"'{name}'" for name in known)
        raise ConfigError(f"{' and '.join(names)} has no row '{min(unknown)}' (choose from {choice})")
    return {
        name: [
            row.resolved(options.preset)
            for row in SWEEPS[name][1]
            if (not wanted or row.name in wanted) and _can_be_read(row, options)
        ]
        for name in names
    }


def _can_be_read(row: Row, options: Sweep) -> bool:
    """Whether a row's plans can be read as it says: a transformer has no place that it could be told."""
    kind, words = PRESETS[row.preset or options.preset][1].transfer.aligner.kind, shlex.join(row.words)
    told = f"{words} {options.train}".replace("=", " ").split("--transfer.aligner.kind ")[1:]
    return row.method != "told" or (told[-1].split()[0] if told else kind) == "tracker"


def _as_evaluated(options: Sweep) -> "Evaluate":
    """What a sweep's options say to an evaluation."""
    from xskill.evaluate.command import Evaluate

    return Evaluate(
        (), options.demos, options.conditions,
        records=options.out.expanduser() / "records",
        device=options.device, workers=options.workers, data_folder=options.data_folder,
    )  # fmt: skip


class _Work:
    """Trainings, so many at once, and the scoring of each that is done, while others train."""

    def __init__(self, options: Sweep, console: Console, out: Path) -> None:
        self._options, self._console, self._out = options, console, out
        self._demos = content_of(options.demos)
        self._model = fingerprint(read_manifest(options.model.expanduser())) if options.model else ""
        self._running: list[subprocess.Popen[bytes]] = []
        self._scoring = threading.Semaphore(2)  # while one evaluation starts, another keeps all cores busy
        self._starting, self._stopping = threading.Lock(), False
        self._lenders: dict[Path, threading.Event] = {}
        self._places = Places(options.at_once)

    def take_model(self) -> None:
        """Have the model that the options name where the plain training would leave its own."""
        (seed, *_), model = self._options.seeds, self._options.model
        taken = Job(seed, OURS, folder_of(self._out, seed, OURS), {})
        if model and not (taken.note.exists() or taken.folder.exists()):
            check_folder(model.expanduser())
            aside = self._out / f".aside-{taken.folder.name}"
            shutil.rmtree(aside, ignore_errors=True)
            shutil.copytree(model.expanduser(), aside / "model")
            aside.rename(taken.folder)
            write_file(taken.note, to_bytes(self._told(taken)))
        elif model:
            self.check(taken)

    def do(self, jobs: Sequence[Job]) -> None:
        """Train, and score what could be trained."""
        self._lenders = {job.folder: threading.Event() for job in jobs if job.row.training in PLAIN.values()}
        for job in jobs:
            self._check_weights(job)
        with ThreadPoolExecutor(max(1, len(jobs))) as pool:
            try:
                for _ in pool.map(self._one, range(len(jobs)), jobs):
                    pass
            except KeyboardInterrupt:
                raise Interrupted("interrupted; the same command goes on") from None
            finally:
                with self._starting:
                    self._stopping = True
                    for process in self._running:
                        process.terminate()  # it ends with a checkpoint

    def _one(self, turn: int, job: Job) -> None:
        alone = self._options.at_once == 1
        lender = lender_of(job)
        if lender in self._lenders:
            while not can_lend(lender, job) and not self._lenders[lender].wait(1):
                pass
        with self._places.taken(turn) as place:
            try:
                well = self._trained(job, place)
            finally:
                if job.folder in self._lenders:
                    self._lenders[job.folder].set()
            if well:
                write_file(job.note, to_bytes(self._told(job)))
            if well and alone:
                self._score(job)
        if well and not alone:
            with self._scoring:
                self._score(job)

    def _is_taken(self, job: Job) -> bool:
        """Whether a training is the model that the options name."""
        return bool(self._model) and job.row.training == OURS.training

    def _words(self, job: Job) -> list[str]:
        """The words of a training, but for the demonstrations."""
        preset = job.row.preset or self._options.preset
        return [preset, "--seed", str(job.seed), *job.row.words, *shlex.split(self._options.train)]

    def _told(self, job: Job) -> dict[str, Any]:
        """All that decides what a training comes to."""
        words = self._words(job)
        told: dict[str, Any] = {"train": shlex.join(words), "preset": to_json(PRESETS[words[0]][1])}
        if self._is_taken(job):
            return told | {"train": "taken as it was trained", "model": self._model}
        if job.row.keeps_policy and self._model:
            told |= {"model": self._model}
        return told if _OWN in job.row.words else told | {"demos": self._demos}

    def check(self, job: Job) -> None:
        """Raises `ConfigError` for a training that was told otherwise before; where it is only looked at, says so."""
        now = self._told(job)
        try:
            before = json.loads(job.note.read_bytes())
            before["preset"] = to_json(from_json(Config, before["preset"]))  # what is new since has its default
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, ConfigError):
            raise ConfigError(f"{job.note} does not say how {job.folder} was trained; delete both") from None
        for name, (old, new) in differences(before, now).items():
            told = f"{job.folder} was trained with another {name}: `{old}`, now `{new}`"
            if not self._options.as_is:
                raise ConfigError(f"{told}; choose another --out")
            self._console.print(told, style="yellow", soft_wrap=True)
            return

    def missing(self, job: Job) -> dict[str, list[str]]:
        """Suite -> methods by which a training has not been scored there."""
        from xskill.evaluate.command import unscored

        if not job.note.is_file() or not (job.model / MANIFEST).is_file():
            return {suite: list(methods) for suite, methods in job.methods.items()}
        left = {}
        for suite, methods in job.methods.items():
            try:
                left[suite] = unscored(suite, job.model, methods, _as_evaluated(self._options))
            except XSkillError as error:
                self._console.print(f"{job.folder}, {suite}: {error}", style="yellow", soft_wrap=True)
                left[suite] = list(methods)
        return {suite: methods for suite, methods in left.items() if methods}

    def _check_weights(self, job: Job) -> None:
        """Raises `RunError` where a training is to be scored, or gone on from, whose weights are gone."""
        needed: dict[Path, str] = {}
        if job.note.is_file() and (job.model / MANIFEST).is_file():
            needed[job.folder] = " and ".join(job.methods)
        lender = lender_of(job)
        if lender and job.row.keeps_policy and lender not in self._lenders:
            needed[lender] = f"'{job.row.name}'"
        for folder, what in needed.items():
            if not whole(folder / "model"):
                told = f"the weights of {folder} are gone" if folder.exists() else f"{folder} is not trained"
                again = f"delete {folder} and {folder}.json" if folder.exists() else f"add --rows '{OURS.name}'"
                raise RunError(f"{told}, and {what} needs them; to train it, {again}")

    def left_out(self, unknown: Collection[tuple[Path, str, str]]) -> None:
        """Say what has not been scored."""
        if names := sorted({f"{folder.name} ({suite})" for folder, suite, _ in unknown}):
            self._console.print(f"not scored, and left out: {', '.join(names)}", style="yellow", soft_wrap=True)

    def tabulate(self, name: str, rows: Sequence[Row], unknown: Collection[tuple[Path, str, str]]) -> bool:
        """Write and print a table of what has been scored; whether anything has."""
        from xskill.evaluate.command import tabulate

        suite, scored = self._options.suite or suite_of(name), {}
        for row in rows:
            folders = (folder_of(self._out, seed, row) for seed in self._options.seeds)
            if models := [folder / "model" for folder in folders if (folder, suite, row.method) not in unknown]:
                scored[row.name] = (row.method, models)
        if scored:
            self._console.print(f"\n{name}: {SWEEPS[name][0]}")
            out = self._out / (f"{name}-{suite}" if self._options.suite else name)
            tabulate(suite, scored, _as_evaluated(self._options), out, self._console)
        return bool(scored)

    def _trained(self, job: Job, place: int) -> bool:
        """Train a row, or go on with it; a finished one is only looked at."""
        options, lender = self._options, lender_of(job)
        if self._is_taken(job):
            return True
        borrow_skills(job)
        begun = ["--resume"] if job.folder.exists() else []
        demos = [] if _OWN in job.row.words else [_OWN, options.demos]
        base = ["--base", str(lender / "model")] if lender and job.row.keeps_policy else []
        words = [*self._words(job), *demos, *base, "--out", str(job.folder), *self._common(), *begun]
        self._console.print(f"{job}: xskill train {shlex.join(words)}")
        code = self._run(["train", *words], job.folder.name, _gpu(place, options.at_once))
        if options.at_once > 1:
            self._console.print(f"{job}: {'trained' if code == 0 else f'failed, see {job.folder}.log'}", soft_wrap=True)
        return code == 0

    def _score(self, job: Job) -> None:
        """Have a model's records made, of which tables are made."""
        for suite, methods in job.methods.items():
            demos = ["--demos", self._options.demos] if suite != "pairs" else []  # which has its own
            told = [*demos, "--conditions", self._options.conditions, *self._common()]
            words = [suite, "--model", str(job.model), "--methods", *methods, *told]
            places = ["--out", str(job.folder / "eval" / suite), "--records", str(self._out / "records")]
            if self._run(["eval", *words, *places], job.folder.name, {}):
                self._console.print(f"{job.folder} could not be scored on {suite} yet", style="yellow", soft_wrap=True)

    def _common(self) -> list[str]:
        options = self._options
        where = ["--device", options.device, "--workers", str(options.workers)]
        return [*where, "--data-folder", str(options.data_folder)]

    def _run(self, words: Sequence[str], name: str, more: Mapping[str, str]) -> int:
        """An xskill command, as a process of its own, with its log where several run at once."""
        with ExitStack() as stack:
            log = None
            if self._options.at_once > 1:
                log = stack.enter_context((self._out / f"{name}.log").open("ab"))
            with self._starting:  # whoever stops everything knows of this one, or it is not started
                if self._stopping:
                    raise Interrupted("interrupted; the same command goes on")
                # Ctrl-C reaches the sweep alone, which passes it on once: a second one would cost the checkpoint.
                process = subprocess.Popen(
                    [sys.executable, "-m", "xskill", *words],
                    stdout=log, stderr=log, env=os.environ | more | {PARENT: str(os.getpid())},
                    start_new_session=True,
                )  # fmt: skip
                self._running.append(process)
            code = process.wait()
            with self._starting:
                self._running.remove(process)
        if self._stopping:
            raise Interrupted("interrupted; the same command goes on")
        return code  # where somebody else has stopped it, the others go on


def _gpu(place: int, places: int) -> dict[str, str]:
    """What tells a process to use one of several GPUs, where several run at once."""
    if places == 1:
        return {}
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    return {"CUDA_VISIBLE_DEVICES": named[place % count]} if count > 1 else {}
