"""Minari's datasets become ours; and a sentence for what is wrong with one."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.data.sources.made import (
    AS_IT_IS,
    EPISODES,
    and_last,
    as_parts,
    assert_same,
    converted,
    recorded,
    same,
    shown,
)
from xskill.data.lerobot_write import write_dataset
from xskill.data.recording import Source
from xskill.data.sources.minari_store import read_minari
from xskill.errors import DataError


@pytest.mark.parametrize("named", ["by id", "by folder"])
def test_a_minari_dataset_becomes_a_dataset(tmp_path: Path, store: Path, named: str) -> None:
    recorded("robot/push-v0", as_parts)
    source = read_minari(Path("robot/push-v0") if named == "by id" else store / "robot/push-v0", AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("episode_0", "episode_1", "episode_2")
    assert set(dataset.sizes) == {"pixels.top", "pixels.small"}
    assert_same(dataset, "pixels.top")
    for index, episode in enumerate(EPISODES):
        assert same(shown(dataset, "pixels.small", index), episode.small, 2)
    assert "state: agent_pos" in source.notes


@pytest.mark.parametrize("options", [{}, {"jpeg_encoding": False}])
def test_a_minari_dataset_may_be_nothing_but_pictures(tmp_path: Path, store: Path, options: dict[str, bool]) -> None:
    recorded("push-v0", lambda episode: and_last(episode.pictures), **options)
    dataset = converted(read_minari(Path("push-v0"), AS_IT_IS), tmp_path / "out")
    assert dataset.states is None
    assert same(shown(dataset, "observations", 1), EPISODES[1].pictures)


def test_a_minari_dataset_without_pictures_says_what_to_do(store: Path) -> None:
    recorded("D4RL/kitchen/complete-v9", lambda episode: {"observation": and_last(episode.joints)})
    with pytest.raises(DataError, match=r"no pictures, only observation; .*--demos minari:D4RL/kitchen/complete-v9"):
        read_minari(Path("D4RL/kitchen/complete-v9"), AS_IT_IS)
    with pytest.raises(DataError, match=r"there is no Minari dataset none-v0, .*'minari download none-v0' fetches it"):
        read_minari(Path("none-v0"), AS_IT_IS)


def test_the_environment_that_a_minari_dataset_names_is_never_made(store: Path, tmp_path: Path) -> None:
    recorded("push-v0", as_parts)
    path = store / "push-v0/data/metadata.json"
    about = json.loads(path.read_text())
    del about["observation_space"], about["action_space"]
    spec = {"id": "evil-v0", "entry_point": "pathlib:Path.touch", "kwargs": {"self": str(tmp_path / "made")}}
    path.write_text(json.dumps(about | {"env_spec": json.dumps(spec)}))
    with pytest.raises(DataError, match="does not tell the observation_space"):
        read_minari(Path("push-v0"), AS_IT_IS)
    assert not (tmp_path / "made").exists()


def told_anew(folder: Path, **fields: object) -> None:
    path = folder / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def moved(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


HUGE = json.dumps({"type": "Box", "dtype": "uint8", "shape": [10**5, 10**5, 3], "low": 0, "high": 255})


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "metadata.json").write_text("{"), r"metadata\.json is damaged"),
        (lambda folder: (folder / "metadata.json").write_text("[" * 100_000), r"metadata\.json is damaged"),
        (lambda folder: told_anew(folder, observation_space=HUGE), "pictures are 100000 x 100000"),
        (lambda folder: told_anew(folder, observation_space='{"type": "Dict"}'), r"metadata\.json is damaged"),
        (lambda folder: told_anew(folder, data_format="arrow"), "kept as 'arrow'; only hdf5 is read"),
        (lambda folder: (folder / "main_data.hdf5").unlink(), r"main_data\.hdf5 is missing"),
        (lambda folder: moved(folder / "main_data.hdf5"), r"main_data\.hdf5 leads out of the dataset"),
        (lambda folder: cut(folder / "main_data.hdf5"), r"main_data\.hdf5 is damaged"),
        (lambda folder: h5py.File(folder / "main_data.hdf5", "w").close(), "has no episodes"),
    ],
)
def test_a_bad_minari_dataset_is_refused(store: Path, spoil: Callable[[Path], object], told: str) -> None:
    recorded("push-v0", as_parts)
    spoil(store / "push-v0/data")
    with pytest.raises(DataError, match=told):
        read_minari(Path("push-v0"), AS_IT_IS)


def test_bad_episodes_of_a_minari_dataset_are_named_and_the_others_kept(store: Path, tmp_path: Path) -> None:
    recorded("push-v0", as_parts)
    wide = io.BytesIO()
    Image.fromarray(np.zeros((40, 2000, 3), np.uint8)).save(wide, format="JPEG")
    with h5py.File(store / "push-v0/data/main_data.hdf5", "a") as file:
        del file["episode_0/actions"]
        file["episode_0/actions"] = np.zeros((12 + 1, 4))
        file["episode_1/observations/pixels/top"][4] = np.frombuffer(wide.getvalue(), np.uint8)
        del file["episode_2"]
    source = read_minari(Path("push-v0"), AS_IT_IS)
    assert len(source.problems) == 2
    assert "has 2 episodes; its metadata say 3" in source.problems[0]
    assert "has 13 of actions, 12 of pixels.small, 12 of pixels.top" in source.problems[1]
    with pytest.raises(DataError, match=r"picture 4 of .*pixels/top is 2000 x 40; it says \(40, 56, 3\)"):
        write_dataset(tmp_path / "out", Source(source.recordings, 10, source.sizes, {}), "robot")


def test_a_minari_dataset_cannot_have_a_camera_that_is_written_elsewhere(store: Path, tmp_path: Path) -> None:
    recorded("push-v0", lambda episode: {"top": and_last(episode.small)})
    path = store / "push-v0/data/metadata.json"
    path.write_text(path.read_text().replace("top", "x/../../../../elsewhere"))
    with h5py.File(store / "push-v0/data/main_data.hdf5", "a") as file:
        for episode in file.values():
            episode["observations/x/../../../../elsewhere"] = episode["observations/top"]
    with pytest.raises(DataError, match="it must be a name that a file can have"):
        write_dataset(tmp_path / "within/out", read_minari(Path("push-v0"), AS_IT_IS), "robot")
    assert not list(tmp_path.rglob("elsewhere*"))
