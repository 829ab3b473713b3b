"""A whole discovery step, batched, over a plain loop over clips: one augmentation and one loss call for each clip.

`clips_per_s` are clips of the batched step, each in two views, forward and backward. `step_ms` is one such step; of it
`augment_ms` is the augmentation. The frames are noise: nothing here depends on what they show.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from harness import arguments, compare, report
from xskill.data.episodes import Episodes
from xskill.data.frames import BankPlan, FrameBank, FrameStore, Making, make_bank
from xskill.discover.augment import Views, augment, draw_views
from xskill.discover.config import DiscoverConfig
from xskill.discover.encoder import SkillModel
from xskill.discover.losses import swapped_prediction
from xskill.discover.train import DiscoverPhase, Footage
from xskill.engine.distributed import accelerator
from xskill.engine.loop import Step, compile_all
from xskill.presets import PRESETS


def noise(folder: Path, body: str, videos: int, length: int, size: int) -> FrameBank:
    """A bank of random frames."""
    random = np.random.default_rng(0)

    def fill(making: Making, todo: Sequence[int]) -> Iterable[int]:
        for episode in todo:
            making.write(episode, "side", random.integers(256, size=(length, size, size, 3), dtype=np.uint8))
            yield episode

    episodes = Episodes(body, 12.5, tuple(map(str, range(videos))), np.full(videos, length))
    return make_bank(folder, BankPlan(episodes, ("side",), size, size, {"made_by": "benchmark"}), fill)


def finished(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--preset", default="paper-kitchen", help="whose sizes")
    parser.add_argument("--videos", type=int, default=16, help="videos in a batched step, of one embodiment")
    parser.add_argument("--loop-videos", type=int, default=1, help="videos that both go through when compared")
    parser.add_argument("--compile", action="store_true", help="compile the network")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    preset = PRESETS[options.preset][1]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    with TemporaryDirectory() as folder:
        bank = noise(Path(folder), "noise", options.videos + 1, preset.discover.frames_per_video, preset.data.size)
        everything = np.arange(options.videos)

        def step_of(videos: int) -> tuple[Callable[[], None], DiscoverPhase]:
            loop = replace(preset.discover.loop, compile=options.compile)
            config = replace(preset.discover, videos=videos, loop=loop)
            phase = DiscoverPhase(config, [Footage(bank, everything, everything[:1])], 0, device)
            module = accelerator(options.device, preset.discover.loop.precision).prepare_model(phase.module.to(device))
            if options.compile:
                compile_all(phase.hot)
            optimizer = torch.optim.Adam(module.parameters(), fused=device.type == "cuda")

            def work() -> None:
                step = Step(0, phase.name, 0)
                batch = {name: tensor.to(device) for name, tensor in phase.batch(step).items()}
                loss, _ = phase.loss(module, batch, step)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                finished(device)

            return work, phase

        whole, _ = step_of(options.videos)
        few, phase = step_of(options.loop_videos)
        config = replace(preset.discover, videos=options.loop_videos)
        frames = bank.on(device, "side")

        def clip_by_clip() -> None:
            model = phase.module
            assert isinstance(model, SkillModel)
            length, random = config.clip_length, torch.Generator().manual_seed(0)
            total = torch.zeros((), device=device)
            for video in range(options.loop_videos):
                for first in range(config.frames_per_video):
                    index = (first + torch.arange(length)).clamp(max=config.frames_per_video - 1)
                    clip = frames[index + video * config.frames_per_video].to(device)[None]
                    drawn = Views(*(v.to(device) for v in draw_views(1, config.augment, random)))
                    views = augment(clip, drawn, config.augment.blur_sigma[1]).flatten(0, 1)
                    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                        features = model.encoder.features(views.flatten(0, 1)).unflatten(0, views.shape[:2])
                        skills = model.encoder.skills(features)
                    scores = model.prototypes(skills.float())
                    total = total + swapped_prediction(
                        scores[:1], scores[1:], temperature=0.1, epsilon=0.03, iterations=3
                    )
            total.backward()
            finished(device)

        over_loop = compare(clip_by_clip, few, options.rounds)
        times = {"step": whole, "augment": augmenting(frames, config, options.videos, device)}
        for work in times.values():
            work(), work()
        medians = {}
        for name, work in times.items():
            spent = []
            for _ in range(max(5, options.rounds)):
                began = time.perf_counter()
                work()
                spent.append(time.perf_counter() - began)
            medians[name] = float(np.median(spent))
        clips = options.videos * preset.discover.frames_per_video
        report(
            {"over_loop": over_loop},
            options.json,
            clips_per_s=round(clips / medians["step"], 1),
            step_ms=round(1e3 * medians["step"], 2),
            augment_ms=round(1e3 * medians["augment"], 2),
            device=device.type,
        )


def augmenting(frames: FrameStore, config: DiscoverConfig, videos: int, device: torch.device) -> Callable[[], None]:
    """Work: the two views of a batch."""
    index = torch.arange(videos * config.frames_per_video).reshape(videos, -1)
    views = Views(*(v.to(device) for v in draw_views(videos, config.augment, torch.Generator().manual_seed(0))))

    def work() -> None:
        augment(frames[index].to(device), views, config.augment.blur_sigma[1])
        finished(device)

    return work


if __name__ == "__main__":
    main()
