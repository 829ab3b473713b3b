"""Videos read back: any shape and rate, uneven times, and a sentence for each kind of damage."""

import re
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from xskill.data import video
from xskill.data.video import read_video, write_video
from xskill.errors import CheckpointError, DataError

SIZE = (32, 32)


def moving(length: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A bright bar that moves from left to right."""
    frames = np.zeros((length, height, width, 3), np.uint8)
    for index in range(length):
        at = round(index / max(1, length - 1) * (width - 16))
        frames[index, :, at : at + 16] = (250, 120, 10)
    return frames


def places(frames: np.ndarray) -> np.ndarray:
    """Where the bar is in each frame, as a share of the width."""
    bright = frames[..., 0].astype(float).mean(1)
    return (bright @ np.arange(bright.shape[1])) / bright.sum(1) / bright.shape[1]


@pytest.mark.parametrize(("length", "shape"), [(1, (48, 64)), (2, (30, 30)), (40, (48, 64)), (40, (90, 33))])
def test_a_video_is_read_as_it_was_written(tmp_path: Path, length: int, shape: tuple[int, int]) -> None:
    write_video(tmp_path / "a.mp4", moving(length, *shape), 10.0)
    frames, rate = read_video(tmp_path / "a.mp4", SIZE)
    assert frames.shape == (length, *SIZE, 3)
    assert frames.dtype == np.uint8
    assert rate == pytest.approx(10)
    assert (np.diff(places(frames)) > -0.01).all()
    assert places(frames)[-1] - places(frames)[0] == pytest.approx(0 if length == 1 else 1 - 16 / shape[1], abs=0.05)
    assert frames[0, :, 2].mean(0) == pytest.approx([250, 120, 10], abs=40)  # red, green and blue in their places


def written(path: Path, frames: np.ndarray, times: list[int], rotated: int = 0) -> None:
    """A video whose frames come at these hundredths of a second."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=100)
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], "yuv420p"
        stream.time_base = Fraction(1, 100)
        for frame, time in zip(frames, times, strict=True):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            picture.pts, picture.time_base = time, Fraction(1, 100)
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def test_frames_at_uneven_times_come_out_evenly_spaced(tmp_path: Path) -> None:
    times = [*range(0, 100, 2), *range(100, 300, 10)]  # fifty frames in the first second, ten in each of two more
    frames = np.stack([moving(301)[time] for time in times])
    written(tmp_path / "a.mp4", frames, times)
    read, rate = read_video(tmp_path / "a.mp4", SIZE)
    assert len(read) == len(times)
    assert rate == pytest.approx((len(times) - 1) / 2.9, rel=0.02)
    seen = places(read)
    assert seen == pytest.approx(np.linspace(seen[0], seen[-1], len(seen)), abs=0.03)


@pytest.mark.parametrize(
    ("matrix", "seen"),
    [
        ((1, 0, 0, 1), lambda picture: picture),
        ((-1, 0, 0, 1), lambda picture: picture[:, ::-1]),  # a front camera's
        ((1, 0, 0, -1), lambda picture: picture[::-1]),
        ((-1, 0, 0, -1), lambda picture: picture[::-1, ::-1]),
        ((0, 1, -1, 0), lambda picture: np.rot90(picture, -1)),  # a telephone held upright
        ((0, -1, 1, 0), lambda picture: np.rot90(picture, 1)),
        ((0, 1, 1, 0), lambda picture: picture.swapaxes(0, 1)),
        ((0, 0, 0, 0), lambda picture: picture),  # says nothing
    ],
)
def test_a_video_is_read_the_way_it_is_to_be_seen(
    tmp_path: Path, matrix: tuple[int, ...], seen: Callable[[np.ndarray], np.ndarray]
) -> None:
    frames = np.zeros((3, 32, 32, 3), np.uint8)
    frames[:, :16, :16], frames[:, :16, 16:], frames[:, 16:, :16] = 250, 160, 80
    write_video(tmp_path / "a.mp4", frames, 10.0)
    (plain, *_), _ = read_video(tmp_path / "a.mp4", SIZE)
    whole = bytearray((tmp_path / "a.mp4").read_bytes())
    at = whole.index(b"tkhd") + 44
    a, b, c, d = (65536 * number for number in matrix)
    whole[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    (tmp_path / "turned.mp4").write_bytes(whole)
    (turned, *_), _ = read_video(tmp_path / "turned.mp4", SIZE)
    assert np.abs(turned.astype(int) - seen(plain)).max() < 6


def test_recordings_laid_end_to_end_are_both_seen(tmp_path: Path) -> None:
    parts = np.split(moving(40), 2)
    joined = b""
    for index, part in enumerate(parts):
        with av.open(str(tmp_path / f"{index}.ts"), "w", format="mpegts") as container:
            stream = container.add_stream("libx264", rate=10)
            stream.height, stream.width, stream.pix_fmt = *part.shape[1:3], "yuv420p"
            for frame in part:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())
        joined += (tmp_path / f"{index}.ts").read_bytes()
    (tmp_path / "a.ts").write_bytes(joined)  # the clock of the second begins anew
    frames, rate = read_video(tmp_path / "a.ts", SIZE)
    assert len(frames) == 40
    assert rate == pytest.approx(10, rel=0.05)
    assert (np.diff(places(frames)) > 0.005).all()


