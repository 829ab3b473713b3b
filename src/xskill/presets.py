"""The whole configuration of a run, and the named ones to start from.

Only the engine's example phase exists so far; the phases of the paper join `Config` as they are built.
"""

from dataclasses import dataclass, field

from xskill.engine.config import ExampleConfig, LoopConfig


@dataclass(frozen=True)
class Config:
    """Everything that decides what is learned."""

    seed: int = 0
    """Seed of every random draw."""
    example: ExampleConfig = field(default_factory=ExampleConfig)


PRESETS: dict[str, tuple[str, Config]] = {
    "paper-kitchen": (
        "the paper to the letter, on its simulated kitchen",
        Config(
            example=ExampleConfig(
                batch_size=16, image_size=112, loop=LoopConfig(steps=2000, precision="bf16", optimizer="adam")
            )
        ),
    ),
    "kitchen": (
        "our best on the simulated kitchen, for one GPU",
        Config(
            example=ExampleConfig(
                batch_size=128,
                image_size=112,
                loop=LoopConfig(
                    steps=2000,
                    precision="bf16",
                    learning_rate=1e-3,
                    schedule="cosine",
                    warmup_steps=100,
                    clip_norm=1.0,
                    ema_decay=0.999,
                ),
            )
        ),
    ),
    "realworld": (
        "the paper's real robot",
        Config(
            example=ExampleConfig(
                batch_size=64, image_size=160, loop=LoopConfig(steps=2000, precision="bf16", ema_decay=0.9999)
            )
        ),
    ),
    "quick": (
        "trains on a laptop without a GPU",
        Config(
            example=ExampleConfig(
                loop=LoopConfig(steps=600, learning_rate=2e-3, schedule="cosine", ema_decay=0.99, checkpoint_every=100)
            )
        ),
    ),
    "debug": (
        "the smallest of everything, done in seconds; the tests use it",
        Config(
            example=ExampleConfig(
                batch_size=8,
                clips=256,
                frames=4,
                image_size=16,
                width=4,
                loop=LoopConfig(
                    steps=60,
                    learning_rate=1e-3,
                    warmup_steps=5,
                    clip_norm=1.0,
                    ema_decay=0.99,
                    log_every=1,
                    checkpoint_every=10,
                ),
            )
        ),
    ),
}
