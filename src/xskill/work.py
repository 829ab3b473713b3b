"""The work of a sweep: trainings, so many at once, each in a process of its own, and their scores."""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from xskill.engine.config import differences, from_json, to_json
from xskill.engine.folder import MANIFEST, content_of, fingerprint, read_manifest, to_bytes, whole, write_file
from xskill.engine.workers import PARENT, Places
from xskill.errors import ConfigError, Interrupted, RunError, XSkillError
from xskill.jobs import OWN, Job, Sweep, borrow_skills, can_lend, folder_of, lender_of, model_of, suite_of, take_model
from xskill.presets import PRESETS, Config
from xskill.rows import OURS, PLAIN, SWEEPS, Row

if TYPE_CHECKING:
    from xskill.evaluate.command import Evaluate


class Work:
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
        if model := self._options.model:
            (seed,) = self._options.seeds
            taken = Job(seed, OURS, folder_of(self._out, seed, OURS), {})
            self.check(taken)
            take_model(model.expanduser(), taken)
            write_file(taken.note, to_bytes(self._told(taken)))

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
                self._unless_stopping()
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

    def _unless_stopping(self) -> None:
        """Raises `Interrupted` where nothing more is to be started."""
        if self._stopping:
            raise Interrupted("interrupted; the same command goes on")

    def _words(self, job: Job) -> list[str]:
        """The words of a training, but for the demonstrations."""
        preset = job.row.preset or self._options.preset
        return [preset, "--seed", str(job.seed), *job.row.words, *shlex.split(self._options.train)]

    def _told(self, job: Job) -> dict[str, Any]:
        """All that decides what a training comes to."""
        words = self._words(job)
        told: dict[str, Any] = {"train": shlex.join(words), "preset": to_json(PRESETS[words[0]][1])}
        if self._model:  # which the plain training is, and all others go on from
            told |= {"model": self._model} | ({} if job.row.keeps_policy else {"train": "taken as it was trained"})
        return told if OWN in job.row.words else told | {"demos": self._demos}

    def check(self, job: Job) -> None:
        """Raises `ConfigError` for a training that was told otherwise before; where it is only looked at, says so."""
        lender = lender_of(job) if job.row.keeps_policy else None
        if lender:
            self.check(replace(job, row=OURS, folder=lender))
        if told := self._otherwise(job, lender):
            if not self._options.as_is:
                raise ConfigError(f"{told}; choose another --out")
            self._console.print(told, style="yellow", soft_wrap=True)

    def _otherwise(self, job: Job, lender: Path | None) -> str:
        """In what a training was told otherwise before, if in anything."""
        try:
            before = json.loads(job.note.read_bytes())
            before["preset"] = to_json(from_json(Config, before["preset"]))  # what is new since has its default
        except FileNotFoundError:
            return ""
        except (ValueError, KeyError, TypeError, ConfigError):
            raise ConfigError(f"{job.note} does not say how {job.folder} was trained; delete both") from None
        for name, (old, new) in differences(before, self._told(job)).items():
            return f"{job.folder} was trained with another {name}: `{old}`, now `{new}`"
        if lender and (job.model / MANIFEST).is_file():
            base = read_manifest(job.model).get("base", {}).get("key")
            if model_of(lender) not in ("", base):
                return f"{job.folder} has gone on from another model than the one in {lender}"
        return ""

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
        elif (lender := lender_of(job)) and job.row.keeps_policy and lender not in self._lenders:
            needed[lender] = f"'{job.row.name}'"
        for folder, what in needed.items():
            if not whole(folder / "model"):
                gone = (folder / "model" / MANIFEST).is_file()
                told = f"the weights of {folder} are gone" if gone else f"{folder} is not trained"
                again = f"delete {folder} and {folder}.json" if gone else f"add --rows '{OURS.name}'"
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
            tabulate(suite, scored, _as_evaluated(self._options), self._options.table(name), self._console)
        return bool(scored)

    def _trained(self, job: Job, place: int) -> bool:
        """Train a row, or go on with it, unless it is done."""
        options, lender = self._options, lender_of(job)
        if job.note.is_file() and whole(job.model):
            return True
        borrow_skills(job)
        begun = ["--resume"] if job.folder.exists() else []
        demos = [] if OWN in job.row.words else [OWN, options.demos]
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
                self._unless_stopping()
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
        self._unless_stopping()
        return code  # where somebody else has stopped it, the others go on


def _as_evaluated(options: Sweep) -> "Evaluate":
    """What a sweep's options say to an evaluation."""
    from xskill.evaluate.command import Evaluate

    return Evaluate(
        (), options.demos, options.conditions,
        records=options.out.expanduser() / "records",
        device=options.device, workers=options.workers, data_folder=options.data_folder,
    )  # fmt: skip


def _gpu(place: int, places: int) -> dict[str, str]:
    """What tells a process to use one of several GPUs, where several run at once."""
    if places == 1:
        return {}
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    return {"CUDA_VISIBLE_DEVICES": named[place % count]} if count > 1 else {}
