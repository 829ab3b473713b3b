"""Folders of videos and pictures become datasets; and a sentence for what is wrong with one."""

import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from tests.data.sources.made import AS_IT_IS, converted, left_out, same, shown
from tests.data.test_video import moving, places, written
from xskill.data.lerobot import open_dataset
from xskill.data.sources import Choice
from xskill.data.sources.folder import read_folder
from xskill.errors import DataError

AV1 = next((name for name in ("libsvtav1", "libaom-av1") if name in av.codecs_available), "")


def filmed(path: Path, codec: str, frames: np.ndarray, rate: int = 10, sound: bool = False) -> Path:
    """A video in whatever container its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
        if sound:
            track: Any = container.add_stream("aac", rate=44100)
            for at in range(0, 44100 * len(frames) // rate, 1024):
                silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                silence.sample_rate, silence.pts = 44100, at
                container.mux(track.encode(silence))
            container.mux(track.encode())
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return path


def turned(path: Path) -> Path:
    """Say of an mp4, as a phone held upright does, that it is to be turned clockwise by a quarter."""
    content = bytearray(path.read_bytes())
    matrix = content.index(b"tkhd") + 44
    content[matrix : matrix + 36] = struct.pack(">9i", 0, 2**16, 0, -(2**16), 0, 0, 0, 0, 2**30)
    path.write_bytes(content)
    return path


def sequence(folder: Path, frames: np.ndarray, kind: str = "png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for index, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"{index}.{kind}")


@pytest.mark.parametrize(
    ("name", "codec", "sound"),
    [
        ("a.mp4", "libx264", False),
        ("a.mp4", "libx264", True),
        ("a.mov", "libx264", False),
        ("a.MOV", "mpeg4", False),
        ("a.webm", "libvpx-vp9", False),
        ("a.mp4", AV1, False),
        ("a.webm", AV1, False),
    ],
)
def test_a_folder_of_videos_becomes_a_dataset(tmp_path: Path, name: str, codec: str, sound: bool) -> None:
    frames = moving(20, 80, 120)
    filmed(tmp_path / "in" / name, codec, frames, sound=sound)
    filmed(tmp_path / "in/within" / name, codec, frames[::-1])
    dataset = converted(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert (dataset.names, dataset.fps, dict(dataset.sizes)) == ((name, f"within/{name}"), 10, {"side": (80, 120)})
    assert (dataset.states, dataset.actions) == (None, None)
    assert same(shown(dataset, "side", 0), frames, 8)
    assert same(shown(dataset, "side", 1), frames[::-1], 8)


def test_a_video_of_a_phone_held_upright_is_upright(tmp_path: Path) -> None:
    frames = moving(10, 80, 120)
    (tmp_path / "in").mkdir()
    turned(filmed(tmp_path / "in/a.mp4", "libx264", frames))
    dataset = converted(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert dataset.sizes["side"] == (120, 80)
    assert same(shown(dataset, "side", 0), np.rot90(frames, -1, axes=(1, 2)))


def test_odd_sizes_are_made_even_and_large_ones_smaller(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sequence(tmp_path / "in", moving(5, 81, 121))
    dataset = converted(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert dataset.sizes["side"] == (80, 120)
    assert shown(dataset, "side", 0).shape == (5, 80, 120, 3)
    filmed(tmp_path / "large/a.mp4", "libx264", moving(3, 540, 960))
    assert read_folder(tmp_path / "large", AS_IT_IS).sizes["side"] == (360, 640)


def test_uneven_times_become_even_ones(tmp_path: Path) -> None:
    times = [*range(0, 100, 2), *range(100, 301, 10)]
    (tmp_path / "in").mkdir()
    written(tmp_path / "in/a.mp4", np.stack([moving(301)[time] for time in times]), times)
    dataset = converted(read_folder(tmp_path / "in", Choice(fps=20)), tmp_path / "out")
    assert dataset.lengths.tolist() == [61]
    seen = places(shown(dataset, "side", 0))
    assert seen == pytest.approx(np.linspace(seen[0], seen[-1], 61), abs=0.03)
    assert seen[-1] - seen[0] > 0.7


def test_pictures_are_shown_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    frames = moving(12, 40, 60)
    for kind, name in (("png", "take 10"), ("jpg", "take 9")):
        sequence(tmp_path / "in" / name, frames, kind)
    source = read_folder(tmp_path / "in", AS_IT_IS)
    dataset = converted(source, tmp_path / "out")
    assert dataset.names == ("take 9", "take 10")
    assert any("taken to have 10 frames a second" in note for note in source.notes)
    for episode in range(2):
        assert same(shown(dataset, "side", episode), frames)


def test_what_is_asked_of_a_folder_is_done(tmp_path: Path) -> None:
    filmed(tmp_path / "in/a.mp4", "libx264", moving(41, 80, 120), rate=20)
    choice = Choice(fps=5, size=(32, 64), crop=(0.5, 0.0, 1.0, 0.5), cameras=("front",))
    dataset = converted(read_folder(tmp_path / "in", choice), tmp_path / "out")
    assert (dataset.fps, dataset.lengths.tolist(), dict(dataset.sizes)) == (5, [11], {"front": (32, 64)})
    frames = shown(dataset, "front", 0)
    assert frames[0].mean() < 10  # the bar begins on the left, which is cut away
    assert frames[-1, :, -12:, 0].mean() > 200
    assert frames[-1, :, :40].mean() < 20


def test_bad_videos_are_named_and_the_others_kept(tmp_path: Path) -> None:
    whole = filmed(tmp_path / "in/1.mp4", "libx264", moving(40)).read_bytes()
    (tmp_path / "in/2.mp4").write_bytes(b"no video")
    (tmp_path / "in/3.mp4").write_bytes(b"")
    (tmp_path / "in/4.mp4").write_bytes(whole[: len(whole) // 2])
    begin, end = whole.index(b"mdat") + 8, whole.index(b"moov")
    half = (begin + end) // 2
    (tmp_path / "in/5.mp4").write_bytes(
        whole[:half] + bytes(whole.index(b"moov") - half) + whole[whole.index(b"moov") :]
    )
    (tmp_path / "in/notes.txt").write_text("not a video, and none is expected")
    problems = left_out(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert [next(n for n in "2345" if f"{n}.mp4" in problem) for problem in problems] == list("2345")
    assert open_dataset(tmp_path / "out").names == ("1.mp4",)


def test_a_folder_with_nothing_to_see_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        read_folder(tmp_path / "none", AS_IT_IS)
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(DataError, match=r"neither videos nor pictures \(1 other files\)"):
        read_folder(tmp_path, AS_IT_IS)
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"none of the videos and pictures in .* can be read"):
        read_folder(tmp_path, AS_IT_IS)


@pytest.mark.parametrize("kind", ["png", "jpg", "webp", "bmp", "tif"])
def test_a_picture_that_is_cut_off_leaves_its_sequence_out(tmp_path: Path, kind: str) -> None:
    for name in "ab":
        sequence(
            tmp_path / "in" / name, np.random.default_rng(0).integers(256, size=(6, 40, 60, 3), dtype=np.uint8), kind
        )
    cut_off = tmp_path / f"in/a/3.{kind}"
    cut_off.write_bytes(cut_off.read_bytes()[: cut_off.stat().st_size // 2])
    (problem,) = left_out(read_folder(tmp_path / "in", AS_IT_IS), tmp_path / "out")
    assert problem.startswith("a: ")
    assert f"3.{kind}" in problem
