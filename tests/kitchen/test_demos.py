"""Demonstrations come in from every form, whole; what is damaged is named, passed over and counted."""

import struct
import zipfile
from pathlib import Path

import gymnasium
import gymnasium_robotics
import numpy as np
import pytest

from tests.kitchen.made import standing_still
from xskill.errors import DataError
from xskill.kitchen.demos import read_demonstrations
from xskill.kitchen.env import HOME, KitchenEnv
from xskill.kitchen.tasks import TASKS


def mjl(path: Path, records: int = 121, sizes: tuple[int, ...] = (30, 29, 9, 1, 0, 0), fill: float = 0.0) -> bytes:
    """Write a MuJoCo log in which joint 0 counts the records."""
    name = b"kitchen"
    width = 1 + sum(sizes[:3]) + 7 * sizes[3] + sizes[4] + sizes[5]
    values = np.full((records, width), fill, np.float32)
    values[:, 0] = 0.002 * np.arange(records)
    values[:, 1] = np.arange(records)
    values[:, 1 + sizes[0] + sizes[1]] = -np.arange(records)
    data = struct.pack("<7i", *sizes, len(name)) + name + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return data


def test_a_log_is_read_at_every_fortieth_record(tmp_path: Path) -> None:
    mjl(tmp_path / "friday_kettle" / "one.mjl")
    (demo,) = read_demonstrations(tmp_path / "friday_kettle" / "one.mjl").good
    assert (demo.name, demo.folder, len(demo)) == ("one.mjl", "friday_kettle", 4)
    assert demo.qpos[:, 0].tolist() == [0, 40, 80, 120]
    assert demo.ctrl[:, 0].tolist() == [0, -40, -80, -120]
    assert demo.qvel is not None
    assert demo.qvel.shape == (4, 29)


def test_a_folder_a_zip_and_a_packed_file_give_the_same(tmp_path: Path) -> None:
    for name in ("x/a", "x/b", "y/c"):
        mjl(tmp_path / "all" / f"{name}.mjl")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for path in sorted((tmp_path / "all").rglob("*.mjl")):
            archive.write(path, path.relative_to(tmp_path))
    folder, zipped = read_demonstrations(tmp_path / "all").good, read_demonstrations(tmp_path / "all.zip").good
    assert [(d.folder, d.name) for d in folder] == [(d.folder, d.name) for d in zipped]
    assert [d.name for d in folder] == ["a.mjl", "b.mjl", "c.mjl"]
    for a, b in zip(folder, zipped, strict=True):
        assert np.array_equal(a.qpos, b.qpos)
    packed = read_demonstrations(standing_still(tmp_path / "p.npz")).good
    assert [(d.name, d.folder, len(d)) for d in packed] == [
        ("a", "friday_kettle_switch", 5),
        ("b", "friday_slide_hinge", 7),
    ]
    assert packed[0].order == ()
    assert read_demonstrations(standing_still(tmp_path / "q.npz", qvel=None)).good[0].qvel is None


def test_a_bad_file_among_good_ones_is_named_and_counted(tmp_path: Path) -> None:
    data = mjl(tmp_path / "good.mjl")
    (tmp_path / "truncated.mjl").write_bytes(data[:-10])
    (tmp_path / "tiny.mjl").write_bytes(data[:20])
    (tmp_path / "empty.mjl").write_bytes(b"")
    mjl(tmp_path / "nan.mjl", fill=np.nan)
    mjl(tmp_path / "other_robot.mjl", sizes=(12, 12, 6, 0, 0, 0))
    mjl(tmp_path / "short.mjl", records=3)
    (tmp_path / "folder.mjl").mkdir()
    read = read_demonstrations(tmp_path)
    assert [demo.name for demo in read.good] == ["good.mjl"]
    by_name = {problem.split(".mjl")[0].rsplit("/")[-1]: problem for problem in read.problems}
    assert set(by_name) == {"truncated", "tiny", "empty", "nan", "other_robot", "short", "folder"}
    assert "ends within record 120" in by_name["truncated"]
    assert "has 20 bytes" in by_name["tiny"]
    assert "has 0 bytes" in by_name["empty"]
    assert "not a number at step 0" in by_name["nan"]
    assert "nq 12, nv 12, nu 6; expected 30, 29, 9" in by_name["other_robot"]
    assert "is empty: 1 states" in by_name["short"]
    assert "cannot be read" in by_name["folder"]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_entry_of_a_zip_is_named(tmp_path: Path, compression: int) -> None:
    data = mjl(tmp_path / "a.mjl")
    with zipfile.ZipFile(tmp_path / "all.zip", "w", compression) as archive:
        archive.writestr("k/a.mjl", data)
        archive.writestr("k/b.mjl", data)
        second = archive.getinfo("k/b.mjl").header_offset
    raw = bytearray((tmp_path / "all.zip").read_bytes())
    for place in range(second + 200, second + 240):
        raw[place] ^= 255
    (tmp_path / "all.zip").write_bytes(raw)
    read = read_demonstrations(tmp_path / "all.zip")
    assert [demo.name for demo in read.good] == ["a.mjl"]
    assert "b.mjl cannot be read: " in read.problems[0]


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"ctrl": None}, "lacks ctrl; it has qpos"),
        ({"episode_ends": np.array([5, 11])}, "episode_ends must rise to the number of states, 12"),
        ({"episode_ends": np.array([8, 8, 12])}, "episode_ends must rise"),
        ({"episode_ends": np.array([], int)}, "episode_ends must rise"),
        ({"names": np.array(["a"])}, "names and folders must be as many as episodes, 2"),
        ({"preludes": np.array([0, 7])}, "preludes must be as many as episodes, and shorter"),
        ({"qpos": np.zeros((12, 29))}, r"none of the 2 .*qpos is \(5, 29\); expected \(5, 30\)"),
        ({"names": np.array(["a", None], object)}, "not a readable .npz file: Object arrays cannot be loaded"),
    ],
)
def test_a_bad_packed_file_is_one_sentence(tmp_path: Path, changes: dict[str, object], answer: str) -> None:
    with pytest.raises(DataError, match=answer):
        read_demonstrations(standing_still(tmp_path / "bad.npz", **changes))


