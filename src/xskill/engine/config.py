"""Configuration as frozen dataclasses: how a phase is trained, and how a config becomes JSON and comes back."""

import dataclasses
import difflib
import math
import os
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from xskill.errors import ConfigError

T = TypeVar("T")

Device = Literal["auto", "cpu", "cuda"]
Tracker = Literal["tensorboard", "wandb"]

DATA = Path(os.environ.get("XSKILL_DATA") or "data")
"""Where frames are kept, unless said otherwise."""
CORES = len(os.sched_getaffinity(0))
"""Cores this process may use."""


@dataclass(frozen=True)
class LoopConfig:
    """How the engine trains one phase."""

    steps: int = 1000
    """Optimizer updates in all."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of the network's forward pass; losses and weights stay fp32."""
    optimizer: Literal["adam", "adamw"] = "adamw"
    """Adam with L2 regularisation, or with decoupled weight decay."""
    learning_rate: float = 1e-4
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's two averaging factors."""
    weight_decay: float = 0.0
    """Strength of the weight decay."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after the warm-up: stays, or falls to zero along half a cosine."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises linearly from zero."""
    clip_norm: float = 0.0
    """Largest norm of the whole gradient; 0 leaves it as it is."""
    ema_decay: float = 0.0
    """Largest decay of the moving average of the weights, which is then what gets used; 0 keeps none."""
    ema_power: float = 0.75
    """After n updates the average decays with 1 - (1 + n)^-power, until `ema_decay` is reached."""
    compile: bool = False
    """Compile what the network spends its time in with torch.compile (pays back in long runs on a GPU)."""
    replay: bool = False
    """Record what a step does on the GPU and play it back, which spares small networks the wait for their launches. It
    needs one process and all frames on the GPU; elsewhere it changes nothing."""
    log_every: int = 10
    """Steps between two records in log.jsonl."""
    checkpoint_every: int = 500
    """Steps between two evaluations, each followed by a checkpoint; the last step always has both."""
    keep_last: int = 2
    """Newest checkpoints to keep; the best one is kept besides."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "weight_decay", "clip_norm", "ema_decay", "ema_power"):
            require(math.isfinite(getattr(self, name)), name, getattr(self, name), "a finite number")
        require(self.steps >= 1, "steps", self.steps, "at least 1")
        require(self.learning_rate > 0, "learning_rate", self.learning_rate, "above 0")
        require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "in [0, 1)")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "at least 0")
        require(self.warmup_steps >= 0, "warmup_steps", self.warmup_steps, "at least 0")
        require(self.clip_norm >= 0, "clip_norm", self.clip_norm, "at least 0")
        require(0 <= self.ema_decay < 1, "ema_decay", self.ema_decay, "in [0, 1)")
        require(self.ema_power > 0, "ema_power", self.ema_power, "above 0")
        require(self.log_every >= 1, "log_every", self.log_every, "at least 1")
        require(self.checkpoint_every >= 1, "checkpoint_every", self.checkpoint_every, "at least 1")
        require(self.keep_last >= 1, "keep_last", self.keep_last, "at least 1")


def require(holds: bool, name: str, value: object, expected: str) -> None:
    """Raise a `ConfigError` that names the field, its value and what it must be, unless `holds`."""
    if not holds:
        raise ConfigError(f"{name} is {value!r}; it must be {expected}")


def first_end(text: str, option: str, example: str) -> tuple[int | None, int | None]:
    """What `first:end` says; either may be left out. Raises `ConfigError` that names the option."""
    try:
        first, end = (int(part) if part else None for part in text.split(":"))
    except ValueError:
        raise ConfigError(f"{option} is '{text}'; it must be first:end, as in {example}") from None
    return first, end


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the known name nearest to `name`, or else the whole choice."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean '{near[0]}'?)" if near else f" (choose from {', '.join(known)})"


def to_json(config: object) -> dict[str, Any]:
    """A config dataclass as plain dictionaries, lists and values."""
    plain = _plain(config)
    assert isinstance(plain, dict)
    return plain


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def from_json(kind: type[T], values: object, where: str = "config") -> T:
    """The inverse of `to_json`. Missing fields keep their defaults; unknown names and wrong types raise ConfigError."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is {values!r}; expected an object with the fields of {kind.__name__}")
    hints = typing.get_type_hints(kind)
    for name in values:
        if name not in hints:
            raise ConfigError(f"{where} has no field '{name}'{did_you_mean(name, hints)}")
    fields = {name: _typed(hints[name], value, f"{where}.{name}") for name, value in values.items()}
    try:
        return kind(**fields)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def _typed(hint: Any, value: object, where: str) -> object:
    origin, choices = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type, hint), value, where)
    if origin is Literal:
        if value in choices:
            return value
        hint = f"one of {', '.join(map(repr, choices))}"
    elif origin in (typing.Union, types.UnionType):
        for choice in choices:
            try:
                return _typed(choice, value, where)
            except ConfigError:
                continue
    elif origin is tuple and isinstance(value, list):
        kinds = (choices[0],) * len(value) if choices[-1] is ... else choices
        if len(kinds) == len(value):
            return tuple(
                _typed(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
            )
    elif hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} is {value!r}; expected {getattr(hint, '__name__', hint)}")


def unset(means: str) -> Any:
    """For an option's annotation: what it means not to give it, as its help says."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {means})")


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (old, new) for every value of two JSON configs that is not the same."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found |= differences(before, after, f"{prefix}{name}.")
        elif before != after:
            found[prefix + name] = (before, after)
    return found
