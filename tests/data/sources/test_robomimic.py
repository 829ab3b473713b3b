"""robomimic's files become datasets; and a sentence for what is wrong with one."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.data.sources.made import AS_IT_IS, assert_same, converted, left_out, robomimic, shown
from xskill.data.lerobot import open_dataset
from xskill.data.sources import Choice, arrays
from xskill.data.sources.robomimic import read_robomimic
from xskill.errors import DataError


def test_a_robomimic_file_becomes_a_dataset(tmp_path: Path) -> None:
    source = read_robomimic(robomimic(tmp_path / "lift.hdf5", control_freq=10), AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("demo_2", "demo_9", "demo_10")
    assert dataset.fps == 10
    assert set(dataset.tasks) == {"Lift"}
    assert set(dataset.sizes) == {"agentview", "robot0_eye_in_hand"}
    assert_same(dataset, "agentview", wrist="robot0_eye_in_hand")
    told = "\n".join(source.notes)
    assert "state: robot0_joint_pos, robot0_gripper_qpos" in told
    assert "not used: object" in told
    assert "agentview (agentview_image, 56 x 40)" in told


def test_what_is_asked_for_comes_before_what_robomimic_files_say(tmp_path: Path) -> None:
    path = robomimic(tmp_path / "lift.hdf5", control_freq=10)
    choice = Choice(
        fps=25, size=(32, 48), crop=(0.5, 0, 1, 1), cameras=("agentview",), states=("object",), actions="rewards"
    )
    source = read_robomimic(path, choice)
    dataset = converted(source, tmp_path / "out")
    assert (dataset.fps, dict(dataset.sizes)) == (25, {"agentview": (32, 48)})
    assert dataset.states is not None
    assert dataset.actions is not None
    assert (dataset.states.shape, dataset.actions.shape) == ((36, 10), (36, 1))
    frames = shown(dataset, "agentview", 0)
    assert frames[0].mean() < 10  # the bar begins on the left, which is cut away
    assert frames[-1, :, -10:, 0].mean() > 200


def test_a_rate_that_robomimic_files_do_not_tell_is_guessed_aloud(tmp_path: Path) -> None:
    for env in ({}, {"control_freq": "often"}, {"control_freq": -1}):
        source = read_robomimic(robomimic(tmp_path / "lift.hdf5", **env), AS_IT_IS)
        assert source.fps == 20
        assert "20 frames a second, a guess; --fps says otherwise" in source.notes


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (["robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos", "object"], 3),
        (["object", "proprio"], 2),
        ([], 0),
    ],
)
def test_the_state_of_a_robomimic_file_is_guessed(tmp_path: Path, kept: list[str], expected: int) -> None:
    with h5py.File(robomimic(tmp_path / "lift.hdf5"), "a") as file:
        for demo in file["data"].values():
            for name in ("robot0_joint_pos", "robot0_gripper_qpos", "object"):
                del demo["obs"][name]
            for number, name in enumerate(kept):
                demo["obs"][name] = np.full((len(demo["actions"]), 1), number)
    recording = next(iter(read_robomimic(tmp_path / "lift.hdf5", AS_IT_IS).recordings))
    row = None if recording.states is None else recording.states[0].tolist()
    assert row == (list(range(expected)) or None)


def test_frames_are_read_as_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "PIECE", 2**20)
    long = np.zeros((200, 240, 320, 3), np.uint8) + np.arange(200, dtype=np.uint8)[:, None, None, None]
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros((200, 2))
        seen = file.create_group("data/demo_0/obs")
        seen.create_dataset("agentview_image", data=long, compression="gzip", chunks=(1, 240, 320, 3))
    tracemalloc.start()
    (recording,) = read_robomimic(tmp_path / "a.hdf5", AS_IT_IS).recordings
    values = [int(frame[0, 0, 0]) for frame in recording.shots["agentview"]((240, 320))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values == list(range(200))
    assert peak < 8 * 2**20 < long.nbytes / 4


def test_a_file_that_is_no_robomimic_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*none\.hdf5"):
        read_robomimic(tmp_path / "none.hdf5", AS_IT_IS)
    whole = robomimic(tmp_path / "whole.hdf5").read_bytes()
    for name, content in {"text": b"not HDF5", "empty": b"", "half": whole[: len(whole) // 2]}.items():
        path = tmp_path / f"{name}.hdf5"
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}\.hdf5 is damaged, or not what its name says"):
            read_robomimic(path, AS_IT_IS)
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["images"] = np.zeros(3)
    with pytest.raises(DataError, match=r"other\.hdf5: /data is missing"):
        read_robomimic(tmp_path / "other.hdf5", AS_IT_IS)
    with h5py.File(tmp_path / "other.hdf5", "a") as file:
        file.create_group("data/train")
    with pytest.raises(DataError, match=r"other\.hdf5 has no demonstrations"):
        read_robomimic(tmp_path / "other.hdf5", AS_IT_IS)


def test_a_robomimic_file_without_pictures_says_how_to_get_them(tmp_path: Path) -> None:
    path = robomimic(tmp_path / "lift.hdf5")
    with pytest.raises(DataError, match=r"no camera 'agentvew' \(did you mean 'agentview'\?\)"):
        read_robomimic(path, Choice(cameras=("agentvew",)))
    with pytest.raises(DataError, match=r"no row of numbers 'objects' for each frame \(did you mean 'object'\?\)"):
        read_robomimic(path, Choice(states=("objects",)))
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            del demo["obs/agentview_image"], demo["obs/robot0_eye_in_hand_image"]
    with pytest.raises(DataError, match=r"no pictures, only object, .*dataset_states_to_obs\.py adds them"):
        read_robomimic(path, AS_IT_IS)
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            del demo["obs"]
    with pytest.raises(DataError, match=r"has no obs; robomimic's dataset_states_to_obs\.py"):
        read_robomimic(path, AS_IT_IS)


def replaced(demo: h5py.Group, name: str, *shape: int, **how: Any) -> h5py.Dataset:
    del demo[name]
    return demo.create_dataset(name, shape or None, **how)


def uneven(demo: h5py.Group) -> None:
    rows = replaced(demo, "actions", 9, dtype=h5py.vlen_dtype("f4"))
    for index in range(9):
        rows[index] = np.zeros(index)


def never_written(demo: h5py.Group) -> None:
    replaced(demo, "obs/agentview_image", 9, 40, 56, 3, dtype="u1", chunks=(1, 40, 56, 3))[:3] = 7


def elsewhere(demo: h5py.Group, link: object) -> None:
    del demo["actions"]
    demo["actions"] = link


def virtual(demo: h5py.Group) -> None:
    layout = h5py.VirtualLayout((9, 4), "f8")
    layout[:] = h5py.VirtualSource("other.hdf5", "secret", (9, 4))
    del demo["actions"]
    demo.create_virtual_dataset("actions", layout)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda demo: demo.pop("actions"), "demo_9/actions is missing"),
        (lambda demo: demo.pop("obs"), "demo_9 has no pictures, for it has no obs"),
        (lambda demo: demo["obs"].pop("agentview_image"), "demo_9/obs/agentview_image is missing"),
        (lambda demo: demo["obs"].pop("robot0_joint_pos"), "demo_9/obs/robot0_joint_pos is missing"),
        (lambda demo: replaced(demo, "actions", data=np.zeros((8, 4))), "8 of actions, 9 of agentview_image"),
        (lambda demo: replaced(demo, "actions", data=np.zeros((0, 4))), r"actions is \(0, 4\) float64; expected a row"),
        (lambda demo: replaced(demo, "actions", data=["no"] * 9), "actions is .* object; expected a row of numbers"),
        (uneven, "expected a row of numbers"),
        (lambda demo: replaced(demo, "actions", 10**6, 10**6, dtype="f4"), "was not written to its end"),
        (lambda demo: replaced(demo, "obs/agentview_image", 9, 10**5, 10**5, 3, dtype="u1", chunks=(1, 1, 1, 3)),
         "was not written to its end"),
        (lambda demo: replaced(demo, "obs/agentview_image", 1, 10**5, 10**5, 3, dtype="u1", chunks=(1, 9**5, 9**5, 1)),
         "at most 1024 MB are unpacked"),
        (lambda demo: replaced(demo, "obs/agentview_image", data=np.zeros((9, 2, 8193, 3), np.uint8)),
         "says its pictures are 8193 x 2; at most 8192 a side"),
        (lambda demo: replaced(demo, "obs/agentview_image", data=np.zeros((9, 40, 56, 3))), "expected pictures"),
        (never_written, "was not written to its end: 6 of its chunks are missing"),
        (lambda demo: elsewhere(demo, h5py.ExternalLink("other.hdf5", "/secret")), "actions is a link"),
        (lambda demo: elsewhere(demo, h5py.SoftLink("/data/demo_2/actions")), "actions is a link"),
        (virtual, "actions is kept in another file"),
        (lambda demo: replaced(demo, "actions", 9, 4, dtype="f8", external=[("other.raw", 0, 9 * 32)]),
         "actions is kept in another file"),
    ],
)  # fmt: skip
def test_a_bad_demonstration_is_named_and_the_others_are_kept(
    tmp_path: Path, spoil: Callable[[h5py.Group], object], told: str
) -> None:
    with h5py.File(robomimic(tmp_path / "lift.hdf5"), "a") as file:
        spoil(file["data/demo_9"])
    source = read_robomimic(tmp_path / "lift.hdf5", AS_IT_IS)
    assert [recording.name for recording in source.recordings] == ["demo_2", "demo_10"]
    (problem,) = source.problems
    with pytest.raises(DataError, match=told):
        raise DataError(problem)
    assert str(tmp_path / "lift.hdf5") in problem


def test_numbers_that_are_none_and_damaged_pictures_are_left_out_as_the_dataset_is_written(tmp_path: Path) -> None:
    path = robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_9/actions"][3] = np.nan
        place = file["data/demo_10/obs/agentview_image"].id.get_chunk_info(5).byte_offset
    content = bytearray(path.read_bytes())
    content[place : place + 20] = bytes(20)
    path.write_bytes(content)
    first, second = left_out(read_robomimic(path, AS_IT_IS), tmp_path / "out")
    assert first == "demo_9: actions are not all finite numbers"
    assert "demo_10: " in second
    assert "agentview_image is damaged" in second
    assert open_dataset(tmp_path / "out").names == ("demo_2",)


def test_more_numbers_than_anybody_recorded_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MOST", 14 * 4)
    (problem,) = read_robomimic(robomimic(tmp_path / "a.hdf5"), Choice(states=("robot0_gripper_qpos",))).problems
    assert "demo_10/actions says it is (15, 4); at most 56 numbers are read" in problem
