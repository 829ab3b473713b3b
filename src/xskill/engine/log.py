"""What training tells the world: `log.jsonl` always, TensorBoard and Weights & Biases on request, a progress bar."""

import importlib.util
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from xskill.engine.config import Tracker
from xskill.engine.folder import refused, without_nan, write_file
from xskill.errors import ConfigError

Metrics = Mapping[str, float]


def plain_console(*, quiet: bool = False) -> Console:
    """Where commands print: what they say, as they say it, however wide the terminal is."""
    return Console(quiet=quiet, highlight=False, markup=False, soft_wrap=True)


class MetricLog(Protocol):
    """Where metrics go."""

    def write(self, step: int, metrics: Metrics) -> None: ...

    def sync(self) -> None:
        """Return once everything written so far would survive a crash."""

    def close(self) -> None: ...


class JsonLog:
    """One JSON object a line: step, time (seconds since 1970), metrics (null where not finite)."""

    def __init__(self, path: Path, resume_at: int) -> None:
        """Open `path`; records after step `resume_at`, and a line torn by a kill, are dropped first."""
        self._path = path
        with self._refusable():
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        write_file(path, b"".join(line for line in before if _step_of(line) <= resume_at))
        self._file = path.open("ab", buffering=0)

    def write(self, step: int, metrics: Metrics) -> None:
        record = {"step": step, "time": round(time.time(), 3), **without_nan(metrics)}
        with self._refusable():
            self._file.write(json.dumps(record).encode() + b"\n")

    def sync(self) -> None:
        with self._refusable():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refused(self._path, error) from error


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"]) if line.endswith(b"\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf


def check_trackers(trackers: Sequence[Tracker]) -> None:
    """Raise `ConfigError` for a tracker that is not installed, before anything has begun."""
    for name in trackers:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"logging to {name} needs it installed: pip install -e '.[{name}]'")


class TensorBoardLog:
    """Scalars for `tensorboard --logdir RUN`."""

    def __init__(self, folder: Path, resume_at: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=resume_at + 1)

    def write(self, step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def sync(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbLog:
    """A Weights & Biases run; set WANDB_MODE=offline to keep it on this machine."""

    def __init__(self, folder: Path, resume_at: int) -> None:
        import wandb

        identity = folder / "wandb-run-id"
        if not (resume_at and identity.exists()):
            write_file(identity, secrets.token_hex(8).encode())
        name = "/".join(folder.parts[-2:])
        self._run = wandb.init(project="xskill", name=name, dir=str(folder), id=identity.read_text(), resume="allow")

    def write(self, step: int, metrics: Metrics) -> None:
        self._run.log(dict(metrics), step=step)

    def sync(self) -> None:
        """Its own process saves what it is handed."""

    def close(self) -> None:
        self._run.finish()


def open_logs(folder: Path, trackers: Sequence[Tracker], resume_at: int) -> list[MetricLog]:
    """The logs of one phase, continued after step `resume_at`."""
    kinds: dict[Tracker, Callable[[Path, int], MetricLog]] = {"tensorboard": TensorBoardLog, "wandb": WandbLog}
    return [JsonLog(folder / "log.jsonl", resume_at), *(kinds[name](folder, resume_at) for name in trackers)]


class Progression:
    """A progress bar with rate, time left and losses; a plain line every ten seconds when not on a terminal."""

    def __init__(self, title: str, start: int, total: int, console: Console) -> None:
        self._title, self._total, self._console = title, total, console
        self._began, self._start, self._line_due = time.monotonic(), start, 0.0
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bar = Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal
        )
        self._task = self._bar.add_task(title, total=total, completed=start, note="")

    def __enter__(self) -> "Progression":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, step: int, metrics: Metrics) -> None:
        elapsed = max(time.monotonic() - self._began, 1e-9)
        rate = (step - self._start) / elapsed
        losses = "  ".join(
            f"{name} {value:.4g}" for name, value in metrics.items() if "loss" in name or "accuracy" in name
        )
        self._bar.update(self._task, completed=step, note=f"{rate:.1f} steps/s  {losses}")
        if not self._console.is_terminal and (elapsed >= self._line_due or step == self._total):
            self._line_due = elapsed + 10
            left = (self._total - step) / rate
            self._console.print(
                f"{self._title} {step}/{self._total}  {rate:.1f} steps/s  {left:.0f} s left  {losses}", highlight=False
            )


class Bars:
    """A progress bar for each of several things that are made; plain lines every ten seconds when not on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(console=console, disable=not console.is_terminal, transient=True)
        self._tasks: dict[str, TaskID] = {}
        self._line_due = time.monotonic() + 10

    def __enter__(self) -> "Bars":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, title: str, added: int, total: int) -> None:
        """`added` more of `total` of `title` are there."""
        if title not in self._tasks:
            self._tasks[title] = self._bar.add_task(title, total=total)
        self._bar.advance(self._tasks[title], added)
        if not self._console.is_terminal and time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + 10
            done = self._bar.tasks[self._tasks[title]].completed
            self._console.print(f"{title}: {done:.0f} of {total}")
