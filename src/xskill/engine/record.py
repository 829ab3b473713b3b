"""What the main process keeps of a training: logs, progress, evaluations and checkpoints."""

import math
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from torch import Tensor

from xskill.engine.checkpoint import Checkpoints, Training
from xskill.engine.config import LoopConfig, Tracker
from xskill.engine.folder import to_bytes, without_nan, write_file
from xskill.engine.log import Metrics, Progression, open_logs
from xskill.engine.seeds import seed_everything
from xskill.errors import CheckpointError, RunError
from xskill.version import versions

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
        self._about = {"versions": versions(), **about}
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

    def after(self, step: int, metrics: Metrics, ids: Tensor, *, stopping: bool) -> None:
        """Record `step`, whose global batch had these ids.

        Raises `RunError` when the disk refuses, or when a number that must be finite is not: nothing is saved then,
        and the last checkpoint is good.
        """
        evaluated = step % self._config.checkpoint_every == 0 or step == self._config.steps
        self._progress.update(step, metrics)
        scores = self._evaluate(step) if evaluated else {}
        # The weights were changed after the loss was computed: what they are worth, the evaluation tells.
        if not math.isfinite(scores.get(self._phase.monitor, 0.0)):
            raise self.not_finite(step, {**metrics, **scores}, ids)
        try:
            if evaluated or step % self._config.log_every == 0:
                for log in self._logs:
                    log.write(step, {**metrics, **scores})
            if evaluated or stopping:
                for log in self._logs:
                    log.sync()
                self._checkpoints.save(self._training, step, scores, self._about)
        except CheckpointError as error:
            raise RunError(f"training ended at step {step}: {error}; {self._last_good()}") from error

    def not_finite(self, step: int, metrics: Metrics, ids: Tensor) -> RunError:
        """The error for a loss or gradient that is no number any more; `failure.json` gets all of it."""
        monitor = self._phase.monitor
        scored = f", {monitor} {metrics[monitor]}" if monitor in metrics else ""
        shown = ", ".join(map(str, ids[:8].tolist())) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        path = self._folder / "failure.json"
        with suppress(CheckpointError):  # on a full disk the sentence below is still worth printing
            write_file(path, to_bytes({"step": step, "metrics": without_nan(metrics), "batch_ids": ids.tolist()}))
        return RunError(
            f"phase '{self._phase.name}' is not finite at step {step} (loss {metrics['loss']}, gradient norm "
            f"{metrics['gradient_norm']}{scored}, batch ids {shown}; more in {path}); {self._last_good()}; "
            "a smaller learning rate, in a new run, may help"
        )

    def _evaluate(self, step: int) -> dict[str, float]:
        seed_everything(self._seed, self._phase.name, step, "evaluate")
        network = self._training.used()
        network.eval()
        with torch.no_grad():
            scores = dict(self._phase.evaluate(network))
        network.train()
        return scores

    def _last_good(self) -> str:
        newest = self._checkpoints.newest()
        return f"the last good checkpoint is {newest.path}" if newest else "there is no checkpoint yet"
