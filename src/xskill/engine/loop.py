"""The training loop. A phase brings a network, its batches and its loss; the loop knows nothing of skills.

What a step trains on is a pure function of (seed, step), and so is the state of every random generator during it.
A resumed run therefore equals one that never stopped, and a batch does not depend on the number of processes.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from accelerate import Accelerator
from rich.console import Console
from torch import Tensor, nn
from torch.optim import Optimizer

from xskill.engine.average import MovingAverage
from xskill.engine.checkpoint import Better, Checkpoint, Checkpoints, Training, restore
from xskill.engine.config import Device, LoopConfig, Tracker
from xskill.engine.distributed import accelerator, agreed, share, wait_for_everyone
from xskill.engine.folder import sweep
from xskill.engine.record import Recorder
from xskill.engine.replay import Replay
from xskill.engine.seeds import generator, seed_everything
from xskill.errors import Interrupted, RunError

THREADS = 4
"""CPU threads of a process that trains on a GPU."""

Batch = dict[str, Tensor]
Hot = tuple[object, str]
"""An object and the name of one of its methods that much of a step's time goes to."""


@dataclass(frozen=True)
class Step:
    """One step of one training, counted from 0: the only thing a batch may depend on."""

    seed: int
    phase: str
    index: int

    def generator(self, stream: str) -> torch.Generator:
        """An independent CPU generator for each named stream of this step."""
        return generator(self.seed, self.phase, self.index, stream)


class Phase(Protocol):
    """What a training phase supplies."""

    name: str
    """Names its folder and its random streams."""
    module: nn.Module
    """The network; its state dict is what is saved."""
    hot: Sequence[Hot]
    """What is worth compiling."""
    monitor: str
    """The metric of `evaluate` that is always finite, and chooses the best checkpoint."""
    better: Better
    """Whether a small or a large `monitor` is good; or that the newest checkpoint is, whatever it says."""

    settled: int | None
    """Step from which on each does the same, all of it on the device; None where none does."""

    def batch(self, step: Step) -> Batch:
        """The global batch of a step, on the CPU: `ids` (B,) and whatever is drawn at random, each (B, ...)."""

    def loss(self, module: nn.Module, batch: Batch, step: Step) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The mean loss over this process's share of the batch, and metrics (0-d tensors), on the device.

        Call `module`, not `self.module`: it is the same network in the loop's precision and among its processes.
        """

    def updated(self) -> None:
        """Called after each update of `self.module`'s weights, in every process: the place to constrain them."""

    def evaluate(self, module: nn.Module) -> Mapping[str, float]:
        """Metrics on held-out data, `monitor` among them; the network is in evaluation mode, without gradients."""


