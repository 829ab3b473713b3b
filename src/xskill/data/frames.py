"""The `FrameBank`: every frame of a dataset as one uint8 array per camera, made once, then only looked up.

    <key>/
      manifest.json        what made it, the episodes, and the sha256 of every file and of every episode's frames
      <camera>.frames      (N, H, W, 3) uint8, mapped into memory and shared by all processes that read it
      states.npy, actions.npy

While it is made it is called `making-<key>`; a journal beside it notes each finished episode, so a kill costs one.
Two processes that want the same bank do not both make it: the second waits for the first.
"""

import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from xskill.data.episodes import Episodes, episodes_from
from xskill.engine.config import did_you_mean
from xskill.engine.folder import check_folder, finish_folder, json_lines, read_manifest, refused
from xskill.errors import CheckpointError, DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BankPlan:
    """What a bank is to hold, before a single frame of it exists."""

    episodes: Episodes
    cameras: tuple[str, ...]
    height: int
    width: int
    source: Mapping[str, Any]
    """What the frames are made from, as JSON: hashes of files, render options. It decides, with the rest, the key."""

    @property
    def key(self) -> str:
        """Names the bank: the same for the same content, whoever makes it."""
        digest = hashlib.sha256()
        sizes = [self.height, self.width]
        plain = {"episodes": self.episodes.about(), "cameras": self.cameras, "size": sizes, "source": self.source}
        digest.update(json.dumps(plain, sort_keys=True).encode())
        for array in (self.episodes.states, self.episodes.actions):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Making:
    """A bank on its way. Small enough to be sent to the processes that fill it; each writes its own episodes."""

    folder: Path
    plan: BankPlan

    def write(self, episode: int, camera: str, frames: Pixels) -> None:
        """Put the frames (T, H, W, 3) of one episode in their place."""
        part = self._part(episode, camera, "r+")
        if frames.shape != part.shape or frames.dtype != np.uint8:
            raise DataError(f"episode {episode} is {frames.shape} {frames.dtype}; expected {part.shape} uint8")
        part[:] = frames

    def stream(self, episode: int, camera: str, frames: Iterable[Pixels]) -> None:
        """Put the frames (H, W, 3) of one episode in their place as they come; there must be as many as planned."""
        part = self._part(episode, camera, "r+")
        for place, frame in zip(range(len(part)), frames, strict=True):
            part[place] = frame

    def hashes(self, episode: int) -> dict[str, str]:
        """Camera -> sha256 of an episode's frames, as they are on disk."""
        parts = {camera: self._part(episode, camera, "r") for camera in self.plan.cameras}
        return {camera: hashlib.sha256(part.data).hexdigest() for camera, part in parts.items()}

    def flush(self, episode: int) -> None:
        """Return once an episode's frames would survive a power cut."""
        for camera in self.plan.cameras:
            self._part(episode, camera, "r+").flush()

    def _part(self, episode: int, camera: str, mode: Literal["r", "r+"]) -> np.memmap[Any, np.dtype[np.uint8]]:
        episodes, height, width = self.plan.episodes, self.plan.height, self.plan.width
        shape = (int(episodes.lengths[episode]), height, width, 3)
        offset = int(episodes.starts[episode]) * height * width * 3
        return np.memmap(self.folder / f"{camera}.frames", np.uint8, mode, offset, shape)


class Filler(Protocol):
    """Makes frames: a renderer, a video decoder."""

    def __call__(self, making: Making, todo: Sequence[int]) -> Iterable[int]:
        """Write every episode in `todo` with `making.write`, in any order, in any processes; yield each when done."""


def make_bank(folder: Path, plan: BankPlan, fill: Filler) -> "FrameBank":
    """The bank for `plan` in `folder`: opened if it is there, made (or its making continued) if not."""
    path = folder / plan.key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f".{plan.key}.lock"):
            if not path.exists():
                _make(folder / f"making-{plan.key}", path, plan, fill)
    except OSError as error:
        raise refused(path, error) from error
    return FrameBank(path)


def _make(work: Path, path: Path, plan: BankPlan, fill: Filler) -> None:
    work.mkdir(exist_ok=True)
    bare = replace(plan, episodes=replace(plan.episodes, states=None, actions=None))  # small, for other processes
    making, journal = Making(work, bare), work.with_suffix(".jsonl")
    for camera in plan.cameras:
        with (work / f"{camera}.frames").open("ab") as file:
            # All of it now: a disk that turned out full under a mapped file would kill the process without a word.
            os.posix_fallocate(file.fileno(), 0, plan.episodes.frames * plan.height * plan.width * 3)
    noted = _noted(journal)
    done = {episode: hashes for episode, hashes in noted.items() if making.hashes(episode) == hashes}
    with journal.open("ab", buffering=0) as notes:
        notes.write(b"\n")  # ends a line that a kill may have torn
        for episode in fill(making, [e for e in range(len(plan.episodes.lengths)) if e not in done]):
            making.flush(episode)
            done[episode] = making.hashes(episode)
            notes.write(json.dumps({"episode": episode, "hashes": done[episode]}).encode() + b"\n")
    if missing := sorted(set(range(len(plan.episodes.lengths))) - set(done)):
        raise DataError(f"{path}: the frames of {len(missing)} episodes were not made, the first being {missing[0]}")
    for name in ("states", "actions"):
        array = getattr(plan.episodes, name)
        if array is not None:
            np.save(work / f"{name}.npy", array, allow_pickle=False)
    shape = {"height": plan.height, "width": plan.width, "cameras": list(plan.cameras)}
    frames = [done[episode] for episode in range(len(plan.episodes.lengths))]
    about = {"episodes": plan.episodes.about(), **shape, "source": dict(plan.source), "frames": frames}
    finish_folder(work, path, about)
    journal.unlink()


