"""Datasets that are damaged: a sentence that names the file for each way."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.data.samples import (
    ACTIONS,
    FILM,
    INDEX,
    SHORT,
    STATES,
    TABLE,
    all_numbers,
    decoded,
    numbers,
    source,
    write_v21,
)
from xskill.data import lerobot_write
from xskill.data.check import check_dataset
from xskill.data.lerobot import ACTION, IMAGES, STATE, Dataset, open_dataset
from xskill.data.lerobot_write import write_dataset
from xskill.engine.folder import MANIFEST
from xskill.errors import DataError


def read(folder: Path) -> tuple[Dataset, dict[str, np.ndarray]]:
    """A dataset and all its frames."""
    dataset = open_dataset(folder)
    return dataset, {camera: decoded(dataset, camera) for camera in dataset.clips}


def refused(folder: Path, *parts: str, file: str) -> None:
    """Opening and decoding it is refused in one sentence, which names the file and has these parts."""
    with pytest.raises(DataError) as caught:
        read(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for part in (str(folder / file), *parts):
        assert part in sentence, sentence


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def edit_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def changed(name: str, at: int, value: object) -> Callable[[pa.Table], pa.Table]:
    """One value of a column made another."""

    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[at] = value
        return replaced(table, name, values)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table.drop_columns([ACTION]), "has no column 'action'"),
        (lambda table: table.drop_columns(["timestamp"]), "has no column 'timestamp'"),
        (lambda table: replaced(table, ACTION, [["a"]] * 8), "'action' of list<element: string>"),
        (lambda table: replaced(table, ACTION, [[[1.0]]] * 8), "it must be numbers in lists"),
        (lambda table: replaced(table, "frame_index", ["0"] * 8), "'frame_index' of string"),
        (lambda table: replaced(table, "episode_index", [0.0] * 8), "'episode_index' of double"),
        (changed("frame_index", 2, None), "gaps in its column 'frame_index'"),
        (changed(ACTION, 2, None), "gaps in its column 'action'"),
        (changed(ACTION, 2, [1.0, None, 0.0, 0.0]), "gaps in its column 'action'"),
        (changed(ACTION, 2, [1.0] * 3), "not of one length"),
        (changed(ACTION, 2, []), "not of one length"),
        (changed(ACTION, 6, [0.0, np.nan, 0.0, 0.0]), "'action' is not finite (frame 1 of episode 1)"),
        (changed(STATE, 2, [np.inf] * STATES), "'observation.state' is not finite (frame 2 of episode 0)"),
        (lambda table: replaced(table, ACTION, [[1e300] * ACTIONS] * 8), "'action' is not finite"),
        (lambda table: table.slice(0, 7), "episode 1 has 2 rows; the index says 3"),
        (lambda table: table.slice(0, 5), "episode 1 has 0 rows; the index says 3"),
        (lambda table: table.slice(0, 0), "has no rows"),
        (
            lambda table: pa.concat_tables([table, changed("episode_index", 0, 7)(table).slice(0, 1)]),
            "1 rows are of episode 7, which the index does not have",
        ),
        (changed("frame_index", 3, 2), "a frame is missing, or is there twice (frame 3 of episode 0)"),
        (changed("timestamp", 6, 0.3), "a timestamp is not where 10 frames a second put it (frame 1 of episode 1)"),
        (changed("timestamp", 6, np.nan), "a timestamp is not where"),
    ],
)
def test_a_damaged_table_is_refused(folder: Path, change: Callable[[pa.Table], pa.Table], reason: str) -> None:
    edit_table(folder / TABLE, change)
    refused(folder, reason, file=TABLE)


def test_tables_that_do_not_fit_together_are_refused(folder: Path) -> None:
    rows = pq.read_table(folder / TABLE)
    pq.write_table(rows.slice(0, 5), folder / TABLE)
    other = TABLE.replace("file-000", "file-001")
    pq.write_table(replaced(rows.slice(5), ACTION, [[0.5, 0.5]] * 3), folder / other)
    refused(folder, "'action' is (2,) a frame, (4,) in", file=other)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed("episode_index", 1, 0), "there are two episodes 0"),
        (changed("length", 1, 0), "length of an episode is 0"),
        (changed("length", 1, None), "length of an episode is None"),
        (changed("length", 1, 2**50), "length of an episode is 1125899906842624"),
        (lambda table: table.drop_columns(["episode_index"]), "episode_index of an episode is None"),
        (lambda table: table.slice(0, 0), "tells of no episode"),
    ],
)
def test_a_damaged_index_is_refused(folder: Path, change: Callable[[pa.Table], pa.Table], reason: str) -> None:
    edit_table(folder / INDEX, change)
    refused(folder, reason, file=INDEX)


@pytest.mark.parametrize("start", [-1.0, np.nan, np.inf, 2.0, 1e300])
def test_an_episode_that_is_nowhere_in_its_video_is_refused(folder: Path, start: float) -> None:
    edit_table(folder / INDEX, changed(f"videos/{IMAGES}top/from_timestamp", 1, start))
    refused(folder, file=FILM)


def test_an_index_that_names_no_file_is_refused(folder: Path) -> None:
    edit_table(folder / INDEX, lambda table: table.drop_columns([f"videos/{IMAGES}top/file_index"]))
    refused(folder, f"in which file of 'videos/{IMAGES}top' episode 0 is", file="meta/episodes")


FEATURE = IMAGES + "top"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        *[
            (lambda info, fps=fps: info.update(fps=fps), "fps is")
            for fps in (0, -10, float("nan"), float("inf"), "30", None, True, 10**400)
        ],
        (lambda info: info.update(codebase_version="v1.6"), "codebase_version is 'v1.6'; v3.0 and v2.1 are read"),
        (lambda info: info.pop("features"), "features must be"),
        (lambda info: info.update(features={"action": 3}), "features must be"),
        (lambda info: info["features"][FEATURE].update(shape=[100_000, 100_000, 3]), "100000 x 100000"),
        (lambda info: info["features"][FEATURE].update(shape=[64, 96]), "the shape of a video is [64, 96]"),
        (lambda info: info["features"][FEATURE].update(shape=[64, -96, 3]), "the shape of a video"),
        (lambda info: info.update(video_path="videos/{camera}.mp4"), "cannot be filled in"),
        (lambda info: info.update(video_path="videos/{file_index[0]}.mp4"), "cannot be filled in"),
        (lambda info: info.update(features={STATE: info["features"][STATE]}), "there is no video"),
    ],
)
def test_a_damaged_description_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    edit(folder / "meta/info.json", change)
    refused(folder, reason, file="meta/info.json")


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd"])
def test_a_path_that_leads_out_is_refused(folder: Path, path: str) -> None:
    edit(folder / "meta/info.json", lambda info: info.update(video_path=path))
    refused(folder, "leads out of the dataset", file=path)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd"])
def test_a_path_that_leads_out_of_the_older_layout_is_refused(tmp_path: Path, path: str) -> None:
    write_v21(tmp_path / "a", lengths=(2,))
    edit(tmp_path / "a/meta/info.json", lambda info: info.update(data_path=path))
    refused(tmp_path / "a", "leads out of the dataset", file=path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_path_that_is_none_is_refused(folder: Path, path: str) -> None:
    edit(folder / "meta/info.json", lambda info: info.update(video_path=path))
    with pytest.raises(DataError, match="is no file of the dataset"):
        open_dataset(folder)


@pytest.mark.parametrize("file", [TABLE, INDEX, FILM, "meta/info.json"])
def test_a_link_out_of_the_dataset_is_refused(folder: Path, tmp_path: Path, file: str) -> None:
    shutil.move(folder / file, tmp_path / "elsewhere")
    (folder / file).symlink_to(tmp_path / "elsewhere")
    refused(folder, "leads out of the dataset", file=file)


def test_a_linked_folder_out_of_the_dataset_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "data", tmp_path / "elsewhere")
    (folder / "data").symlink_to(tmp_path / "elsewhere")
    refused(folder, "leads out of the dataset", file=TABLE)


def test_a_link_to_itself_is_refused(folder: Path) -> None:
    (folder / FILM).unlink()
    (folder / FILM).symlink_to(folder / FILM)
    refused(folder, file=FILM)


@pytest.mark.parametrize("file", [TABLE, FILM])
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    refused(folder, "is missing", file=file)


def test_a_missing_table_among_several_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lerobot_write, "LARGEST_TABLE", 10)
    write_dataset(tmp_path / "a", source(), "arm")
    last = max((tmp_path / "a/data/chunk-000").iterdir())
    last.unlink()
    refused(tmp_path / "a", "is missing", file=str(last.relative_to(tmp_path / "a")))


@pytest.mark.parametrize(("file", "named"), [("meta/info.json", "."), (INDEX, "meta/episodes")])
def test_a_dataset_without_its_head_is_refused(folder: Path, file: str, named: str) -> None:
    (folder / file).unlink()
    refused(folder, Path(file).name if named == "." else "", file=named)


@pytest.mark.parametrize("keep", [0, 0.5, 0.9])
@pytest.mark.parametrize("file", [TABLE, INDEX, FILM, "meta/info.json"])
def test_a_truncated_file_is_refused(folder: Path, file: str, keep: float) -> None:
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[: int(keep * len(data))])
    refused(folder, file=file)


def test_a_video_of_an_unknown_kind_is_refused(folder: Path) -> None:
    data = (folder / FILM).read_bytes()
    at = data.rindex(b"avc1")
    (folder / FILM).write_bytes(data[:at] + b"none" + data[at + 4 :])
    refused(folder, "cannot be decoded", file=FILM)


def test_a_flipped_bit_in_the_numbers_is_noticed_without_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    data = bytearray((folder / TABLE).read_bytes())
    data[data.index(numbers(0, 5, ACTIONS)[0, :2].tobytes())] ^= 1
    (folder / TABLE).write_bytes(bytes(data))
    refused(folder, file=TABLE)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("meta/episodes.jsonl", '{"episode_index": 0, "length": 2}\n{"epis', "1 of its 2 lines are damaged"),
        ("meta/episodes.jsonl", "[" * 100_000, "1 of its 1 lines are damaged"),
        ("meta/episodes.jsonl", "", "tells of no episode"),
        ("meta/episodes.jsonl", '{"episode_index": 0, "length": "2"}', "length of an episode is '2'"),
    ],
)
def test_a_damaged_index_of_the_older_layout_is_refused(tmp_path: Path, file: str, text: str, reason: str) -> None:
    write_v21(tmp_path / "a", lengths=(2,))
    (tmp_path / "a" / file).write_text(text)
    refused(tmp_path / "a", reason, file=file)


@pytest.mark.parametrize("size", [0, "1000", -1, None])
def test_a_chunk_of_the_older_layout_holds_some_episodes(tmp_path: Path, size: object) -> None:
    write_v21(tmp_path / "a", lengths=(2,))
    edit(tmp_path / "a/meta/info.json", lambda info: info.update(chunks_size=size))
    refused(tmp_path / "a", "chunks_size is", file="meta/info.json")


# Anything

BUDGET = int(os.environ.get("XSKILL_FUZZ", "100"))
"""How many damaged datasets are read; more by hand."""


@st.composite
def damage(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Some bytes of a file become others, or are taken away, or come again."""
    kind = draw(st.sampled_from(["flip", "overwrite", "cut", "remove", "repeat"]))
    place, span = draw(st.floats(0, 1, exclude_max=True)), draw(st.integers(1, 64))
    mask, filling = draw(st.integers(1, 255)), draw(st.binary(min_size=1, max_size=32))

    def apply(data: bytes) -> bytes:
        at = int(place * len(data))
        if kind == "flip":
            return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
        if kind == "overwrite":
            return data[:at] + filling + data[at + len(filling) :]
        if kind == "cut":
            return data[:at]
        if kind == "remove":
            return data[:at] + data[at + span :]
        return data[:at] + data[at : at + span] + data[at:]

    apply.__name__ = f"{kind} at {place:.3f}, {span}, {mask}, {filling!r}"
    return apply