def test_a_cover_picture_is_not_the_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        cover, film = (container.add_stream("libx264", rate=10) for _ in range(2))
        for stream, side in ((cover, 16), (film, 64)):
            stream.height, stream.width, stream.pix_fmt = side, side, "yuv420p"
        container.mux(cover.encode(av.VideoFrame.from_ndarray(moving(1, 16, 16)[0], format="rgb24")))
        container.mux(cover.encode())
        for frame in moving(20, 64, 64):
            container.mux(film.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(film.encode())
    assert len(read_video(tmp_path / "a.mkv", SIZE)[0]) == 20


def test_a_name_may_have_a_colon_and_a_disk_may_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_video(Path("12:30.mp4"), moving(3), 10.0)
    assert len(read_video("12:30.mp4", SIZE)[0]) == 3
    with pytest.raises(CheckpointError, match=r"could not write nowhere/a\.mp4"):
        write_video(Path("nowhere/a.mp4"), moving(3), 10.0)
    before = Path("12:30.mp4").read_bytes()

    def failing() -> Iterator[np.ndarray]:
        yield moving(3)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_video(Path("12:30.mp4"), failing(), 10.0)
    assert [path.name for path in tmp_path.iterdir()] == ["12:30.mp4"]  # nothing half-written is left, the old one is
    assert Path("12:30.mp4").read_bytes() == before


def test_many_frames_are_thinned_out_and_too_many_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "a.mp4", moving(60), 10.0)
    monkeypatch.setattr(video, "MOST", 10)
    frames, rate = read_video(tmp_path / "a.mp4", SIZE)
    assert len(frames) == 15  # every fourth
    assert rate == pytest.approx(2.5, rel=0.05)
    assert places(frames)[-1] - places(frames)[0] > 0.6


def test_too_much_is_refused_whether_a_file_says_how_long_it_is_or_not(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", iter(np.broadcast_to(np.uint8(200), (15_100, 16, 16, 3))), 25.0)
    with pytest.raises(DataError, match=r"a\.mp4 lasts more than 10 minutes; a video shows one task: cut it"):
        read_video(tmp_path / "a.mp4", SIZE)
    with av.open(str(tmp_path / "a.mp4")) as whole, av.open(str(tmp_path / "a.h264"), "w", format="h264") as bare:
        stream = bare.add_stream_from_template(whole.streams.video[0])
        for packet in whole.demux(whole.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                bare.mux(packet)
    assert 0 < (tmp_path / "a.h264").stat().st_size < 1e6
    with video.opened(tmp_path / "a.h264") as (_, _, about):
        assert not about.seconds
    with pytest.raises(DataError, match=r"a\.h264 lasts more than 10 minutes; a video shows one task: cut it"):
        read_video(tmp_path / "a.h264", SIZE)


def test_damage_is_named(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", moving(60), 10.0)
    whole = (tmp_path / "a.mp4").read_bytes()
    with pytest.raises(DataError, match="there is no video"):
        read_video(tmp_path / "none.mp4", SIZE)
    for name, content in {"text": b"not a video at all", "empty": b"", "half": whole[: len(whole) // 2]}.items():
        path = tmp_path / f"{name}.mp4"
        path.write_bytes(content)
        with pytest.raises(DataError, match=str(path)):
            read_video(path, SIZE)
    damaged = bytearray(whole)
    first = whole.index(b"mdat") + 8
    damaged[first : first + (len(whole) - first) // 2] = bytes((len(whole) - first) // 2)
    (tmp_path / "zeros.mp4").write_bytes(damaged)
    with pytest.raises(DataError, match=r"zeros\.mp4"):
        read_video(tmp_path / "zeros.mp4", SIZE)
    with av.open(str(tmp_path / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 44100
        container.mux(stream.encode(silence))
        container.mux(stream.encode())
    with pytest.raises(DataError, match="has no picture, only audio"):
        read_video(tmp_path / "sound.mp4", SIZE)


def test_a_scratch_that_the_decoder_notices_is_named_though_every_frame_comes_out(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    write_video(path, np.random.default_rng(0).integers(256, size=(30, 48, 64, 3), dtype=np.uint8), 10.0)
    whole = path.read_bytes()
    noticed = []
    for at in range(len(whole) // 4, len(whole) * 3 // 4, len(whole) // 20):
        path.write_bytes(whole[:at] + b"\xff" * 40 + whole[at + 40 :])
        try:
            read_video(path, SIZE)
        except DataError as error:
            noticed.append(str(error))
    assert noticed
    assert all(re.search(r"a\.mp4 is damaged at [0-3]\.\d\d s", told) for told in noticed)
