"""A folder of videos, or of picture sequences (a folder each, as in the paper's data): what is on people's disks."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median_low

from xskill.data.recording import Pixels, Recording, Source
from xskill.data.sources import Choice
from xskill.data.video import About, even, opened, pictures
from xskill.errors import DataError, VideoError

VIDEOS = frozenset([".mp4", ".mov", ".webm", ".mkv", ".avi", ".m4v", ".mpg", ".mpeg", ".wmv", ".3gp", ".ts"])
PICTURES = frozenset([".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff"])
SEQUENCE_FPS = 10.0
"""Frames a second of picture sequences, which do not say."""
CAMERA = "side"


def read_folder(folder: Path, choice: Choice) -> Source:
    """All videos and picture sequences under a folder, in the order of their names. Raises `DataError`."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    files = sorted((path for path in folder.rglob("*") if path.is_file() and not _hidden(path, folder)), key=_natural)
    videos = [path for path in files if path.suffix.lower() in VIDEOS]
    sequences: dict[Path, list[Path]] = {}
    for path in files:
        if path.suffix.lower() in PICTURES:
            sequences.setdefault(path.parent, []).append(path)
    if not videos and not sequences:
        raise DataError(f"{folder} has neither videos nor pictures ({len(files)} other files)")
    abouts, problems = _looked_at(videos, folder)
    first = next(iter(abouts.values()), None) or _first_picture(sequences, folder)
    fps = choice.fps or (_usual(abouts) if abouts else SEQUENCE_FPS)
    size = choice.kept(first.height, first.width)
    names = {path: path.relative_to(folder).as_posix() for path in (*abouts, *sequences)}
    camera = (choice.cameras or (CAMERA,))[0]
    recordings = [Recording(names[path], {camera: choice.shots(partial(_of_video, path, fps))}) for path in abouts]
    recordings += [
        Recording(names[path] if path != folder else folder.name, {camera: choice.shots(partial(_of_pictures, shown))})
        for path, shown in sequences.items()
    ]
    notes = [f"{len(videos)} videos and {len(sequences)} picture sequences, called camera '{camera}'"]
    notes += [f"{fps:g} frames a second, {size[1]} x {size[0]} pixels"]
    if not choice.fps and sequences:
        notes.append(f"picture sequences are taken to have {fps:g} frames a second; --fps says otherwise")
    about = {"kind": "folder", "videos": len(videos), "sequences": len(sequences)}
    return Source(recordings, fps, {camera: size}, about, tuple(notes), problems)


def _looked_at(videos: list[Path], folder: Path) -> tuple[dict[Path, About], tuple[str, ...]]:
    """What each video says of itself, upright, and a sentence for every one that says nothing."""
    abouts, problems = {}, []
    for path in videos:
        try:
            with opened(path) as (container, stream, about):
                frame = next(container.decode(stream), None)
                if frame is None:
                    raise VideoError(f"{path} is damaged: not one of its frames can be read")
                turned = round(getattr(frame, "rotation", 0) / 90) % 2
                sides = (about.width, about.height) if turned else (about.height, about.width)
                abouts[path] = About(*sides, about.rate, about.seconds, about.frames)
        except VideoError as error:
            problems.append(str(error))
    return abouts, tuple(problems)


def _first_picture(sequences: dict[Path, list[Path]], folder: Path) -> About:
    for shown in sequences.values():
        for path in shown:
            try:
                with opened(path) as (_, _, about):
                    return about
            except VideoError:
                continue
    raise DataError(f"none of the videos and pictures in {folder} can be read")


def _usual(abouts: dict[Path, About]) -> float:
    """The rate that most videos have, to a hundredth."""
    return round(median_low(about.rate for about in abouts.values()), 2)


def _of_video(path: Path, fps: float, size: tuple[int, int]) -> Iterator[Pixels]:
    return even(pictures(path, size), fps)


def _of_pictures(shown: list[Path], size: tuple[int, int]) -> Iterator[Pixels]:
    for path in shown:
        yield next(pixels for _, pixels in pictures(path, size))


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _natural(path: Path) -> list[tuple[int, str]]:
    """So that 10 comes after 9."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
