"""Checkpoints of one phase: weights to use, apart from what training needs to go on, in safetensors and JSON.

step-00000500/
  manifest.json                  sha256 of every file, step, score, versions
  pretrained/model.safetensors   the weights to use: the moving average where there is one
  training/weights.safetensors   the weights under training, where they differ from those
  training/optimizer.safetensors
  training/state.json            step, the optimizer's numbers, updates in the moving average
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xskill.engine.average import MovingAverage
from xskill.engine.folder import check_folder, read_manifest, remove, to_bytes, without_nan, write_folder
from xskill.errors import CheckpointError

PRETRAINED = "pretrained/model.safetensors"
Better = Literal["min", "max", "newest"]
_WEIGHTS, _OPTIMIZER, _STATE = "training/weights.safetensors", "training/optimizer.safetensors", "training/state.json"


@dataclass(frozen=True)
class Training:
    """What changes while a phase is trained, and so what a checkpoint holds."""

    module: nn.Module
    optimizer: Optimizer
    averaged: MovingAverage | None

    def used(self) -> nn.Module:
        """The network to evaluate and to ship: the moving average where there is one."""
        return self.averaged.module if self.averaged is not None else self.module


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint. `metrics` is empty when the step was not evaluated (the user stopped there)."""

    path: Path
    step: int
    metrics: Mapping[str, float | None]

    @property
    def weights(self) -> Path:
        """The weights to use."""
        return self.path / PRETRAINED


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in `folder`: the newest `keep_last`, and the one whose `monitor` is the smallest or largest,
    where that decides."""

    folder: Path
    keep_last: int
    monitor: str
    better: Better

    def save(self, training: Training, step: int, metrics: Mapping[str, float], about: Mapping[str, Any]) -> None:
        """Write the checkpoint of `step`, then drop what need not be kept. Raises `CheckpointError` (disk full)."""
        path = self.folder / f"step-{step:08d}"
        write_folder(path, _files(training, step), {"step": step, "metrics": without_nan(metrics), **about})
        best = self.best()
        for checkpoint in self.listed()[: -self.keep_last]:
            if checkpoint != best:
                remove(checkpoint.path)

    def listed(self) -> list[Checkpoint]:
        """The checkpoints, oldest first, as their manifests tell; one without a sound manifest is none."""
        found = []
        for path in sorted(self.folder.glob("step-*")):
            with suppress(CheckpointError):
                manifest = read_manifest(path)
                found.append(Checkpoint(path, manifest["step"], manifest["metrics"]))
        return found

    def best(self) -> Checkpoint | None:
        """The checkpoint with the best `monitor`, the newer of two equals; the newest when none was evaluated."""
        found = self.listed()
        if self.better == "newest":
            return found[-1] if found else None
        sign = 1 if self.better == "max" else -1
        scored = [(sign * score, c.step, c) for c in found if (score := c.metrics.get(self.monitor)) is not None]
        return max(scored, key=lambda entry: entry[:2])[2] if scored else (found[-1] if found else None)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint in which every byte is as written."""
        for checkpoint in reversed(self.listed()):
            with suppress(CheckpointError):
                check_folder(checkpoint.path)
                return checkpoint
        return None

    def put_damaged_aside(self) -> list[str]:
        """Rename every damaged checkpoint, so that it no longer counts as one, and say what is wrong with each."""
        problems = []
        for path in sorted(self.folder.glob("step-*")):
            try:
                check_folder(path)
            except CheckpointError as error:
                problems.append(str(error))
                aside = path.with_name(f"damaged-{path.name}")
                remove(aside)
                path.rename(aside)
        return problems


def load_pretrained(path: Path, module: nn.Module) -> None:
    """Put the weights to use of the checkpoint at `path` into a network. Raises `CheckpointError`."""
    try:
        module.load_state_dict(safetensors.torch.load_file(path / PRETRAINED))
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} does not fit this network: {error}") from error


def restore(path: Path, training: Training) -> None:
    """Put the weights, moving average and optimizer of the checkpoint at `path` into `training`."""
    try:
        pretrained = safetensors.torch.load_file(path / PRETRAINED)
        state = json.loads((path / _STATE).read_bytes())
        if training.averaged is None:
            training.module.load_state_dict(pretrained)
        else:
            training.averaged.module.load_state_dict(pretrained)
            training.averaged.updates.fill_(state["averaged"])
            training.module.load_state_dict(safetensors.torch.load_file(path / _WEIGHTS))
        training.optimizer.load_state_dict(_optimizer_state(path / _OPTIMIZER, training.optimizer))
    except (OSError, LookupError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"{path} does not fit this network: {error}") from error


def _files(training: Training, step: int) -> Iterator[tuple[str, bytes]]:
    yield PRETRAINED, _packed(training.used().state_dict())
    if training.averaged is not None:
        yield _WEIGHTS, _packed(training.module.state_dict())
    state = training.optimizer.state_dict()["state"]
    yield (
        _OPTIMIZER,
        _packed({f"{index}.{name}": tensor for index, tensors in state.items() for name, tensor in tensors.items()}),
    )
    updates = int(training.averaged.updates) if training.averaged is not None else 0
    yield _STATE, to_bytes({"step": step, "averaged": updates})


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    # A copy each: safetensors refuses tensors that share memory, such as tied weights.
    return safetensors.torch.save(
        {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    )


def _optimizer_state(path: Path, optimizer: Optimizer) -> dict[str, Any]:
    """The saved averages with the optimizer's own options, which follow from the config and the device."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for key, tensor in safetensors.torch.load_file(path).items():
        index, name = key.split(".", 1)
        like = parameters[int(index)]
        if tensor.shape == like.shape:  # laid out as the weights are, or else a fused optimizer refuses it
            tensor = torch.empty_like(like, dtype=tensor.dtype, device="cpu").copy_(tensor)
        state.setdefault(int(index), {})[name] = tensor
    return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
