"""`xskill data make kitchen`: from demonstrations, recorded or scripted, to frame banks, one for each body."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xskill.data.config import DataConfig
from xskill.engine.config import CORES, first_end
from xskill.engine.log import Bars, plain_console
from xskill.errors import ConfigError

if TYPE_CHECKING:
    from xskill.data.frames import FrameBank


@dataclass(frozen=True)
class MakeKitchen:
    """Render demonstrations of the kitchen, recorded or scripted, into frame banks, one for each body.

    Interrupted or killed, it goes on where it was; what is there already is not made again.
    """

    out: Path
    """Folder for the banks: OUT/BODY/KEY."""
    demos: str = "scripted"
    """Recorded demonstrations: a folder of .mjl files, one such file, their zip, a packed .npz or minari:ID; or
    scripted ones, simulated here and kept in OUT/scripted; or puppets:N for N made-up ones without physics. Several are
    joined with a plus sign, as in demos.npz+scripted."""
    count: int = 600
    """How many are scripted; the demonstrators repeat as many others, so that no two bodies do the same."""
    tasks: tuple[int, ...] = (4,)
    """How many sub-tasks a scripted one has; with several numbers, each in turn."""
    seed: int = 0
    """Seed of scripted demonstrations."""
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
    """Processes that simulate and render."""
    video: bool = False
    """Also write an mp4 of every episode, into OUT/BODY/videos."""
    lerobot: bool = False
    """Also write a LeRobot dataset (3.0) of every body, into OUT/lerobot/BODY."""


def make(options: MakeKitchen) -> None:
    """Do what the options say, with a progress bar on a terminal."""
    from xskill.data.lerobot_write import write_dataset
    from xskill.data.sources.bank import read_bank
    from xskill.kitchen.film import films_of, shoot_all
    from xskill.kitchen.render import RenderOptions
    from xskill.kitchen.scripted import demonstrations

    console = plain_console()
    folder, part = options.out.expanduser(), slice(*first_end(options.episodes, "--episodes", "0:20"))
    with Bars(console) as bars:
        read = demonstrations(
            options.demos,
            count=options.count, seed=options.seed, tasks=options.tasks, unseen=DataConfig().unseen,
            folder=folder, workers=options.workers, progress=bars.advance,
        )  # fmt: skip
    chosen = replace(read, good=read.good[part], shown=read.shown[part])
    if not chosen.good:
        raise ConfigError(f"--episodes {options.episodes} leaves none of the {len(read.good)} demonstrations")
    films = films_of(options.bodies, chosen, options.speed)
    render = RenderOptions(height=options.size, width=options.size)
    with Bars(console) as bars:
        banks = shoot_all(
            films, folder,
            cameras=options.cameras, options=render, workers=options.workers, progress=bars.advance,
        )  # fmt: skip
    for film, bank in zip(films, banks, strict=True):
        if options.video:
            _write_videos(bank, bank.path.parent / "videos")
        console.print(f"{film.body}: {len(film.names)} episodes, {bank.episodes.frames} frames in {bank.path}")
        if options.lerobot:
            written = write_dataset(folder / "lerobot" / film.body, read_bank(bank), film.body, overwrite=True)
            console.print(f"{film.body}: as a LeRobot dataset in {written.folder}")
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
