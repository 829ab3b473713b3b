"""diffusion_policy's replay buffers become datasets; and a sentence for what is wrong with one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.data.sources.made import AS_IT_IS, EPISODES, assert_same, converted, left_out, replay
from xskill.data.sources import Choice, arrays
from xskill.data.sources.zarr_store import read_zarr
from xskill.errors import DataError


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["replay.zarr", "replay.zarr.zip"])
def test_a_replay_buffer_becomes_a_dataset(
    tmp_path: Path, name: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "PIECE", 5 * 40 * 56 * 3)  # pieces that end elsewhere than chunks and episodes
    source = read_zarr(replay(tmp_path / name, version), AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("000000", "000001", "000002")
    assert dataset.fps == 10
    assert_same(dataset, "img", wrist="camera_1")
    told = "\n".join(source.notes)
    assert "state: state" in told
    assert "not used: keypoint" in told
    assert "10 frames a second, a guess" in told


@pytest.mark.parametrize("largest", [255, 1])
def test_pictures_that_are_floats_are_read(tmp_path: Path, largest: int) -> None:
    floats = np.concatenate([episode.pictures for episode in EPISODES]).astype(np.float32) * (largest / 255)
    source = read_zarr(replay(tmp_path / "a.zarr", img=floats), Choice(cameras=("img",)))
    assert any("img is not bytes" in note for note in source.notes)
    assert_same(converted(source, tmp_path / "out"), "img")


def changed(path: Path, **fields: object) -> None:
    """Change what the array at `path` says of itself."""
    about = path / ".zarray"
    about.write_text(json.dumps(json.loads(about.read_text()) | fields))


def linked(path: Path) -> None:
    path.rename(path.parent.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent.parent / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda root: shutil.rmtree(root / "data/action"), "has no data/action, only .*img"),
        (lambda root: (root / "data/.zgroup").unlink(), "has no 'data'"),
        (lambda root: shutil.rmtree(root / "meta/episode_ends"), "episode_ends is missing"),
        (lambda root: (root / "data/img/.zarray").write_text("{"), "data is damaged"),
        (lambda root: (root / "data/action/0.0").write_bytes(b"none"), "data/action is damaged"),
        (lambda root: (root / "meta/episode_ends/0").write_bytes(b"none"), "meta/episode_ends is damaged"),
        (
            lambda root: changed(root / "data/action", shape=[35, 4]),
            r"action is \(35, 4\); .* ends at 36",
        ),
        (lambda root: changed(root / "data/img", shape=[36, 10**5, 10**5, 3]), "pictures are 100000 x 100000"),
        (lambda root: changed(root / "data/img", chunks=[36, 10**5, 10**5, 3]), "at most 1024 MB are unpacked"),
        (lambda root: changed(root / "data/action", dtype="|O"), "data is damaged"),
        (lambda root: changed(root / "data/action", dtype="|O", filters=[{"id": "pickle"}]), "data is damaged"),
        (lambda root: changed(root / "data/action", filters=[{"id": "json2"}]), "data is damaged"),
        (
            lambda root: changed(root / "data/action", filters=[{"id": "base64"}]),
            "packed as 'base64', which",
        ),
        (lambda root: changed(root / "data/img", compressor={"id": "imagecodecs_other"}), "pip install imagecodecs"),
        (
            lambda root: changed(root / "data/action", dtype="<U2", fill_value=""),
            "expected a row of numbers",
        ),
        (lambda root: linked(root / "data/img"), "img leads out of the store"),
    ],
)
def test_a_bad_replay_buffer_is_refused(tmp_path: Path, spoil: Callable[[Path], object], told: str) -> None:
    spoil(replay(tmp_path / "a.zarr"))
    with pytest.raises(DataError, match=told) as caught:
        read_zarr(tmp_path / "a.zarr", AS_IT_IS)
    assert str(tmp_path / "a.zarr") in str(caught.value)


@pytest.mark.parametrize("ends", [[12, 12, 36], [21, 12, 36], [-3, 21, 36]])
def test_episodes_of_a_replay_buffer_follow_each_other(tmp_path: Path, ends: list[int]) -> None:
    root = zarr.open_group(replay(tmp_path / "a.zarr"), mode="a")
    root["meta/episode_ends"][:] = ends
    with pytest.raises(DataError, match="episode_ends does not rise"):
        read_zarr(tmp_path / "a.zarr", AS_IT_IS)


def test_a_file_that_is_no_replay_buffer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no zarr store"):
        read_zarr(tmp_path / "none.zarr", AS_IT_IS)
    with pytest.raises(DataError, match="is damaged, or not what its name says"):
        read_zarr(tmp_path, AS_IT_IS)
    whole = replay(tmp_path / "whole.zarr.zip").read_bytes()
    for name, content in {"text": b"no zip", "empty": b"", "half": whole[: len(whole) // 2]}.items():
        path = tmp_path / f"{name}.zarr.zip"
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}\.zarr\.zip is damaged, or not what its name says"):
            read_zarr(path, AS_IT_IS)
    none = replay(tmp_path / "flat.zarr", img=np.zeros((36, 5)), camera_1=np.zeros((36, 40, 56, 1), np.uint8))
    with pytest.raises(DataError, match=r"no pictures .*, only .*camera_1 \(36, 40, 56, 1\)"):
        read_zarr(none, AS_IT_IS)


def test_episodes_that_lost_a_chunk_are_left_out(tmp_path: Path) -> None:
    path = replay(tmp_path / "a.zarr")
    (path / "data/img/1.0.0.0").unlink()  # frames 7 to 13: of the first and second episode
    first, second = left_out(read_zarr(path, AS_IT_IS), tmp_path / "out")
    assert first == "000000: a picture of data/img is missing, or all black: its chunk is not there"
    assert second.startswith("000001: a picture")
    for name in ("action", "state"):
        path = replay(tmp_path / f"{name}.zarr")
        (path / f"data/{name}/5.0").unlink()
        source = read_zarr(path, AS_IT_IS)
        assert source.problems == (f"episode 2 lacks a part of data/{name}: a chunk of it is lost",)
        assert [recording.name for recording in source.recordings] == ["000000", "000001"]


def test_pictures_of_a_replay_buffer_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = replay(tmp_path / "a.zarr")
    (path / "data/img/1.0.0.0").write_bytes(b"none")  # frames 7 to 13: of the first and second episode
    first, second = left_out(read_zarr(path, AS_IT_IS), tmp_path / "out")
    assert first.startswith("000000: ")
    assert second.startswith("000001: ")
    assert "data/img is damaged" in first
    floats = np.concatenate([episode.pictures for episode in EPISODES]).astype(np.float32)
    floats[30] = -5
    (problem,) = left_out(read_zarr(replay(tmp_path / "b.zarr", img=floats), AS_IT_IS), tmp_path / "floats")
    assert "000002: " in problem
    assert "pictures from -5 to -5; expected 0 to 255" in problem
