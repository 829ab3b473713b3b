"""From datasets to frame banks, and whether a dataset is fit."""

import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.test_frames import anonymous_memory
from xskill.data.check import check_dataset
from xskill.data.config import DataConfig
from xskill.data.decode import bank_of, prepare
from xskill.data.frames import FrameBank, Making
from xskill.data.lerobot import Clip, open_dataset
from xskill.data.lerobot_write import write_dataset
from xskill.data.recording import Pixels, Recording, Source
from xskill.data.sources.bank import read_bank
from xskill.errors import ConfigError, DataError

FPS = 10.0
SIZE = (32, 48)


def shots(length: int, shade: int, size: tuple[int, int]) -> Iterator[Pixels]:
    """A bright bar that moves over a dark ground, so that every moment looks different."""
    for frame in range(length):
        picture = np.full((*size, 3), shade, np.uint8)
        at = round(frame / max(1, length - 1) * (size[1] - 8))
        picture[:, at : at + 8] = 240
        yield picture


def bar(frame: Pixels) -> float:
    """Where the bar is, from 0 to 1."""
    bright = np.flatnonzero(frame[..., 0].mean(0) > 130)
    return float(bright.mean() / (frame.shape[1] - 1))


def written(folder: Path, lengths: tuple[int, ...] = (12, 20, 7), *, robot: bool = False, cameras: int = 1) -> Path:
    random, made = np.random.default_rng(0), []
    for index, length in enumerate(lengths):
        films = {f"eye{n}": partial(shots, length, 20 * index + 10) for n in range(cameras)}
        numbers = random.normal(size=(2, length, 3)).astype(np.float32)
        made.append(Recording(f"take {index}", films, *(numbers if robot else ())))
    sizes = dict.fromkeys([f"eye{n}" for n in range(cameras)], SIZE)
    write_dataset(folder, Source(made, FPS, sizes, {}), "somebody")
    return folder


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bank_has_every_frame_in_its_place(tmp_path: Path, workers: int) -> None:
    dataset = open_dataset(written(tmp_path / "robot", robot=True, cameras=2))
    told: list[tuple[str, int, int]] = []
    cameras = {"side": "eye0", "wrist": "eye1"}
    bank = bank_of(
        dataset, "robot", tmp_path / "banks", cameras, 24, workers=workers, progress=lambda *one: told.append(one)
    )
    assert bank.cameras == ("side", "wrist")
    assert bank.episodes.names == ("robot/take 0", "robot/take 1", "robot/take 2")
    assert np.array_equal(bank.episodes.states, dataset.states)
    for camera in bank.cameras:
        for frames, length in zip(bank.videos(camera).values(), (12, 20, 7), strict=True):
            assert frames.shape == (length, 24, 24, 3)
            places = [bar(frame) for frame in frames]
            assert places == pytest.approx(np.linspace(8 / 2 / 48, 1 - 8 / 2 / 48, length).tolist(), abs=0.05)
    assert told[-1][2] == sum(added for _, added, _ in told) == 39
    told.clear()
    again = bank_of(dataset, "robot", tmp_path / "banks", cameras, 24, progress=lambda *one: told.append(one))
    assert (again.path, told) == (bank.path, [])


def test_making_a_bank_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(written(tmp_path / "people"))
    from xskill.data import decode

    real, asked = decode._decode, []

    def stopped(making: Making, episode: int, clips: Mapping[str, Clip]) -> int:
        asked.append(episode)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(making, episode, clips)

    monkeypatch.setattr(decode, "_decode", stopped)
    with pytest.raises(KeyboardInterrupt):
        bank_of(dataset, "people", tmp_path / "banks", {"side": "eye0"}, 24)
    bank = bank_of(dataset, "people", tmp_path / "banks", {"side": "eye0"}, 24)
    assert asked == [0, 1, 1, 2]
    bank.verify()


def test_frames_that_are_not_there_do_not_reach_a_bank(tmp_path: Path) -> None:
    folder = written(tmp_path / "people")
    video = next(folder.rglob("*.mp4"))
    whole = video.read_bytes()
    video.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataError, match=rf"{video.name} does not match its sha256.*xskill data check"):
        bank_of(open_dataset(folder), "people", tmp_path / "banks", {"side": "eye0"}, 24)
    found = check_dataset(folder)
    assert not found.ok
    assert any("does not match its sha256" in problem for problem in found.problems)

    (folder / "manifest.json").unlink()  # as with datasets that others wrote
    video.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=video.name):
        bank_of(open_dataset(folder), "people", tmp_path / "banks", {"side": "eye0"}, 24)
    assert not any((tmp_path / "banks").glob("*/manifest.json"))