KINDS = [TABLE, INDEX, FILM, f"videos/{IMAGES}wrist/chunk-000/file-000.mp4", "meta/info.json", "meta/xskill.json"]


@settings(
    max_examples=BUDGET,
    deadline=None,
    derandomize="XSKILL_FUZZ" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(file=st.sampled_from(KINDS), change=damage())
def test_damage_of_any_kind_is_noticed_or_does_no_harm(
    pristine: Path, tmp_path: Path, file: str, change: Callable[[bytes], bytes]
) -> None:
    folder = tmp_path / "data"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(pristine, folder)
    before = (folder / file).read_bytes()
    after = change(before)
    (folder / file).write_bytes(after)
    if after != before:
        assert not check_dataset(folder).ok
    (folder / MANIFEST).unlink()  # as of a dataset that another program wrote
    began = time.monotonic()
    try:
        dataset, frames = read(folder)
    except DataError:
        event(f"{Path(file).name}: refused")
    else:
        event(f"{Path(file).name}: read")
        assert dataset.lengths.tolist() == list(SHORT)
        if dataset.states is not None:
            assert np.array_equal(dataset.states, all_numbers(STATES, SHORT))
        if dataset.actions is not None:
            assert np.array_equal(dataset.actions, all_numbers(ACTIONS, SHORT))
        assert all(len(found) == sum(SHORT) for found in frames.values())
    assert time.monotonic() - began < 20
