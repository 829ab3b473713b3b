"""`xskill data make kitchen`: from recorded demonstrations to frame banks, one for each body."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from xskill.engine.config import CORES, first_end
from xskill.engine.log import Bars
from xskill.errors import ConfigError

if TYPE_CHECKING:
    from xskill.data.frames import FrameBank


@dataclass(frozen=True)
class MakeKitchen:
    """Render recorded demonstrations of the kitchen into frame banks, one for each body.

    Interrupted or killed, it goes on where it was; what is there already is not made again.
    """

    demos: str
    """Recorded demonstrations: a folder of .mjl files, one such file, their zip, a packed .npz, minari:ID, or puppets:N
    for N made-up ones."""
    out: Path
    """Folder for the banks: OUT/BODY/KEY."""
    bodies: tuple[str, ...] = ("franka", "sphere")
    """Who is seen: franka, sphere, red-sphere, and, with motions of their own, hand, hands."""
    episodes: str = ":"
    """Which demonstrations, as first:end; either may be left out."""
    speed: float = 1.0
    """How much faster the demonstrators' videos are shown (the robot's are not)."""
    cameras: tuple[Literal["side", "wrist"], ...] = ("side",)
    """Views to render."""
    size: int = 112
    """Height and width of a frame."""
    workers: int = CORES
    """Processes that render."""
    video: bool = False
    """Also write an mp4 of every episode, into OUT/BODY/videos."""
    lerobot: bool = False
    """Also write a LeRobot dataset (3.0) of every body, into OUT/lerobot/BODY."""


def make(options: MakeKitchen) -> None:
    """Do what the options say, with a progress bar on a terminal."""
    from xskill.data.lerobot_write import write_dataset
    from xskill.data.sources.bank import read_bank
    from xskill.kitchen.demos import read_demonstrations
    from xskill.kitchen.film import film_of, shoot_all
    from xskill.kitchen.render import RenderOptions

    console = Console(highlight=False, markup=False, soft_wrap=True)
    read = read_demonstrations(options.demos)
    demos = read.good[slice(*first_end(options.episodes, "--episodes", "0:20"))]
    if not demos:
        raise ConfigError(f"--episodes {options.episodes} leaves none of the {len(read.good)} demonstrations")
    films = [film_of(body, demos, options.speed) for body in options.bodies]
    render = RenderOptions(height=options.size, width=options.size)
    with Bars(console) as bars:
        banks = shoot_all(
            films, options.out.expanduser(),
            cameras=options.cameras, options=render, workers=options.workers, progress=bars.advance,
        )  # fmt: skip
    for film, bank in zip(films, banks, strict=True):
        if options.video:
            _write_videos(bank, bank.path.parent / "videos")
        console.print(f"{film.body}: {len(film.names)} episodes, {bank.episodes.frames} frames in {bank.path}")
        if options.lerobot:
            folder = options.out.expanduser() / "lerobot" / film.body
            write_dataset(folder, read_bank(bank), film.body, overwrite=True)
            console.print(f"{film.body}: as a LeRobot dataset in {folder}")
        for remark in film.remarks():
            console.print(remark, style="yellow")
        if film.left_out:
            console.print(f"{film.body}: {len(film.left_out)} demonstrations passed over", style="yellow")
    for problem in read.problems:
        console.print(f"passed over: {problem}", style="yellow")
    if read.problems:
        console.print(f"{len(read.problems)} demonstrations could not be read, {len(read.good)} could", style="yellow")


def _write_videos(bank: "FrameBank", folder: Path) -> None:
    from xskill.data.video import write_video

    folder.mkdir(exist_ok=True)
    for camera in bank.cameras:
        for name, frames in bank.videos(camera).items():
            path = folder / f"{name.replace('/', '_').removesuffix('.mjl')}-{camera}.mp4"
            write_video(path, frames, bank.episodes.fps)
