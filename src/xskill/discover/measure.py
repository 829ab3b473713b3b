"""Whether discovery worked, told from held-out videos without a robot.

Some measures need no ground truth: how many prototypes each embodiment uses and how evenly, how far two embodiments use
the same ones (`shared_usage` chooses the checkpoint), and whether clips find back from one to the other. The rest read
which sub-task was done when. They are logged and never trained on; nothing on the way to a robot reads them.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from xskill.data.episodes import subsampled
from xskill.data.frames import FrameBank, FrameStore
from xskill.discover.config import DiscoverConfig
from xskill.discover.encode import encode_frames
from xskill.discover.encoder import SkillModel
from xskill.errors import DataError

Ints = npt.NDArray[np.int64]
Truth = Mapping[str, Sequence[tuple[str, int]]]
"""Video -> its sub-tasks, each with the frame in which it was first complete."""

NEAR = 0.05
"""A round trip between two embodiments has come back when it ends this near, as a share of the video."""
IN_TIME = 0.5
"""Seconds within which a retrieved moment is the right one."""
SPEEDS = (1.3, 1.5, 2.0)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Videos of one embodiment that discovery does not see."""

    bank: FrameBank
    frames: FrameStore
    episodes: Ints


@dataclass(frozen=True, eq=False)
class Encoded:
    """The clips of held-out videos of one embodiment, N of them, a clip for each frame."""

    name: str
    videos: tuple[str, ...]
    fps: float
    lengths: Ints
    skills: Tensor
    """(N, D), of length one."""
    prototype: Tensor
    """(N,), the nearest."""
    video: Tensor
    """(N,), which of `videos`."""
    frame: Tensor
    """(N,), counted from the video's first."""

    @property
    def place(self) -> Tensor:
        """Where in its video each clip begins, from 0 to 1."""
        return self.frame / torch.from_numpy(self.lengths - 1).clamp(min=1).to(self.frame.device)[self.video]


def encoded(model: SkillModel, held: HeldOut, config: DiscoverConfig, speed: float = 1.0) -> Encoded:
    """Encode held-out videos as a robot's videos and prompts are encoded, shown `speed` times as fast."""
    episodes, device = held.bank.episodes, model.prototypes.weight.device
    kept = [subsampled(int(length), speed) for length in episodes.lengths[held.episodes]]
    index = [torch.from_numpy(s + k) for s, k in zip(episodes.starts[held.episodes], kept, strict=True)]
    skills = F.normalize(encode_frames(model, held.frames, index, config).float(), dim=-1)
    lengths = np.array([len(frames) for frames in kept])
    return Encoded(
        episodes.embodiment,
        tuple(episodes.names[episode] for episode in held.episodes),
        episodes.fps,
        lengths,
        skills,
        model.prototypes(skills).argmax(-1),
        torch.arange(len(lengths)).repeat_interleave(torch.from_numpy(lengths)).to(device),
        torch.cat([torch.arange(int(length)) for length in lengths]).to(device),
    )


@torch.no_grad()
def measures(
    model: SkillModel, held: Sequence[HeldOut], config: DiscoverConfig, speeds: Sequence[float] = ()
) -> dict[str, float]:
    """Every measure by name; true ones where the ground truth lies beside all banks, also at other `speeds`."""
    bodies = [encoded(model, one, config) for one in held]
    found = {name: value for body in bodies for name, value in usage(body, config.num_prototypes).items()}
    pairs = list(combinations(bodies, 2))
    even = min(found[f"evenness_{body.name}"] for body in bodies)  # all clips at one prototype share it perfectly
    found["shared_usage"] = even * (_mean([overlap(a, b, config.num_prototypes) for a, b in pairs]) if pairs else 1.0)
    found["round_trip"] = _mean([round_trip(a, b) for a, b in pairs])
    truths = [read_truth(one.bank) for one in held]
    if all(truth is not None for truth in truths):
        robot, truth = bodies[0], truths[0] or {}
        found["sub_task_information"] = information(bodies, [t or {} for t in truths])
        for body, one, its in zip(bodies[1:], held[1:], truths[1:], strict=True):
            found |= retrieval(robot, truth, body, its or {}, 1.0)
            for speed in speeds:
                found |= retrieval(robot, truth, encoded(model, one, config, speed), its or {}, speed)
    return found


def usage(body: Encoded, prototypes: int) -> dict[str, float]:
    """How many prototypes an embodiment uses, and how evenly: the entropy of its usage over the largest possible."""
    share = _shares(body, prototypes)
    entropy = max(0.0, -(share * share.clamp(min=1e-12).log()).sum().item() / math.log(prototypes))
    return {f"used_{body.name}": float((share > 0).sum()), f"evenness_{body.name}": entropy}


def overlap(one: Encoded, other: Encoded, prototypes: int) -> float:
    """How far two embodiments use the same prototypes equally often: 1 fully, 0 not at all."""
    return torch.minimum(_shares(one, prototypes), _shares(other, prototypes)).sum().item()


def _shares(body: Encoded, prototypes: int) -> Tensor:
    return torch.bincount(body.prototype, minlength=prototypes) / len(body.prototype)


