"""Watch one video of another body doing a task, and make the robot do it."""

from typing import TYPE_CHECKING

from xskill.version import __version__ as __version__

if TYPE_CHECKING:
    from pathlib import Path

    from xskill.compose.agent import Agent
    from xskill.engine.config import Device


def load(folder: "Path | str", device: "Device" = "auto", *, seed: int | str = 0) -> "Agent":
    """An agent with the model in `folder`, ready for a prompt. Raises `CheckpointError`."""
    from xskill.compose.agent import load

    return load(folder, device, seed=seed)
