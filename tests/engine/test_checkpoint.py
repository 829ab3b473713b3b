"""Checkpoints are whole or not there, damage is named and passed over, and nothing good is ever lost."""

import errno
import json
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from xskill.engine import folder
from xskill.engine.average import MovingAverage
from xskill.engine.checkpoint import PRETRAINED, Better, Checkpoints, Training, restore
from xskill.engine.folder import check_folder, sweep
from xskill.errors import CheckpointError


def training(seed: int, averaged: bool = True) -> Training:
    """A network with some optimizer state."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    average = MovingAverage(module, 0.99, 0.75) if averaged else None
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
        if average:
            average.update(module)
    return Training(module, optimizer, average)


def checkpoints(path: Path, keep_last: int = 2, better: Better = "min") -> Checkpoints:
    return Checkpoints(path / "checkpoints", keep_last, "score", better)


def steps(of: Checkpoints) -> list[int]:
    return [checkpoint.step for checkpoint in of.listed()]


def test_averages_come_back_laid_out_as_the_weights_are(tmp_path: Path) -> None:
    """Saved they all lie the same way; a fused optimizer refuses averages that lie otherwise than their weights."""

    def trained() -> Training:
        module = nn.Conv2d(3, 4, 5).to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(module.parameters())
        module(torch.randn(2, 3, 8, 8)).sum().backward()
        optimizer.step()
        return Training(module, optimizer, None)

    kept, saved, other = checkpoints(tmp_path), trained(), trained()
    kept.save(saved, 1, {"score": 1.0}, {})
    newest = kept.newest()
    assert newest is not None
    restore(newest.path, other)
    weight = next(other.module.parameters())
    assert not weight.is_contiguous()
    for name in ("exp_avg", "exp_avg_sq"):
        average = other.optimizer.state[weight][name]
        assert average.stride() == weight.stride()
        assert torch.equal(average, saved.optimizer.state[next(saved.module.parameters())][name])


def test_only_what_nobody_writes_any_more_is_swept_away(tmp_path: Path) -> None:
    names = [f".aside-{os.getppid()}-a", f".aside-{os.getpid()}-b", ".aside-99999999-c", ".aside-d"]
    for name in names:
        (tmp_path / name).write_text("half")
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == names[:1]


@pytest.mark.parametrize("averaged", [True, False])
def test_everything_comes_back_bit_equal(tmp_path: Path, averaged: bool) -> None:
    saved, other = training(0, averaged), training(1, averaged)
    kept = checkpoints(tmp_path)
    kept.save(saved, 7, {"score": 1.5}, {})
    newest = kept.newest()
    assert newest is not None
    assert (newest.step, newest.metrics) == (7, {"score": 1.5})
    restore(newest.path, other)
    for name, tensor in saved.module.state_dict().items():
        assert torch.equal(other.module.state_dict()[name], tensor), name
    for name, tensor in saved.used().state_dict().items():
        assert torch.equal(other.used().state_dict()[name], tensor), name
    if averaged:
        assert saved.averaged is not None
        assert other.averaged is not None
        assert other.averaged.updates == saved.averaged.updates == 3
    before, after = saved.optimizer.state_dict(), other.optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for parameter, values in before["state"].items():
        for name, value in values.items():
            assert torch.equal(after["state"][parameter][name], value)


def test_no_file_of_a_checkpoint_is_a_pickle(tmp_path: Path) -> None:
    checkpoints(tmp_path).save(training(0), 1, {}, {})
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {name.rsplit(".")[-1] for name in files} == {"safetensors", "json"}
    for data in files.values():
        assert not data.startswith((b"PK", b"\x80"))  # torch's zip, a bare pickle


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, Path.unlink], ids=["truncated", "bit flipped", "missing"])
@pytest.mark.parametrize(
    "name",
    [
        "manifest.json",
        PRETRAINED,
        "training/weights.safetensors",
        "training/optimizer.safetensors",
        "training/state.json",
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    kept = checkpoints(tmp_path)
    for step in (10, 20):
        kept.save(training(step), step, {"score": 1.0}, {})
    damage(kept.folder / "step-00000020" / name)
    newest = kept.newest()
    assert newest is not None
    assert newest.step == 10
    restore(newest.path, training(0))
    problems = kept.put_damaged_aside()
    assert len(problems) == 1
    assert "step-00000020" in problems[0]
    assert name.rsplit("/")[-1] in problems[0]
    assert steps(kept) == [10]
    assert (kept.folder / "damaged-step-00000020").is_dir()
    assert kept.put_damaged_aside() == []


def test_the_damaged_step_can_be_written_again(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path)
    kept.save(training(0), 10, {}, {})
    truncate(kept.folder / "step-00000010" / PRETRAINED)
    kept.save(training(0), 10, {}, {})
    check_folder(kept.folder / "step-00000010")


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path, keep_last=2)
    for step, score in [(1, 5.0), (2, 3.0), (3, 4.0), (4, 6.0), (5, 7.0)]:
        kept.save(training(0), step, {"score": score}, {})
    assert steps(kept) == [2, 4, 5]
    best = kept.best()
    assert best is not None
    assert best.step == 2


def test_the_largest_is_best_when_told_so_and_nan_never_is(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path, keep_last=1, better="max")
    for step, score in [(1, 5.0), (2, math.nan), (3, 5.0), (4, math.inf), (5, 1.0)]:
        kept.save(training(0), step, {"score": score}, {})
    assert steps(kept) == [3, 5]


def test_the_newest_is_best_when_told_so(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path, keep_last=1, better="newest")
    assert kept.best() is None
    for step, score in [(1, 1.0), (2, 2.0)]:
        kept.save(training(0), step, {"score": score}, {})
    assert steps(kept) == [2]


def test_without_an_evaluation_the_newest_is_best(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path)
    assert kept.best() is None
    for step in (1, 2):
        kept.save(training(0), step, {}, {})
    best = kept.best()
    assert best is not None
    assert best.step == 2


@pytest.mark.parametrize("position", range(6))
def test_a_full_disk_leaves_the_previous_checkpoint_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    kept = checkpoints(tmp_path)
    kept.save(training(0), 10, {}, {})
    fsync, calls = os.fsync, iter(range(100))

    def full(handle: int) -> None:
        if next(calls) == position:  # the first five are files, then come folders
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"could not write .*step-00000020: No space left on device"):
        kept.save(training(1), 20, {}, {})
    monkeypatch.undo()
    assert [path.name for path in kept.folder.iterdir()] == ["step-00000010"]
    assert check_folder(kept.folder / "step-00000010")["step"] == 10


class KilledError(BaseException):
    """Stands for kill -9: nothing may clean up after it."""


@pytest.mark.parametrize("position", range(11))
def test_killed_at_any_moment_of_saving_a_whole_checkpoint_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    kept = checkpoints(tmp_path, keep_last=1)
    kept.save(training(0), 10, {}, {})
    calls = iter(range(100))

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == position:
                raise KilledError
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(folder, "_write_durably", dying(folder._write_durably))
    monkeypatch.setattr(Path, "rename", dying(Path.rename))
    monkeypatch.setattr(folder, "_flush_folder", dying(folder._flush_folder))
    monkeypatch.setattr(folder, "_delete", dying(folder._delete))
    killed = False
    try:
        kept.save(training(1), 20, {}, {})
    except KilledError:
        killed = True
    monkeypatch.undo()
    assert killed
    sweep(kept.folder)
    assert kept.put_damaged_aside() == []
    newest = kept.newest()
    assert newest is not None
    assert newest.step in (10, 20)
    restore(newest.path, training(3))
    assert {path.name for path in kept.folder.iterdir()} <= {"step-00000010", "step-00000020"}


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path)
    kept.save(training(0), 1, {}, {})
    newest = kept.newest()
    assert newest is not None
    other = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="does not fit this network"):
        restore(newest.path, Training(other, torch.optim.AdamW(other.parameters()), None))


def test_a_manifest_says_what_wrote_it(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path)
    kept.save(training(0), 1, {}, {"versions": {"torch": "x"}})
    assert json.loads((kept.folder / "step-00000001/manifest.json").read_text())["versions"] == {"torch": "x"}