def round_trip(one: Encoded, other: Encoded) -> float:
    """Share of clips that find back: to the nearest clip of the other embodiment, and from there home again.

    It tells bodies that have drifted apart, but not which of two good models is better: the more a skill is the same in
    all videos, the more trips end at the right moment of another one, which without ground truth counts as lost.
    """
    alike = one.skills @ other.skills.T
    there, back = alike.argmax(1), alike.argmax(0)
    return (_returned(one, back[there]) + _returned(other, there[back])) / 2


def _returned(body: Encoded, end: Tensor) -> float:
    home = (body.video[end] == body.video) & ((body.place[end] - body.place).abs() <= NEAR)
    return home.float().mean().item()


def read_truth(bank: FrameBank) -> Truth | None:
    """Video -> its sub-tasks with the frame in which each was complete, where somebody has noted that."""
    path = bank.path.with_name(f"{bank.path.name}.ground-truth.json")
    try:
        return {name: [(task, int(at)) for task, at in done] for name, done in json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error}; delete it to go without") from None


def labels(body: Encoded, truth: Truth, speed: float = 1.0) -> npt.NDArray[np.str_]:
    """The sub-task that each clip (N,) is on the way to; empty after the last."""
    of_video = []
    for name, length in _videos(body):
        ends = [at / speed for _, at in truth[name]]
        tasks = np.array([*(task for task, _ in truth[name]), ""])
        of_video.append(tasks[np.searchsorted(ends, np.arange(length) - 1e-6)])
    return np.concatenate(of_video)


def information(bodies: Sequence[Encoded], truths: Sequence[Truth]) -> float:
    """Normalised mutual information between the prototypes of all embodiments' clips and their sub-tasks."""
    task = np.concatenate([labels(body, truth) for body, truth in zip(bodies, truths, strict=True)])
    prototype = np.concatenate([body.prototype.cpu().numpy() for body in bodies])
    return mutual_information(task[task != ""], prototype[task != ""])


def mutual_information(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Mutual information of two labellings (N,), over the mean of their entropies."""
    rows, columns = (np.unique(values, return_inverse=True)[1] for values in (one, other))
    if not len(rows):
        return 0.0
    joint = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(joint, (rows, columns), 1 / len(rows))

    def entropy(shares: npt.NDArray[np.float64]) -> float:
        return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())

    apart = entropy(joint.sum(1)) + entropy(joint.sum(0))
    return 2 * (apart - entropy(joint)) / apart if apart > 0 else 1.0


def retrieval(robot: Encoded, robot_truth: Truth, body: Encoded, truth: Truth, speed: float) -> dict[str, float]:
    """What the robot's nearest clip to each of a demonstrator's clips tells.

    Among clips of the robot's video of the same name: median time error in seconds, and the share within half a
    second. Among those of all its other videos, where one of them shows it: the share on the way to the same sub-task.
    """
    mark = body.name if speed == 1 else f"{body.name}_x{speed:g}"
    alike = body.skills @ robot.skills.T
    found: dict[str, float] = {}
    same_name = np.array(body.videos)[:, None] == np.array(robot.videos)
    same = torch.from_numpy(same_name).to(alike.device)[body.video][:, robot.video]
    nearest = robot.frame[alike.masked_fill(~same, -torch.inf).argmax(1)].cpu().numpy()
    times = [_robots_frames(name, n, robot, robot_truth, truth, speed) for name, n in _videos(body)]
    error = np.abs(nearest - np.concatenate(times)) / robot.fps
    error = error[np.isfinite(error)]
    if len(error):
        found = {f"time_error_{mark}": float(np.median(error)), f"recall_{mark}": float((error <= IN_TIME).mean())}
    elsewhere = alike.masked_fill(same, -torch.inf).argmax(1).cpu().numpy()
    mine, theirs = labels(body, truth, speed), labels(robot, robot_truth)
    judged = (mine != "") & ((mine[:, None] == theirs) & ~same.cpu().numpy()).any(1)  # there is something to be found
    if judged.any():
        found[f"sub_task_{mark}"] = float((mine == theirs[elsewhere])[judged].mean())
    return found


def _robots_frames(
    name: str, length: int, robot: Encoded, robot_truth: Truth, truth: Truth, speed: float
) -> npt.NDArray[np.float64]:
    """Which frame of the robot's video of that name each frame of a demonstrator's video corresponds to, (length,).

    Both run evenly from one completed sub-task to the next, so motions of other durations can be compared too.
    """
    if name not in robot.videos:
        return np.full(length, np.nan)
    last = int(robot.lengths[robot.videos.index(name)]) - 1
    same_order = [task for task, _ in truth[name]] == [task for task, _ in robot_truth[name]]
    mine = [at / speed for _, at in truth[name]] if same_order else []
    theirs = [at for _, at in robot_truth[name]] if same_order else []
    return np.interp(np.arange(length), [0, *mine, length - 1], [0, *theirs, last])


def _videos(body: Encoded) -> Iterable[tuple[str, int]]:
    return zip(body.videos, map(int, body.lengths), strict=True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