def test_one_bad_episode_does_not_spoil_a_packed_file(tmp_path: Path) -> None:
    qpos = np.tile(np.array(HOME, np.float32), (12, 1))
    qpos[7, 3] = np.inf
    read = read_demonstrations(standing_still(tmp_path / "some.npz", qpos=qpos))
    assert [demo.name for demo in read.good] == ["a"]
    assert read.problems[0].endswith("friday_slide_hinge/b: qpos is not a number at step 2")


def test_what_is_not_there_or_nothing_of_ours_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read_demonstrations(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no .mjl file in the folder"):
        read_demonstrations(tmp_path)
    for name, answer in [
        ("x.txt", "neither a folder nor"),
        ("x.npz", "not a readable .npz"),
        ("x.zip", "not a readable zip"),
    ]:
        (tmp_path / name).write_text("hello")
        with pytest.raises(DataError, match=answer):
            read_demonstrations(tmp_path / name)
    with pytest.raises(DataError, match="there is no Minari dataset no/such/dataset-v0"):
        read_demonstrations("minari:no/such/dataset-v0")


@pytest.mark.slow
def test_a_minari_dataset_replays_to_the_states_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make("FrankaKitchen-v1", tasks_to_complete=["kettle"], robot_noise_ratio=0, object_noise_ratio=0)
    buffers = []
    for seed in (0, 1):
        env.action_space.seed(seed)
        states, actions = [env.reset(seed=seed)[0]["observation"]], []
        for _ in range(6):
            actions.append(0.3 * env.action_space.sample())
            states.append(env.step(actions[-1])[0]["observation"])
        ends = [False] * 5 + [True]
        buffers.append(EpisodeBuffer(seed, seed, None, {"observation": states}, actions, [0.0] * 6, [False] * 6, ends))
    space = gymnasium.spaces.Dict({"observation": env.observation_space["observation"]})
    minari.create_dataset_from_buffers(
        "kitchen/tiny-v0", buffers, action_space=env.action_space, observation_space=space
    )
    env.close()
    read = read_demonstrations("minari:kitchen/tiny-v0")
    assert [len(demo) for demo in read.good] == [6, 6]
    same = read_demonstrations(tmp_path / "kitchen/tiny-v0")
    assert np.array_equal(same.good[1].qpos, read.good[1].qpos)
    for demo in read.good:
        ours = KitchenEnv(cameras=())
        ours.reset(options={"qpos": demo.qpos[0]})
        assert demo.qvel is not None
        ours.data.qvel[:] = demo.qvel[0]
        for control, after in zip(demo.ctrl, demo.qpos[1:], strict=False):
            ours.step(control)
            assert ours.data.qpos == pytest.approx(after, abs=1e-3)


@pytest.mark.demos
def test_the_recorded_demonstrations_are_what_they_are_said_to_be(demos: Path) -> None:
    read = read_demonstrations(demos)
    assert read.problems == ()
    lengths = [len(demo) for demo in read.good]
    assert (len(lengths), min(lengths), int(np.median(lengths)), max(lengths)) == (543, 162, 225, 338)
    assert sum(len(demo.order) >= 4 for demo in read.good) > 0.95 * len(read.good)
    assert {task for demo in read.good for task in demo.order} == set(TASKS)


@pytest.mark.demos
def test_the_raw_logs_beside_them_agree_and_the_truncated_one_is_named(demos: Path) -> None:
    raw = demos.parent / "mjl"
    if not raw.is_dir():
        pytest.skip(f"there are no raw logs at {raw}")
    packed = {demo.name: demo for demo in read_demonstrations(demos).good}
    read = read_demonstrations(raw)
    assert len(read.good) == 2
    assert len(read.problems) == 1
    assert "is truncated" in read.problems[0]
    for demo in read.good:
        assert np.array_equal(demo.qpos, packed[demo.name].qpos)
        assert np.array_equal(demo.ctrl, packed[demo.name].ctrl)
