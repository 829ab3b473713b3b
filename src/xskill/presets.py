"""The whole configuration of a run, and the named ones to start from."""

from dataclasses import dataclass, field, replace

from xskill.data.config import DataConfig
from xskill.discover.config import AugmentConfig, DiscoverConfig, EncoderConfig
from xskill.engine.config import LoopConfig
from xskill.transfer.config import AlignerConfig, PolicyConfig, TransferConfig


@dataclass(frozen=True)
class Config:
    """Everything that decides what is learned."""

    seed: int = 0
    """Seed of every random draw."""
    base: str = ""
    """Model folder to go on from: its skills are taken as they are, its policy and aligner are trained on."""
    data: DataConfig = field(default_factory=DataConfig)
    discover: DiscoverConfig = field(default_factory=DiscoverConfig)
    transfer: TransferConfig = field(default_factory=TransferConfig)


_EPOCH = 66  # steps of 16 videos, of one body at a time, in which each of 517 demonstrations of both is seen once
_PAPER_DISCOVER = DiscoverConfig(
    time_scale="frames",
    alternate=True,
    keep="newest",
    frozen_steps=3 * _EPOCH,
    encoder=EncoderConfig(dropout=0.1),
    augment=AugmentConfig(each_frame=True),
    loop=LoopConfig(steps=100 * _EPOCH, precision="bf16", optimizer="adam", compile=True, checkpoint_every=10 * _EPOCH),
)

_PAPER_TRANSFER = TransferConfig(
    batch_size=256,
    policy=PolicyConfig(train_steps=60),
    aligner=AlignerConfig(tokens=100, dropout=0.1),
    loop=LoopConfig(
        steps=20_000,
        precision="bf16",
        schedule="cosine",
        warmup_steps=500,
        weight_decay=1e-6,
        ema_decay=0.9999,
        compile=True,
        replay=True,
        checkpoint_every=2000,
    ),
)

PRESETS: dict[str, tuple[str, Config]] = {
    "paper-kitchen": (
        "the paper's method and sizes, on its simulated kitchen",
        Config(discover=_PAPER_DISCOVER, transfer=_PAPER_TRANSFER),
    ),
    "kitchen": (
        "our best on the simulated kitchen, for one GPU",
        Config(
            discover=DiscoverConfig(
                videos=8,
                encoder=EncoderConfig(width=256, layers=4, feedforward=512),
                loop=LoopConfig(
                    steps=1500,
                    precision="bf16",
                    learning_rate=3e-4,
                    schedule="cosine",
                    warmup_steps=50,
                    clip_norm=1.0,
                    ema_decay=0.99,
                    replay=True,
                    checkpoint_every=250,
                ),
            ),
            transfer=TransferConfig(
                batch_size=512,
                mask_padding=True,
                skill_noise=1.0,
                state_noise=0.0005,
                shift=4,
                plan_noise=0.5,
                plan_drop=0.1,
                plan_warp=1.0,
                cross=0.5,
                policy=PolicyConfig(
                    guess="actions",
                    vision="small",
                    vision_width=256,
                    condition_width=160,
                    channels=(64, 128, 192),
                    time_width=64,
                    solver="ddim",
                    solver_steps=5,
                ),
                aligner=AlignerConfig(
                    kind="tracker",
                    tokens=100,
                    vision="small",
                    vision_width=128,
                    layers=3,
                    feedforward=256,
                    step_back=0.1,
                ),
                loop=LoopConfig(
                    steps=5000,
                    precision="bf16",
                    learning_rate=1e-3,
                    schedule="cosine",
                    warmup_steps=200,
                    clip_norm=1.0,
                    ema_decay=0.999,
                    compile=True,
                    replay=True,
                    checkpoint_every=1000,
                ),
            ),
        ),
    ),
    "realworld": (
        "the paper's real robot",
        Config(
            data=DataConfig(size=160),
            discover=replace(
                _PAPER_DISCOVER,
                frozen_steps=6,
                videos=20,
                num_prototypes=32,
                positive_window=6,
                negative_window=16,
                loop=LoopConfig(steps=10_000, precision="bf16", optimizer="adam"),
            ),
            transfer=replace(_PAPER_TRANSFER, aligner=replace(_PAPER_TRANSFER.aligner, tokens=200)),
        ),
    ),
    "quick": (
        "trains on a laptop without a GPU, from nothing, in a quarter of an hour",
        Config(
            data=DataConfig(demos="scripted", count=140, tasks=(2, 3), size=64, held_out=8),
            discover=DiscoverConfig(
                frames_per_video=40,
                videos=4,
                positive_window=2,
                negative_window=6,
                encoder=EncoderConfig(channels=(16, 32, 32), width=64, layers=2, feedforward=128),
                augment=AugmentConfig(crop=(0.85, 1.0)),
                loop=LoopConfig(
                    steps=800, learning_rate=1e-3, schedule="cosine", warmup_steps=20, clip_norm=1.0,
                    ema_decay=0.98, checkpoint_every=200,
                ),
            ),
            transfer=TransferConfig(
                batch_size=128, mask_padding=True, skill_noise=0.5, shift=2,
                plan_noise=0.3, plan_drop=0.1, plan_warp=1.0, cross=0.5,
                policy=PolicyConfig(
                    guess="actions", vision="tiny", vision_width=64, condition_width=64,
                    channels=(32, 64), kernel=3, time_width=32, solver="ddim", solver_steps=5,
                ),
                aligner=AlignerConfig(
                    kind="tracker", tokens=50, vision="tiny", vision_width=64, layers=2, feedforward=128, rescale=True
                ),
                loop=LoopConfig(
                    steps=3000, learning_rate=1e-3, schedule="cosine", warmup_steps=50, clip_norm=1.0, ema_decay=0.995,
                    checkpoint_every=500,
                ),
            ),
        ),
    ),
    "debug": (
        "the smallest of everything, done in less than a minute; the tests use it",
        Config(
            data=DataConfig(demos="puppets:8", size=16, held_out=2),
            discover=DiscoverConfig(
                clip_length=4,
                frames_per_video=10,
                videos=2,
                num_prototypes=8,
                positive_window=1,
                negative_window=2,
                negatives=4,
                encoder=EncoderConfig(channels=(4, 8, 8), width=16, layers=1, heads=2, feedforward=16),
                loop=LoopConfig(
                    steps=60, learning_rate=1e-3, warmup_steps=5, clip_norm=1.0, ema_decay=0.99,
                    log_every=1, checkpoint_every=10,
                ),
            ),
            transfer=TransferConfig(
                batch_size=8, mask_padding=True, skill_noise=0.1, state_noise=0.01, shift=1,
                plan_noise=0.1, plan_drop=0.1, plan_warp=0.5, cross=0.5, undo=0.25,
                policy=PolicyConfig(
                    guess="actions", vision="small", vision_width=8, condition_width=16,
                    predict=8, execute=4, channels=(8, 16), kernel=3, time_width=8, train_steps=20,
                    solver="ddim", solver_steps=4,
                ),
                aligner=AlignerConfig(
                    kind="tracker", history=True, tokens=12, vision="small", vision_width=8,
                    layers=1, heads=2, feedforward=16,
                ),
                loop=LoopConfig(
                    steps=40, learning_rate=1e-3, warmup_steps=5, clip_norm=1.0, ema_decay=0.99,
                    log_every=1, checkpoint_every=10,
                ),
            ),
        ),
    ),
}  # fmt: skip