def train(
    phase: Phase,
    config: LoopConfig,
    *,
    seed: int,
    folder: Path,
    device: Device = "auto",
    trackers: tuple[Tracker, ...] = (),
    stop: Callable[[], bool] = lambda: False,
    console: Console,
) -> Checkpoint:
    """Train `phase` in `folder`, from its newest whole checkpoint if there is one, and return its best checkpoint.

    After each step `stop` is asked whether the user wants to end: then a checkpoint is written and `Interrupted`
    raised. Raises `RunError` when the loss is not finite or the disk is full.
    """
    acc = accelerator(device, config.precision)
    if acc.device.type == "cuda":  # what is left to the CPU is small; waiting threads slow other trainings down
        torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    phase.module.to(acc.device)
    averaged = None
    if config.ema_decay:
        averaged = MovingAverage(phase.module, config.ema_decay, config.ema_power)  # before accelerate changes forward
        acc.prepare_model(averaged.module, evaluation_mode=True)
    module = acc.prepare_model(phase.module)
    if config.compile:
        compile_all(phase.hot)
    optimizer = _optimizer(phase.module, config, acc.device)
    training = Training(phase.module, optimizer, averaged)
    checkpoints = Checkpoints(folder / "checkpoints", config.keep_last, phase.monitor, phase.better)
    start = _resume(training, checkpoints, acc, console)

    replay: Replay | None = None
    alone = acc.device.type == "cuda" and acc.num_processes == 1
    settled = phase.settled if config.replay and alone else None

    def work(batch: Batch, step: Step) -> dict[str, Tensor]:
        """All that a step does on the device."""
        loss, metrics = phase.loss(module, batch, step)
        optimizer.zero_grad()
        acc.backward(loss)
        norm = acc.clip_grad_norm_(phase.module.parameters(), config.clip_norm or math.inf)
        assert norm is not None
        optimizer.step()
        phase.updated()
        if averaged is not None:
            averaged.update(phase.module)
        # Nothing may hold on to the step's graph: it would fill the memory during the next one, and tie what is
        # recorded there to the stream that this one ran on.
        return {"loss": loss.detach(), "gradient_norm": norm} | {n: value.detach() for n, value in metrics.items()}

    def drawn(index: int) -> tuple[Batch, Batch]:
        whole = phase.batch(Step(seed, phase.name, index))
        mine = share(whole, acc.process_index, acc.num_processes)
        return whole, {name: tensor.to(acc.device, non_blocking=True) for name, tensor in mine.items()}

    with ExitStack() as stack:
        record = None
        if acc.is_main_process:
            about = {"device": acc.device.type, "processes": acc.num_processes}
            record = Recorder(
                phase, training, checkpoints, config,
                seed=seed, folder=folder, start=start, trackers=trackers, console=console, about=about,
            )  # fmt: skip
            stack.enter_context(record)
        module.train()
        upcoming = drawn(start) if start < config.steps else None
        for index in range(start, config.steps):
            assert upcoming is not None
            whole, batch = upcoming
            done = index + 1
            seed_everything(seed, phase.name, index, acc.process_index)
            rate = learning_rate(config, index)
            for group in optimizer.param_groups:
                group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
            step = Step(seed, phase.name, index)
            if settled is not None and index >= settled:
                replay = replay or Replay(functools.partial(work, step=step))
                metrics = replay(batch)
            else:
                metrics = work(batch, step)
            upcoming = drawn(done) if done < config.steps else None  # while the device is still at work
            values, stopping = _reduced(acc, metrics, stop())
            if not (math.isfinite(values["loss"]) and math.isfinite(values["gradient_norm"])):
                raise (
                    record.not_finite(done, values, whole["ids"]) if record else RunError(f"not finite at step {done}")
                )
            if record is not None:
                record.after(done, {"learning_rate": rate, **values}, whole["ids"], stopping=stopping)
            if stopping or done % config.checkpoint_every == 0 or done == config.steps:
                wait_for_everyone()
            if stopping:
                raise Interrupted(f"stopped after step {done} of {config.steps} of phase '{phase.name}'")
    best = checkpoints.best()
    assert best is not None
    return best


def compile_all(hot: Sequence[Hot]) -> None:
    """Compile methods, each anew for every shape it meets. Whoever wants a copy of a network makes it before.

    (A compiled method belongs to the object it was taken from, and so it does in a copy.)
    """
    for owner, name in hot:
        setattr(owner, name, torch.compile(getattr(owner, name), dynamic=False))


def learning_rate(config: LoopConfig, index: int) -> float:
    """The learning rate of the step `index`, counted from 0: no state, so nothing to save."""
    if index < config.warmup_steps:
        return config.learning_rate * (index + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (index - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


def _optimizer(module: nn.Module, config: LoopConfig, device: torch.device) -> Optimizer:
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    fused = device.type == "cuda"
    recorded = fused and config.replay
    rate = torch.tensor(config.learning_rate, device=device) if recorded else config.learning_rate
    return kind(
        parameters, lr=rate, betas=config.betas, weight_decay=config.weight_decay, fused=fused, capturable=recorded
    )


def _resume(training: Training, checkpoints: Checkpoints, acc: Accelerator, console: Console) -> int:
    """Restore the newest whole checkpoint, the main process choosing, and return its step (0 when there is none)."""
    step = 0
    if acc.is_main_process:
        sweep(checkpoints.folder)
        for problem in checkpoints.put_damaged_aside():
            console.print(f"passed over a damaged checkpoint: {problem}", style="yellow")
        newest = checkpoints.newest()
        if newest is not None:
            step = newest.step
            console.print(f"going on from {newest.path}")
    step = agreed(step, acc.device)
    if step:
        restore(checkpoints.folder / f"step-{step:08d}", training)
    return step


def _reduced(acc: Accelerator, metrics: Mapping[str, Tensor], stop: bool) -> tuple[dict[str, float], bool]:
    """Means over all processes, and whether any was asked to stop: one reduction, one wait for the device."""
    flag = torch.tensor(float(stop), device=acc.device)
    values = acc.reduce(torch.stack([flag, *(metric.float() for metric in metrics.values())]), "mean").tolist()
    return dict(zip(metrics, values[1:], strict=True)), values[0] > 0
