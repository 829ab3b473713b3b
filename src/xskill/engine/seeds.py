"""Randomness as a function of a key, so that a resumed run draws what the uninterrupted one would have drawn."""

import hashlib
import json
import random
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def seed_of(*key: int | str) -> int:
    """A 63-bit seed that is a pure function of the key, on every machine."""
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def numpy_generator(*key: int | str) -> np.random.Generator:
    """A new NumPy generator seeded by the key."""
    return np.random.default_rng(seed_of(*key))


def generator(*key: int | str) -> "torch.Generator":
    """A new CPU generator seeded by the key. CPU, so that every device and every process draws the same."""
    import torch  # here, so that who only simulates need not wait for it

    return torch.Generator().manual_seed(seed_of(*key))


def seed_everything(*key: int | str) -> None:
    """Seed the global generators (Python, NumPy, torch on every device) by the key."""
    import torch

    seed = seed_of(*key)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # Not torch.manual_seed: it also queues a call, with its stack trace, for every kind of device that is not there.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    elif torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)
