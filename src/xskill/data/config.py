"""What decides which videos are learned from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xskill.engine.config import require


def check_numbers(tasks: Sequence[int]) -> None:
    """Raises `ConfigError` for numbers of sub-tasks that no demonstration can have."""
    require(all(1 <= number <= 7 for number in tasks or (0,)), "tasks", tasks, "one or more numbers, 1 to 7 each")


@dataclass(frozen=True)
class DataConfig:
    """Whose videos are learned from, and which of them are kept aside.

    They are of the simulated kitchen, rendered from recorded demonstrations when first needed; or datasets of a real
    robot and of real demonstrators: folders, named instead of bodies.
    """

    demos: str = ""
    """Recorded demonstrations: a folder of .mjl files, one such file, their zip, a packed .npz or minari:ID; or
    scripted ones, simulated when first needed; or puppets:N for N made-up ones without physics. Several are
    joined with a plus sign, as in demos.npz+scripted."""
    count: int = 600
    """How many demonstrations are scripted, for the robot and for the demonstrators each."""
    tasks: tuple[int, ...] = (4,)
    """How many sub-tasks a scripted demonstration has; with several numbers, each in turn."""
    setbacks: int = 0
    """How many more are made in which something done is undone: others, recorded or scripted, up to there; then the
    scripted robot does it again, and the rest is as it was. Only those of demonstrations that train are learned from,
    nineteen in twenty where nothing but the unseen task is left out."""
    seed: int = 0
    """Seed of scripted demonstrations."""
    robot: str = "franka"
    """The body that acts: franka, or the folder of its dataset."""
    demonstrators: tuple[str, ...] = ("sphere",)
    """The bodies that are only watched: sphere, red-sphere, hand, hands; or the folders of their datasets."""
    cameras: tuple[str, ...] = ("side",)
    """The robot's views: side, wrist, or what its dataset calls them. Skills are discovered from the first, the
    demonstrators' only one."""
    size: int = 112
    """Height and width of a frame."""
    speed: float = 1.0
    """How much faster the demonstrators' videos are shown."""
    unseen: tuple[str, ...] = ("microwave", "kettle", "light", "slide")
    """The task that is kept for the test: sub-tasks in order. Its demonstrations are prompts, never training data."""
    level: Literal[0, 1, 2] = 0
    """What training may not see besides: nothing; the task's second transition (kettle to light); its first too."""
    held_out: int = 16
    """Demonstrations of which discovery sees no video, to be measured on; of a dataset, at most a fifth."""

    def __post_init__(self) -> None:
        bodies, told = (self.robot, *self.demonstrators), "different from the robot and from each other"
        require(len(set(bodies)) == len(bodies), "demonstrators", self.demonstrators, told)
        require(len(self.cameras) >= 1, "cameras", self.cameras, "at least one")
        require(len(set(self.cameras)) == len(self.cameras), "cameras", self.cameras, "different from each other")
        require(self.size >= 8, "size", self.size, "at least 8")
        require(math.isfinite(self.speed) and self.speed > 0, "speed", self.speed, "a number above 0")
        require(self.count >= 1, "count", self.count, "at least 1")
        require(self.setbacks >= 0, "setbacks", self.setbacks, "at least 0")
        check_numbers(self.tasks)
        require(self.held_out >= 1, "held_out", self.held_out, "at least 1")

    @property
    def of_datasets(self) -> bool:
        """Whether it is datasets that are named, and not bodies of the kitchen."""
        return "/" in self.robot or (Path(self.robot) / "meta").is_dir()