def test_what_is_fit_and_what_is_not(tmp_path: Path) -> None:
    good = check_dataset(written(tmp_path / "good", robot=True), workers=2)
    assert good.about() == {"ok": True, "episodes": 3, "frames": 39, "problems": ()}
    assert "at least two are needed" in check_dataset(written(tmp_path / "one", (5,))).problems[0]
    blank = [Recording(name, {"eye0": lambda size: [np.zeros((*size, 3), np.uint8)] * 5}) for name in ("dark", "night")]
    write_dataset(tmp_path / "dark", Source(blank, FPS, {"eye0": SIZE}, {}), "nobody")
    assert "'dark' shows nothing" in check_dataset(tmp_path / "dark").problems[0]
    film = {"eye0": partial(shots, 5, 9)}
    half = [Recording(name, film, None, np.zeros((5, 2), np.float32)) for name in ("half", "other", "half")]
    told = write_dataset(tmp_path / "half", Source(half, FPS, {"eye0": SIZE}, {}), "somebody")
    assert (told.episodes, told.problems) == (2, ("half: another one has the same name",))
    assert "actions but no states" in check_dataset(tmp_path / "half").problems[0]
    assert "is not a folder" in check_dataset(tmp_path / "nowhere").problems[0]


def test_datasets_are_prepared_for_training(tmp_path: Path) -> None:
    written(tmp_path / "arm", (9,) * 10, robot=True, cameras=2)
    written(tmp_path / "people", (9,) * 4)
    said: list[str] = []

    def ready(**changes: object) -> tuple[FrameBank, ...]:
        config = DataConfig(
            **{"robot": str(tmp_path / "arm"), "demonstrators": (str(tmp_path / "people"),), "size": 24} | changes
        )
        assert config.of_datasets
        data = prepare(config, tmp_path / "banks", workers=1, say=said.append, progress=lambda *_: None)
        sides = [
            (len(data.split.of(b, data.split.train)), len(data.split.of(b, data.split.held_out))) for b in data.banks
        ]
        assert sides == [(8, 2), (3, 1)]
        return data.banks

    robot, people = ready(cameras=("eye1", "eye0"))
    assert robot.cameras == ("eye1", "eye0")
    assert people.cameras == ("eye1",)
    assert said == ["people: its camera 'eye0' is taken for 'eye1'"]
    with pytest.raises(DataError, match="has no camera 'side'"):
        ready()
    with pytest.raises(ConfigError, match="two of the datasets are called 'arm'"):
        ready(demonstrators=(str(written(tmp_path / "other/arm")),))
    with pytest.raises(DataError, match="has one episode"):
        ready(cameras=("eye0",), demonstrators=(str(written(tmp_path / "few", (5,))),))
    with pytest.raises(DataError, match="has one camera; 2 are asked for"):
        ready(robot=str(written(tmp_path / "eye", (9,) * 10, robot=True)), cameras=("side", "wrist"))


def test_a_folder_that_is_called_like_a_body_is_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "franka").mkdir()
    assert not DataConfig().of_datasets
    written(tmp_path / "arm", robot=True)
    assert DataConfig(robot="arm").of_datasets
    assert DataConfig(robot="./nowhere").of_datasets


def test_a_bank_becomes_a_dataset_and_a_bank_again(tmp_path: Path) -> None:
    dataset = open_dataset(written(tmp_path / "robot", robot=True))
    bank = bank_of(dataset, "robot", tmp_path / "banks", {"side": "eye0"}, 32)
    write_dataset(tmp_path / "copy", read_bank(bank), "robot")
    copy = open_dataset(tmp_path / "copy")
    assert copy.names == bank.episodes.names
    assert np.array_equal(copy.actions, dataset.actions)
    again = bank_of(copy, "robot", tmp_path / "banks", {"side": "side"}, 32)
    apart = np.abs(again.frames("side").astype(int) - bank.frames("side"))
    assert apart.mean() < 4


@pytest.mark.slow
def test_a_dataset_larger_than_memory_is_decoded_and_learned_from(tmp_path: Path) -> None:
    folder, made = tmp_path / "long", []
    for index in range(6):
        made.append(Recording(f"{index}", {"side": partial(shots, 1500, 30 * index)}))
    write_dataset(folder, Source(made, FPS, {"side": (64, 64)}, {}), "somebody")
    dataset = open_dataset(folder)
    bank_of(open_dataset(written(tmp_path / "warm")), "warm", tmp_path / "banks", {"side": "eye0"}, 112)
    before, most, done = anonymous_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, anonymous_memory() - before)
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        bank = bank_of(dataset, "long", tmp_path / "banks", {"side": "side"}, 112)
        store = bank.on(torch.device("cpu"), "side")
        for step in range(20):
            store[torch.randint(bank.episodes.frames, (16, 32), generator=torch.Generator().manual_seed(step))]
    finally:
        done.set()
        watcher.join()
    assert bank.frames("side").nbytes > 330e6
    assert most < 80e6, f"{most / 1e6:.0f} MB"  # a batch is 19 MB
