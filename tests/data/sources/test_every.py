"""What holds for every source that needs a library."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Command
from tests.data.sources.made import AS_IT_IS, LENGTHS, as_parts, recorded, replay, robomimic
from xskill.data.lerobot import open_dataset
from xskill.data.recording import Source
from xskill.data.sources.minari_store import read_minari
from xskill.data.sources.robomimic import read_robomimic
from xskill.data.sources.zarr_store import read_zarr
from xskill.errors import DataError


@pytest.mark.parametrize(
    ("library", "read"),
    [("h5py", lambda f: read_robomimic(f / "a", AS_IT_IS)), ("zarr", lambda f: read_zarr(f / "a", AS_IT_IS))],
)
def test_a_library_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, read: Callable[[Path], Source]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"needs {library}: pip install -e '\.\["):
        read(tmp_path)


@pytest.mark.parametrize("kind", ["robomimic", "zarr", "minari"])
def test_a_file_with_wrong_bytes_is_read_or_refused(
    tmp_path: Path, store: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xskill.data.sources.robomimic.PATIENCE", 3)
    recorded("push-v0", as_parts)
    read, named, file = {
        "robomimic": (read_robomimic, *[robomimic(tmp_path / "a.hdf5")] * 2),
        "zarr": (read_zarr, *[replay(tmp_path / "a.zarr.zip")] * 2),
        "minari": (read_minari, Path("push-v0"), store / "push-v0/data/main_data.hdf5"),
    }[kind]
    whole = np.frombuffer(file.read_bytes(), np.uint8)
    refused = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        places = rng.integers(len(whole) if seed % 2 else 4000, size=rng.integers(1, 8))
        wrong = whole.copy()
        wrong[places] = rng.integers(256, size=len(places))
        file.write_bytes(wrong.tobytes())
        try:
            source = read(named, AS_IT_IS)
            for recording in source.recordings:
                for camera, shots in recording.shots.items():
                    assert {frame.shape[:2] for frame in shots(source.sizes[camera])} == {source.sizes[camera]}
        except DataError as error:
            refused.append(str(error))
    assert refused
    assert not any("\n" in told for told in refused)


@pytest.mark.parametrize("kind", ["robomimic", "zarr", "minari"])
def test_every_source_has_its_command(xskill: Command, tmp_path: Path, store: Path, kind: str) -> None:
    robomimic(tmp_path / "a.robomimic")
    replay(tmp_path / "a.zarr")
    recorded("a-v0", as_parts)
    named = "a-v0" if kind == "minari" else f"a.{kind}"
    done = xskill("data", "import", kind, named, "out", "--fps", 5, "--size", 32, 32)
    assert done.returncode == 0, done.stderr
    assert "state: " in done.stdout
    dataset = open_dataset(tmp_path / "out")
    assert (dataset.fps, set(dataset.sizes.values()), dataset.lengths.tolist()) == (5, {(32, 32)}, list(LENGTHS))
