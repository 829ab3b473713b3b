"""A small dataset as LeRobot keeps it, to be looked at or spoiled."""

import shutil
from pathlib import Path

import pytest

from tests.data.samples import (
    SHORT,
    source,
)
from xskill.data.lerobot_write import write_dataset


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine") / "data"
    write_dataset(folder, source(lengths=SHORT), "arm")
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A dataset to damage."""
    return Path(shutil.copytree(pristine, tmp_path / "data"))
