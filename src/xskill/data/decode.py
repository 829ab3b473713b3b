"""From datasets to frame banks: every video decoded once, several at a time, and what trains on them."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from xskill.data.config import DataConfig
from xskill.data.frames import BankPlan, FrameBank, Making, make_bank
from xskill.data.lerobot import Clip, Dataset, open_dataset
from xskill.data.split import Split, TrainingData, drawn
from xskill.data.video import stretch
from xskill.engine.folder import MANIFEST, check_folder
from xskill.engine.workers import spread
from xskill.errors import CheckpointError, ConfigError, DataError

Progress = Callable[[str, int, int], None]
"""Is told a name, how many frames were added, and how many there are in all."""

ENDS = 1 << 16
"""Bytes at either end of a video that tell it from another of the same size."""
MOST_HELD_OUT = 5
"""At most one of so many videos is held out."""


def prepare(
    config: DataConfig, folder: Path, *, workers: int, say: Callable[[str], None], progress: Progress
) -> TrainingData:
    """Open the banks of the datasets that a config names, or make them under `folder`."""
    paths = [Path(named).expanduser() for named in (config.robot, *config.demonstrators)]
    names = [path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of the datasets are called '{max(names, key=names.count)}'; give them different names")
    banks, train, held_out = [], [], []
    for path, name in zip(paths, names, strict=True):
        dataset = open_dataset(path)
        wanted = config.cameras if path is paths[0] else config.cameras[:1]
        cameras = {camera: dataset.camera(camera) for camera in wanted}
        if len(set(cameras.values())) < len(cameras):
            raise DataError(f"{path} has one camera; {len(cameras)} are asked for ({', '.join(wanted)})")
        for camera, taken in cameras.items():
            if camera != taken:
                say(f"{name}: its camera '{taken}' is taken for '{camera}'")
        bank = bank_of(dataset, name, folder / name, cameras, config.size, workers=workers, progress=progress)
        all_names = bank.episodes.names
        aside = drawn(all_names, max(1, min(config.held_out, len(all_names) // MOST_HELD_OUT)))
        if len(aside) >= len(all_names):
            raise DataError(f"{path} has one episode; at least two are needed, to learn from one and look at the other")
        banks.append(bank)
        train += [one for one in all_names if one not in aside]
        held_out += [one for one in all_names if one in aside]
    return TrainingData(tuple(banks), Split(tuple(train), tuple(held_out)))


def bank_of(
    dataset: Dataset,
    embodiment: str,
    folder: Path,
    cameras: Mapping[str, str],
    size: int,
    *,
    workers: int = 1,
    progress: Progress = lambda name, added, total: None,
) -> FrameBank:
    """The bank of a dataset under `folder`, opened or made; `cameras` maps the bank's names to the dataset's."""
    clips = {camera: dataset.clips[taken] for camera, taken in cameras.items()}
    files = sorted({clip.path for found in clips.values() for clip in found})
    videos = {path.relative_to(dataset.folder).as_posix(): _mark(path) for path in files}
    starts = {camera: [clip.start for clip in found] for camera, found in clips.items()}
    source = {"made_by": "dataset", "videos": videos, "starts": starts}
    plan = BankPlan(dataset.episodes(embodiment), tuple(cameras), size, size, source)
    lengths = dataset.lengths

    def fill(making: Making, todo: Sequence[int]) -> Iterator[int]:
        _as_written(dataset.folder)
        total = int(lengths.sum())
        progress(embodiment, total - int(lengths[list(todo)].sum()), total)
        jobs = [(making, episode, {camera: found[episode] for camera, found in clips.items()}) for episode in todo]
        for episode in spread(_decode, jobs, workers):
            progress(embodiment, int(lengths[episode]), total)
            yield episode

    return make_bank(folder, plan, fill)


def _decode(making: Making, episode: int, clips: Mapping[str, Clip]) -> int:
    plan = making.plan
    length, size = int(plan.episodes.lengths[episode]), (plan.height, plan.width)
    for camera, clip in clips.items():
        making.stream(episode, camera, stretch(clip.path, clip.start, length, plan.episodes.fps, size))
    return episode


def _mark(path: Path) -> str:
    """Tells a video from others without reading all of it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(ENDS))
        file.seek(max(0, size - ENDS))
        digest.update(file.read(ENDS))
    return f"{size}-{digest.hexdigest()[:16]}"


def _as_written(folder: Path) -> None:
    """Compare a dataset with the hashes it was written with, if it has any. Raises `DataError`."""
    if (folder / MANIFEST).is_file():
        try:
            check_folder(folder)
        except CheckpointError as error:
            raise DataError(
                f"{error}; xskill data check {folder} tells what else. If it was meant to change, delete its {MANIFEST}"
            ) from None
