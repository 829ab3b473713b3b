"""`xskill data import`, `show` and `check`: datasets from what people have, and a look at them."""

import json as as_json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.table import Table

from xskill.data.recording import Source
from xskill.data.sources import Choice
from xskill.engine.config import CORES, unset
from xskill.engine.log import Bars, plain_console
from xskill.errors import DataError

SOURCES = {
    "folder": "a folder of videos (mp4, mov, webm, ...), or of picture sequences, a folder each",
    "robomimic": "a robomimic HDF5 file with pictures",
    "zarr": "a diffusion_policy replay buffer, a .zarr folder or a .zarr.zip",
    "minari": "a Minari dataset with pictures: its folder, or its id if it has been downloaded",
}


@dataclass(frozen=True)
class Import:
    """Make a dataset that can be learned from. What cannot be read is left out, named, and makes the command fail."""

    source: tyro.conf.Positional[str]
    """What to read."""
    out: tyro.conf.Positional[Path]
    """Folder for the dataset, in LeRobot's format 3.0."""
    choice: Annotated[Choice, tyro.conf.arg(name="")] = field(default_factory=Choice)
    robot: Annotated[str, unset("the name of the folder")] = ""
    """Who is seen in it."""
    skip_bad: bool = False
    """Do not fail when something was left out."""
    overwrite: bool = False
    """Replace the dataset in that folder."""


@dataclass(frozen=True)
class Check:
    """Read every table and decode every frame of a dataset; say whether it is fit to be learned from, and why not."""

    folder: tyro.conf.Positional[Path]
    """The dataset."""
    json: bool = False
    """Print what was found as JSON: ok, episodes, frames, problems."""
    workers: int = CORES
    """Processes that decode."""


@dataclass(frozen=True)
class Show:
    """Print what a dataset holds, and write a sheet with frames of its episodes."""

    folder: tyro.conf.Positional[Path]
    """The dataset."""
    out: Annotated[Path | None, unset("NAME.png, here")] = None
    """The sheet, a png."""
    episodes: int = 6
    """Rows of the sheet."""
    frames: int = 8
    """Frames in a row."""


def import_(kind: str, options: Import) -> None:
    """Do what the options say."""
    from xskill.data.lerobot_write import write_dataset

    console = plain_console()
    source = read(kind, options.source, options.choice)
    for note in source.notes:
        console.print(note)
    out = options.out.expanduser()
    with Bars(console) as bars:
        written = write_dataset(
            out, source, options.robot or out.resolve().name, overwrite=options.overwrite,
            progress=lambda name: bars.advance("episodes", 1, len(source.recordings)),
        )  # fmt: skip
    console.print(f"{written.episodes} episodes, {written.frames} frames in {out}")
    for problem in written.problems:
        console.print(f"left out: {problem}", style="yellow")
    if written.problems and not options.skip_bad:
        raise DataError(
            f"{len(written.problems)} of {len(written.problems) + written.episodes} could not be read and were left "
            f"out; the others are in {out}. If that is all right, say --skip-bad"
        )


def read(kind: str, named: str, choice: Choice) -> Source:
    """The recordings of a source."""
    from xskill.data.sources.folder import read_folder
    from xskill.data.sources.minari_store import read_minari
    from xskill.data.sources.robomimic import read_robomimic
    from xskill.data.sources.zarr_store import read_zarr

    readers = {"folder": read_folder, "robomimic": read_robomimic, "zarr": read_zarr, "minari": read_minari}
    return readers[kind](Path(named).expanduser(), choice)


def check(options: Check) -> None:
    """Do what the options say. Raises `DataError` when the dataset is not fit."""
    from xskill.data.check import check_dataset

    console, folder = plain_console(), options.folder.expanduser()
    with Bars(plain_console(quiet=options.json)) as bars:
        found = check_dataset(folder, workers=options.workers, progress=bars.advance)
    if options.json:
        console.print(as_json.dumps(found.about()))
    else:
        if found.episodes:
            console.print(f"{folder}: {found.episodes} episodes, {found.frames} frames")
        for problem in found.problems:
            console.print(problem, style="yellow")
    if count := len(found.problems):
        raise DataError(f"{folder} is not fit to be learned from: {count} problem{'s' * (count > 1)}")
    if not options.json:
        console.print("all of it can be read")


def show(options: Show) -> None:
    """Do what the options say."""
    from matplotlib.image import imsave

    from xskill.data.lerobot import open_dataset
    from xskill.data.video import stretch

    console, dataset = plain_console(), open_dataset(options.folder.expanduser())
    seconds = dataset.lengths / dataset.fps
    table = Table(show_header=False)
    for name, value in {
        "format": f"LeRobot {dataset.version}",
        "episodes": f"{len(dataset.names)}, {seconds.min():.1f} to {seconds.max():.1f} s, {seconds.sum() / 60:.1f} min",
        "frames": f"{int(dataset.lengths.sum())}, {dataset.fps:g} a second",
        "cameras": ", ".join(f"{name} ({width} x {height})" for name, (height, width) in dataset.sizes.items()),
        "states": "none" if dataset.states is None else f"{dataset.states.shape[1]} numbers a frame",
        "actions": "none" if dataset.actions is None else f"{dataset.actions.shape[1]} numbers a frame",
        "tasks": ", ".join(sorted(set(filter(None, dataset.tasks)))[:8]) or "none named",
    }.items():
        table.add_row(name, value)
    console.print(table)
    camera, clips = next(iter(dataset.clips.items()))
    height, width = dataset.sizes[camera]
    size = 120, max(1, round(120 * width / height))
    rows = []
    for episode in np.unique(np.linspace(0, len(clips) - 1, options.episodes).astype(int)):
        clip, length = clips[episode], int(dataset.lengths[episode])
        wanted = set(places := np.linspace(0, length - 1, options.frames).astype(int).tolist())
        frames = stretch(clip.path, clip.start, length, dataset.fps, size)
        kept = {index: frame for index, frame in enumerate(frames) if index in wanted}
        rows.append(np.concatenate([kept[place] for place in places], axis=1))
    out = options.out or Path(f"{dataset.folder.resolve().name}.png")
    imsave(out, np.concatenate(rows))
    console.print(f"frames of {len(rows)} episodes, camera '{camera}', in {out}")
