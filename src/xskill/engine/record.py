"""What the main process keeps of a training: logs, progress, evaluations and checkpoints."""

import math
import platform
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console

import xskill
from xskill.engine.checkpoint import Checkpoints, Training
from xskill.engine.config import LoopConfig
from xskill.engine.folder import to_bytes, without_nan, write_file
from xskill.engine.log import Metrics, Progression, Tracker, open_logs
from xskill.engine.seeds import seed_everything
from xskill.errors import RunError, XSkillError

if TYPE_CHECKING:
    from xskill.engine.loop import Phase


class Recorder:
    """Evaluates, logs and saves after a step; the log is on disk before the checkpoint that it leads up to."""

    def __init__(
        self,
        phase: "Phase",
        training: Training,
        checkpoints: Checkpoints,
        config: LoopConfig,
        *,
        seed: int,
        folder: Path,
        start: int,
        trackers: tuple[Tracker, ...],
        console: Console,
        about: Mapping[str, Any],
    ) -> None:
        self._phase, self._training, self._checkpoints, self._config = phase, training, checkpoints, config
        self._seed, self._folder = seed, folder
        versions = {"xskill": xskill.__version__, "python": platform.python_version(), "torch": torch.__version__}
        self._about = {"versions": versions, **about}
        self._stack = ExitStack()
        self._logs = open_logs(folder, trackers, start)
        for log in self._logs:
            self._stack.callback(log.close)
        self._progress = Progression(phase.name, start, config.steps, console)

    def __enter__(self) -> "Recorder":
        self._stack.enter_context(self._progress)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def after(self, step: int, metrics: Metrics, *, stopping: bool) -> None:
        """Record `step`. Raises `RunError` when the disk refuses; the last checkpoint is whole then."""
        evaluated = step % self._config.checkpoint_every == 0 or step == self._config.steps
        self._progress.update(step, metrics)
        try:
            scores = self._evaluate(step) if evaluated else {}
            if evaluated or step % self._config.log_every == 0:
                for log in self._logs:
                    log.write(step, {**metrics, **scores})
            if evaluated or stopping:
                for log in self._logs:
                    log.sync()
                self._checkpoints.save(self._training, step, scores, self._about)
        except (OSError, XSkillError) as error:
            raise RunError(f"training ended at step {step}: {error}; {last_good(self._checkpoints)}; make room and use --resume") from error

    def _evaluate(self, step: int) -> dict[str, float]:
        seed_everything(self._seed, self._phase.name, step, "evaluate")
        network = self._training.used()
        network.eval()
        with torch.no_grad():
            scores = dict(self._phase.evaluate(network))
        network.train()
        return scores


def not_finite(phase: str, step: int, metrics: Metrics, ids: list[int], checkpoints: Checkpoints, folder: Path) -> RunError:
    """The error for a loss or gradient that is no number any more; `failure.json` gets all of it."""
    failure = {"phase": phase, "step": step, "metrics": without_nan(metrics), "batch_ids": ids}
    write_file(folder / "failure.json", to_bytes(failure))
    what = "gradient" if math.isfinite(metrics["loss"]) else "loss"
    shown = ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
    return RunError(
        f"the {what} of phase '{phase}' is not finite at step {step} (loss {metrics['loss']}, gradient norm "
        f"{metrics['gradient_norm']}, batch ids {shown}; all in {folder / 'failure.json'}); {last_good(checkpoints)}"
    )


def last_good(checkpoints: Checkpoints) -> str:
    """The newest whole checkpoint, in words."""
    newest, _ = checkpoints.newest_whole()
    return f"the last good checkpoint is {newest.path}" if newest else "there is no checkpoint yet"
