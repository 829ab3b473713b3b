"""What the main process keeps of a training: logs, progress, evaluations and checkpoints."""

import platform
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor

import xskill
from xskill.engine.checkpoint import Checkpoints, Training
from xskill.engine.config import LoopConfig, Tracker
from xskill.engine.folder import to_bytes, without_nan, write_file
from xskill.engine.log import Metrics, Progression, open_logs
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
        scores = self._evaluate(step) if evaluated else {}
        try:
            if evaluated or step % self._config.log_every == 0:
                for log in self._logs:
                    log.write(step, {**metrics, **scores})
            if evaluated or stopping:
                for log in self._logs:
                    log.sync()
                self._checkpoints.save(self._training, step, scores, self._about)
        except (OSError, XSkillError) as error:
            raise RunError(
                f"training ended at step {step}: {error}; {last_good(self._checkpoints)}; make room and use --resume"
            ) from error

    def not_finite(self, step: int, metrics: Metrics, ids: Tensor) -> RunError:
        """The error for a loss or gradient that is no number any more; `failure.json` gets all of it."""
        shown = ", ".join(map(str, ids[:8].tolist())) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        path = self._folder / "failure.json"
        write_file(path, to_bytes({"step": step, "metrics": without_nan(metrics), "batch_ids": ids.tolist()}))
        return RunError(
            f"the loss of phase '{self._phase.name}' is not finite at step {step} (loss {metrics['loss']}, gradient "
            f"norm {metrics['gradient_norm']}, batch ids {shown}; more in {path}); {last_good(self._checkpoints)}"
        )

    def _evaluate(self, step: int) -> dict[str, float]:
        seed_everything(self._seed, self._phase.name, step, "evaluate")
        network = self._training.used()
        network.eval()
        with torch.no_grad():
            scores = dict(self._phase.evaluate(network))
        network.train()
        return scores


def last_good(checkpoints: Checkpoints) -> str:
    """The newest whole checkpoint, in words."""
    newest, _ = checkpoints.newest_whole()
    return f"the last good checkpoint is {newest.path}" if newest else "there is no checkpoint yet"
