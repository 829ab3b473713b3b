"""Clips from the frame bank over the same clips decoded from mp4, at the same size, as training would ask for them.

`over_decoding` is how many times faster the bank is: a batch of clips at random places, from frames on disk, against
seeking and decoding them with PyAV. `first_batch_ms` is the time from opening a dataset whose bank is there to the
first such batch; `making_s` that of decoding it once. The videos show a moving pattern.
"""

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from harness import arguments, compare, report
from xskill.data.decode import bank_of
from xskill.data.lerobot import open_dataset
from xskill.data.lerobot_write import write_dataset
from xskill.data.recording import Pixels, Recording, Source
from xskill.data.video import stretch

FPS = 30.0


def pattern(length: int, seed: int, size: tuple[int, int]) -> list[Pixels]:
    """Frames of a pattern that wanders."""
    picture = np.random.default_rng(seed).integers(256, size=(size[0] // 8, size[1] // 8, 3), dtype=np.uint8)
    large = picture.repeat(8, 0).repeat(8, 1)
    return [np.roll(large, (frame, 2 * frame), (0, 1)) for frame in range(length)]


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--videos", type=int, default=20, help="videos in the dataset")
    parser.add_argument("--length", type=int, default=200, help="frames of each")
    parser.add_argument("--clips", type=int, default=64, help="clips in a batch")
    parser.add_argument("--clip", type=int, default=8, help="frames of a clip")
    parser.add_argument("--size", type=int, default=112, help="height and width")
    options = parser.parse_args()
    size = (options.size, options.size)
    random = np.random.default_rng(0)
    with TemporaryDirectory() as name:
        folder = Path(name)
        made = [Recording(str(n), {"side": partial(pattern, options.length, n)}) for n in range(options.videos)]
        write_dataset(folder / "videos", Source(made, FPS, {"side": size}, {}), "pattern")
        began = time.perf_counter()
        dataset = open_dataset(folder / "videos")
        bank = bank_of(dataset, "pattern", folder / "banks", {"side": "side"}, options.size)
        making = time.perf_counter() - began
        device = torch.device("cpu")
        store = bank.on(device, "side")

        def places() -> tuple[np.ndarray, np.ndarray]:
            return random.integers(options.videos, size=options.clips), random.integers(
                options.length - options.clip, size=options.clips
            )

        def looked_up() -> None:
            episodes, frames = places()
            index = (bank.episodes.starts[episodes] + frames)[:, None] + np.arange(options.clip)
            store[torch.from_numpy(index)]

        def decoded() -> None:
            for episode, frame in zip(*places(), strict=True):
                clip = dataset.clips["side"][episode]
                np.stack(list(stretch(clip.path, clip.start + frame / FPS, options.clip, FPS, size)))

        over_decoding = compare(decoded, looked_up, options.rounds)
        began = time.perf_counter()
        again = bank_of(open_dataset(folder / "videos"), "pattern", folder / "banks", {"side": "side"}, options.size)
        again.on(device, "side")[torch.arange(options.clips * options.clip) % again.episodes.frames]
        first = time.perf_counter() - began
        report(
            {"over_decoding": over_decoding}, options.json,
            first_batch_ms=round(1e3 * first, 2), making_s=round(making, 2), frames=bank.episodes.frames,
        )  # fmt: skip


if __name__ == "__main__":
    main()