def _noted(journal: Path) -> dict[int, dict[str, str]]:
    noted = {}
    for record in json_lines(journal):
        with suppress(ValueError, KeyError, TypeError):
            noted[int(record["episode"])] = record["hashes"]
    return noted


class FrameBank:
    """A finished bank. Opening it reads only its manifest; frames are mapped, not loaded."""

    def __init__(self, path: Path) -> None:
        """Open the bank at `path`. Raises `DataError` when it is none, or its files have not the size they should."""
        try:
            about = read_manifest(path)
            wrong = [n for n, file in about["files"].items() if (path / n).stat().st_size != file["bytes"]]
        except (CheckpointError, OSError) as error:
            raise DataError(f"{path} is not a frame bank: {error}") from None
        if wrong:
            raise DataError(f"{path / wrong[0]} is damaged: its size has changed; delete {path} and make it again")
        self.path, self.source = path, about["source"]
        self.cameras: tuple[str, ...] = tuple(about["cameras"])
        arrays = [self._array(name) for name in ("states", "actions")]
        self.episodes = episodes_from(about["episodes"], *arrays)
        self.size: tuple[int, int] = (about["height"], about["width"])

    def frames(self, camera: str) -> Pixels:
        """All frames of a camera, (N, H, W, 3), mapped from disk, read-only."""
        if camera not in self.cameras:
            raise DataError(f"{self.path} has no camera '{camera}'{did_you_mean(camera, self.cameras)}")
        return np.memmap(self.path / f"{camera}.frames", np.uint8, "r", shape=(self.episodes.frames, *self.size, 3))

    def videos(self, camera: str) -> dict[str, Pixels]:
        """Episode -> what a camera saw of it, (T, H, W, 3), mapped from disk."""
        frames, episodes = self.frames(camera), self.episodes
        spans = zip(episodes.names, episodes.starts, episodes.lengths, strict=True)
        return {name: frames[start : start + length] for name, start, length in spans}

    def on(self, device: "torch.device", camera: str, *, limit: int | None = None) -> "FrameStore":
        """The frames of a camera where they are needed: whole on the device when they fit, else streamed.

        `limit` is how many bytes may be used there (by default half of a GPU's free memory; the CPU maps).
        """
        frames = self.frames(camera)
        limit = room(device) if limit is None else limit
        fits = device.type == "cuda" and frames.nbytes <= limit
        return ResidentFrames(frames, device) if fits else StreamedFrames(frames, device)

    def verify(self) -> None:
        """Compare every byte with what was written. Raises `CheckpointError` that names the damage."""
        check_folder(self.path)

    def _array(self, name: str) -> npt.NDArray[np.float32] | None:
        path = self.path / f"{name}.npy"
        return np.load(path, allow_pickle=False) if path.exists() else None


def room(device: "torch.device") -> int:
    """How many bytes of frames a device should take: half of a GPU's free memory, the rest is for networks."""
    import torch

    return torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else 0


def stores(banks: Sequence[FrameBank], device: "torch.device") -> list["FrameStore"]:
    """What the first camera of several banks saw, whole on the device as long as there is room."""
    left, found = room(device), []
    for bank in banks:
        camera = bank.cameras[0]
        found.append(bank.on(device, camera, limit=left))
        left -= bank.frames(camera).nbytes if isinstance(found[-1], ResidentFrames) else 0
    return found


class FrameStore(Protocol):
    """Where frames are looked up by index."""

    def __getitem__(self, index: "Tensor") -> "Tensor":
        """Frames (..., H, W, 3) uint8 on the device for integer indices (...) of any shape."""


class ResidentFrames:
    """All frames on the device; a lookup is one gather there."""

    def __init__(self, frames: Pixels, device: "torch.device") -> None:
        import torch

        self._frames = torch.empty(frames.shape, dtype=torch.uint8, device=device)
        for begin in range(0, len(frames), 4096):  # in pieces: the whole never has to fit into the CPU's memory
            self._frames[begin : begin + 4096] = torch.from_numpy(np.array(frames[begin : begin + 4096]))

    def __getitem__(self, index: "Tensor") -> "Tensor":
        return self._frames[index.to(self._frames.device)]


class StreamedFrames:
    """Frames stay on disk (and in the page cache); a lookup copies what it needs, through pinned memory to a GPU."""

    def __init__(self, frames: Pixels, device: "torch.device") -> None:
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the memory is read-only; nothing here writes to it
            self._frames = torch.from_numpy(frames)
        self._device, self._pinned = device, device.type == "cuda"

    def __getitem__(self, index: "Tensor") -> "Tensor":
        import torch

        # index_select reads with every core; torch keeps the pinned block until the copy is over, and reuses it then.
        taken = torch.empty(index.numel(), *self._frames.shape[1:], dtype=torch.uint8, pin_memory=self._pinned)
        torch.index_select(self._frames, 0, index.reshape(-1).cpu(), out=taken)
        return taken.to(self._device, non_blocking=True).reshape(*index.shape, *self._frames.shape[1:])


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock file; wait while another process does."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
