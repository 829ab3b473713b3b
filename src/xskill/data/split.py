"""What is learned from: banks of every embodiment's videos, and which of them train, are held out, or are prompts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xskill.data.episodes import Ints
from xskill.data.frames import FrameBank
from xskill.engine.seeds import seed_of


@dataclass(frozen=True)
class Split:
    """Names of demonstrations by what they are for."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    """Like those that train; discovery is measured on them."""
    prompts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Names this split: another when a single demonstration changes sides."""
        parts = [self.train, self.held_out, self.prompts]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def with_(self, other: "Split") -> "Split":
        """Both together: of demonstrations that only some bodies repeat."""
        return Split(self.train + other.train, self.held_out + other.held_out, self.prompts + other.prompts)

    def of(self, bank: FrameBank, names: Sequence[str]) -> Ints:
        """The episodes of a bank with these names; what a body could not repeat is not among them."""
        wanted = set(names)
        return np.array([i for i, name in enumerate(bank.episodes.names) if name in wanted], np.int64)


def to_watch(split: Split, bank: FrameBank) -> Ints:
    """The episodes of a bank that skills are discovered in: all that train but those in which something is undone.

    Nobody else shows that, and skills that one body has alone would pull the bodies apart.
    """
    begins = bank.episodes.begins
    return np.array([episode for episode in split.of(bank, split.train) if not begins[episode]], np.int64)


def drawn(names: Sequence[str], count: int) -> set[str]:
    """Those to be held out: whose names draw the smallest numbers, so the same ones whatever else is there."""
    return set(sorted(names, key=lambda name: seed_of("held out", name))[:count])


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Banks of the robot and the demonstrators, in the order of the config, and what their episodes are for."""

    banks: tuple[FrameBank, ...]
    split: Split
