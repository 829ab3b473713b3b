"""One process or several: who does what, and how the global batch is shared out.

Start several with `torchrun --nproc-per-node N -m xskill train ...`; every process runs the same program.
"""

import os
from datetime import timedelta
from typing import Literal, get_args

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from torch import Tensor

from xskill.engine.config import Device, did_you_mean
from xskill.errors import ConfigError

PATIENCE = timedelta(hours=6)
"""How long processes wait for one another: the first one evaluates and saves alone."""


def chosen(device: Device) -> torch.device:
    """The device that is meant: `auto` takes a GPU when there is one. Raises `ConfigError` when it is not there."""
    if device not in get_args(Device):
        raise ConfigError(f"there is no device '{device}'{did_you_mean(str(device), get_args(Device))}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch sees no CUDA device here; use --device cpu or auto")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def processes(device: Device) -> PartialState:
    """This process's place among all of them, and its device."""
    chosen(device)
    if device == "cpu":
        os.environ["ACCELERATE_USE_CPU"] = "true"
    return PartialState(cpu=device == "cpu", timeout=PATIENCE)


def accelerator(device: Device, precision: Literal["fp32", "bf16"]) -> Accelerator:
    """A fresh accelerate front-end. Its precision is global state there, and may differ from phase to phase here."""
    AcceleratorState._reset_state()
    processes(device)
    return Accelerator(cpu=device == "cpu", mixed_precision="bf16" if precision == "bf16" else "no")


def share(batch: dict[str, Tensor], rank: int, world: int) -> dict[str, Tensor]:
    """The part of a global batch that one of `world` processes works on: (B, ...) -> (B / world, ...) each."""
    for name, tensor in batch.items():
        if len(tensor) % world:
            raise ConfigError(f"a batch of {len(tensor)} ('{name}') cannot be shared evenly by {world} processes")
    return {name: tensor.tensor_split(world)[rank] for name, tensor in batch.items()}


def wait_for_everyone() -> None:
    """Return once every process is here. (accelerate's own names a CUDA device even to processes on the CPU.)"""
    if _several():
        torch.distributed.barrier()


def agreed(value: int, device: torch.device) -> int:
    """The main process's value, on every process."""
    if not _several():
        return value
    message = torch.tensor([value], device=device)
    torch.distributed.broadcast(message, src=0)
    return int(message.item())


def _several() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
