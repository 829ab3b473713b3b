"""Small banks of moving squares: each body is another colour, the same name is the same motion."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from xskill.data.episodes import Episodes
from xskill.data.frames import BankPlan, FrameBank, Making, make_bank
from xskill.discover.config import DiscoverConfig, EncoderConfig
from xskill.engine.config import LoopConfig

SIZE = 16
COLOURS = {"robot": (230, 230, 200), "person": (250, 250, 230), "red": (220, 30, 30)}
TINY = DiscoverConfig(
    clip_length=4, frames_per_video=12, videos=4, num_prototypes=8, positive_window=1, negative_window=3, negatives=4,
    encoder=EncoderConfig(channels=(8, 8, 8), width=32, layers=1, heads=2, feedforward=32),
    loop=LoopConfig(steps=3, checkpoint_every=3, learning_rate=1e-3),
)  # fmt: skip


def video(body: str, name: str, length: int) -> np.ndarray:
    """A square that goes to the three corners in an order that the name decides."""
    order = np.random.default_rng(sum(name.encode())).permutation(3)
    corners = np.array([(1, 1), (11, 1), (1, 11), (11, 11)])[[0, *(order + 1)]]
    frames = np.zeros((length, SIZE, SIZE, 3), np.uint8)
    for frame, share in enumerate(np.linspace(0, 3, length)):
        leg = min(int(share), 2)
        y, x = np.rint(corners[leg] + (share - leg) * (corners[leg + 1] - corners[leg])).astype(int)
        frames[frame, y : y + 4, x : x + 4] = COLOURS[body]
    return frames


def bank(folder: Path, body: str, lengths: Sequence[int] = (20, 26, 23, 30, 21, 24)) -> FrameBank:
    """Videos `a`, `b`, ... of one body, with the truth beside them: corner after corner."""
    names = tuple("abcdefghij"[: len(lengths)])

    def fill(making: Making, todo: Sequence[int]) -> Iterable[int]:
        for episode in todo:
            making.write(episode, "side", video(body, names[episode], lengths[episode]))
            yield episode

    made = make_bank(folder, BankPlan(Episodes(body, 10.0, names, np.array(lengths)), ("side",), SIZE, SIZE, {}), fill)
    truth = {}
    for name, length in zip(names, lengths, strict=True):
        order = np.random.default_rng(sum(name.encode())).permutation(3)
        ends = [round((length - 1) * (leg + 1) / 3) for leg in range(3)]
        truth[name] = [[f"corner {corner}", end] for corner, end in zip(order, ends, strict=True)]
    made.path.with_name(f"{made.path.name}.ground-truth.json").write_text(json.dumps(truth))
    return made
