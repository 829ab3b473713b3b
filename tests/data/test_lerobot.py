"""Datasets as LeRobot keeps them: read as they were written."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.data.samples import (
    ABOUT,
    ACTIONS,
    CAMERAS,
    INDEX,
    LENGTHS,
    SHORT,
    STATES,
    TABLE,
    all_frames,
    all_numbers,
    assert_same_frames,
    decoded,
    film,
    numbers,
    picture,
    recording,
    source,
    task,
    write_v21,
)
from xskill.data import lerobot_write
from xskill.data.lerobot import ACTION, IMAGES, STATE, Dataset, open_dataset
from xskill.data.lerobot_write import write_dataset
from xskill.data.recording import Recording, Source
from xskill.engine.folder import whole
from xskill.errors import DataError


def assert_as_written(dataset: Dataset, lengths: tuple[int, ...]) -> None:
    assert dataset.lengths.tolist() == list(lengths)
    assert dataset.tasks == tuple(task(episode) for episode in range(len(lengths)))
    assert dataset.sizes == CAMERAS
    assert np.array_equal(dataset.states, all_numbers(STATES, lengths))
    assert np.array_equal(dataset.actions, all_numbers(ACTIONS, lengths))
    for camera in CAMERAS:
        assert_same_frames(decoded(dataset, camera), all_frames(camera, lengths))


@pytest.mark.parametrize("fps", [10, 12.5, 29.97])
@pytest.mark.parametrize("files", ["one", "several"])
def test_a_dataset_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fps: float, files: str
) -> None:
    if files == "several":
        monkeypatch.setattr(lerobot_write, "LARGEST_VIDEO", 4000)
        monkeypatch.setattr(lerobot_write, "LARGEST_TABLE", 1000)
    written = write_dataset(tmp_path / "a", source(fps), "arm")
    assert (written.episodes, written.frames, written.problems) == (len(LENGTHS), sum(LENGTHS), ())
    tables, films = (len(list((tmp_path / "a").glob(kind))) for kind in ("data/*/*", "videos/*top/*/*"))
    assert (tables, films) == (1, 1) if files == "one" else min(tables, films) > 1
    dataset = open_dataset(tmp_path / "a")
    assert (dataset.version, dataset.fps) == ("v3.0", fps)
    assert dataset.names == tuple(f"take {episode}" for episode in range(len(LENGTHS)))
    assert_as_written(dataset, LENGTHS)
    assert whole(tmp_path / "a")


def test_the_older_layout_is_read(tmp_path: Path) -> None:
    write_v21(tmp_path / "a")
    dataset = open_dataset(tmp_path / "a")
    assert (dataset.version, dataset.fps) == ("v2.1", 10)
    assert dataset.names == tuple(f"{episode:06d}" for episode in range(len(LENGTHS)))
    assert_as_written(dataset, LENGTHS)


@pytest.mark.parametrize("width", [1, None])
def test_numbers_may_be_one_or_none(tmp_path: Path, width: int | None) -> None:
    write_dataset(tmp_path / "a", source(lengths=SHORT, states=width, actions=width), "arm")
    dataset = open_dataset(tmp_path / "a")
    if width is None:
        assert dataset.states is dataset.actions is None
    else:
        assert np.array_equal(dataset.states, all_numbers(1, SHORT))
        assert np.array_equal(dataset.actions, all_numbers(1, SHORT))


def test_odd_sides_are_filled_up(tmp_path: Path) -> None:
    frames = np.stack([picture("top", 0, frame)[:63, :95] for frame in range(4)])
    one = Recording("a", {"top": lambda size: iter(frames)})
    write_dataset(tmp_path / "a", Source([one], 10, {"top": (63, 95)}, ABOUT), "arm")
    dataset = open_dataset(tmp_path / "a")
    assert dataset.sizes == {"top": (64, 96)}
    assert np.abs(decoded(dataset, "top")[:, :63, :95].astype(float) - frames).mean() < 4


def test_statistics_are_those_of_all_frames(folder: Path) -> None:
    stats = json.loads((folder / "meta/stats.json").read_text())
    pixels = {IMAGES + camera: all_frames(camera, SHORT).reshape(-1, 3) / 255 for camera in CAMERAS}
    expected = {STATE: all_numbers(STATES, SHORT), ACTION: all_numbers(ACTIONS, SHORT)} | pixels
    for name, values in expected.items():
        for kind in ("mean", "std", "min", "max"):
            assert np.ravel(stats[name][kind]) == pytest.approx(getattr(values, kind)(0), abs=1e-6)
        assert stats[name]["count"] == [sum(SHORT)]
    index = pq.read_table(folder / INDEX).to_pylist()
    for episode, length in enumerate(SHORT):
        told = np.quantile(numbers(episode, length, ACTIONS), 0.9, axis=0)
        assert index[episode]["stats/action/q90"] == pytest.approx(told, abs=1e-6)
        told = np.quantile(film("top", episode, length).reshape(-1, 3) / 255, 0.9, axis=0, method="inverted_cdf")
        assert np.ravel(index[episode][f"stats/{IMAGES}top/q90"]) == pytest.approx(told, abs=1e-6)


# What is wrong with a recording


def test_recordings_that_do_not_fit_are_left_out_and_named(tmp_path: Path) -> None:
    good = [recording(0, 5), recording(1, 3)]
    frames = {name: lambda size, name=name: iter(film(name, 0, 5)) for name in CAMERAS}
    states, actions = numbers(0, 5, STATES), numbers(0, 5, ACTIONS)
    gap = np.where(np.arange(5)[:, None] == 2, np.nan, actions)
    bad = {
        "short": (Recording("short", frames, states, actions[:-1]), "actions are (4, 4) for 5 frames"),
        "gap": (Recording("gap", frames, states, gap), "actions are not all finite"),
        "words": (Recording("words", frames, states, np.full((5, ACTIONS), "a")), "actions are not all finite"),
        "wide": (Recording("wide", frames, states, numbers(0, 5, 6)), "'action': 6"),
        "mute": (Recording("mute", frames, states), "the first one"),
        "blind": (Recording("blind", {"top": frames["top"]}, states, actions), "it has the cameras ['top']"),
        "empty": (Recording("empty", dict.fromkeys(CAMERAS, lambda size: iter(())), states, actions), "no frames"),
        "uneven": (
            Recording("uneven", frames | {"wrist": lambda size: iter(film("wrist", 0, 4))}, states, actions),
            "camera 'wrist' has 4 frames",
        ),
    }
    made = [good[0], *(one for one, _ in bad.values()), good[1]]
    written = write_dataset(tmp_path / "a", Source(made, 10, CAMERAS, ABOUT), "arm")
    assert (written.episodes, written.frames) == (2, 8)
    assert len(written.problems) == len(bad)
    for problem, (name, (_, reason)) in zip(written.problems, bad.items(), strict=True):
        assert problem.startswith(f"{name}: ")
        assert reason in problem
    dataset = open_dataset(tmp_path / "a")
    assert dataset.names == ("take 0", "take 1")
    assert_as_written(dataset, (5, 3))


def test_a_source_with_nothing_that_fits_makes_no_dataset(tmp_path: Path) -> None:
    one = Recording("take 0", recording(0, 5).shots, numbers(0, 2, STATES))
    with pytest.raises(DataError, match=r"nothing of it can be read: take 0: .* for 5 frames"):
        write_dataset(tmp_path / "a", Source([one], 10, CAMERAS, ABOUT), "arm")
    assert list(tmp_path.iterdir()) == []


# What is wrong with a folder


def test_a_folder_that_is_there_is_replaced_only_when_asked(folder: Path) -> None:
    before = (folder / TABLE).read_bytes()
    with pytest.raises(DataError, match="is there already"):
        write_dataset(folder, source(lengths=(4,)), "arm")
    assert (folder / TABLE).read_bytes() == before
    write_dataset(folder, source(lengths=(4,)), "arm", overwrite=True)
    assert open_dataset(folder).lengths.tolist() == [4]
    assert [path.name for path in folder.parent.iterdir()] == ["data"]


WRITER = """
import sys, time
from pathlib import Path
from tests.data.samples import CAMERAS, ABOUT, recording
from xskill.data.lerobot_write import write_dataset
from xskill.data.recording import Source

def recordings():
    for episode in range(3):
        yield recording(episode, 4)
    print("half", flush=True)
    time.sleep(600)

write_dataset(Path(sys.argv[1]), Source(recordings(), 10, CAMERAS, ABOUT), "arm")
"""


def test_a_kill_while_writing_leaves_no_dataset(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path / "a")]
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "a").exists()
    write_dataset(tmp_path / "a", source(lengths=SHORT), "arm")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert_as_written(open_dataset(tmp_path / "a"), SHORT)


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def recordings() -> Iterator[Recording]:
        yield recording(0, 4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / "a", Source(recordings(), 10, CAMERAS, ABOUT), "arm")
    assert list(tmp_path.iterdir()) == []
