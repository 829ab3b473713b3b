"""The frame bank: made once, whole or not there, the same frames wherever they are looked up."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from xskill.data.episodes import Episodes, subsampled, uniform_frames
from xskill.data.frames import BankPlan, FrameBank, Making, ResidentFrames, StreamedFrames, make_bank
from xskill.engine import folder
from xskill.errors import CheckpointError, DataError

LENGTHS = (5, 1, 7, 3)
CPU = torch.device("cpu")


def plan(**source: object) -> BankPlan:
    lengths = np.array(LENGTHS)
    states = np.arange(lengths.sum() * 2, dtype=np.float32).reshape(-1, 2)
    episodes = Episodes("robot", 12.5, tuple("abcd"), lengths, states, states + 1)
    return BankPlan(episodes, ("side", "wrist"), 6, 8, source)


def pixels(plan: BankPlan, episode: int, camera: str) -> np.ndarray:
    """Frames that are a function of where they belong."""
    random = np.random.default_rng([episode, plan.cameras.index(camera)])
    return random.integers(256, size=(plan.episodes.lengths[episode], plan.height, plan.width, 3), dtype=np.uint8)


@dataclass
class Painter:
    """Fills a bank in reverse order, and notes what it was asked for."""

    pause: float = 0.0
    stop_after: int = 99
    asked: tuple[int, ...] = ()

    def __call__(self, making: Making, todo: Sequence[int]) -> Iterable[int]:
        self.asked = tuple(todo)
        for count, episode in enumerate(reversed(todo)):
            if count == self.stop_after:
                raise KeyboardInterrupt
            for camera in making.plan.cameras:
                making.write(episode, camera, pixels(making.plan, episode, camera))
            time.sleep(self.pause)
            yield episode


def assert_whole(bank: FrameBank) -> None:
    bank.verify()
    assert bank.cameras == ("side", "wrist")
    for camera in bank.cameras:
        expected = np.concatenate([pixels(plan(), episode, camera) for episode in range(len(LENGTHS))])
        assert np.array_equal(bank.frames(camera), expected)
    assert bank.episodes.about() == plan().episodes.about()
    assert np.array_equal(bank.episodes.states, plan().episodes.states)
    assert np.array_equal(bank.episodes.actions, plan().episodes.actions)


def test_a_bank_is_made_once(tmp_path: Path) -> None:
    painter = Painter()
    assert_whole(make_bank(tmp_path, plan(), painter))
    assert painter.asked == (0, 1, 2, 3)
    again = Painter()
    assert_whole(make_bank(tmp_path, plan(), again))
    assert again.asked == ()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [plan().key]


def test_the_key_is_a_function_of_content_and_options() -> None:
    assert plan(render="a").key == plan(render="a").key
    other = plan().episodes
    assert other.states is not None
    keys = {
        plan().key,
        plan(render="b").key,
        replace(plan(), height=7).key,
        replace(plan(), cameras=("side",)).key,
        replace(plan(), episodes=replace(other, states=other.states + 1)).key,
        replace(plan(), episodes=replace(other, embodiment="sphere")).key,
        replace(plan(), episodes=replace(other, actions=None)).key,
    }
    assert len(keys) == 7


def test_an_interrupted_making_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make_bank(tmp_path, plan(), Painter(stop_after=2))
    with (tmp_path / f"making-{plan().key}.jsonl").open("ab") as journal:
        journal.write(b'{"episode": 0, "ha')  # torn by a kill
    rest = Painter()
    assert_whole(make_bank(tmp_path, plan(), rest))
    assert rest.asked == (0, 1)


@pytest.mark.parametrize("killed_at", ["_write_durably", "_put_aside"])
def test_killed_while_it_is_finished_nothing_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, killed_at, die)
    with pytest.raises(KeyboardInterrupt):
        make_bank(tmp_path, plan(), Painter())
    monkeypatch.undo()
    rest = Painter()
    assert_whole(make_bank(tmp_path, plan(), rest))
    assert rest.asked == ()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [plan().key]


def test_frames_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    def wrong(making: Making, todo: Sequence[int]) -> Iterable[int]:
        making.write(0, "side", np.zeros((1, 6, 8, 3), np.uint8))
        return todo

    with pytest.raises(DataError, match=r"episode 0 is \(1, 6, 8, 3\) uint8; expected \(5, 6, 8, 3\) uint8"):
        make_bank(tmp_path, plan(), wrong)


def test_what_the_journal_notes_but_the_disk_lost_is_made_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        make_bank(tmp_path, plan(), Painter(stop_after=3))
    frames = tmp_path / f"making-{plan().key}" / "wrist.frames"
    data = bytearray(frames.read_bytes())
    data[-1] ^= 255  # in the last episode
    frames.write_bytes(data)
    rest = Painter()
    assert_whole(make_bank(tmp_path, plan(), rest))
    assert rest.asked == (0, 3)


def test_a_filler_that_leaves_something_out_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="frames of 4 episodes were not made, the first being 0"):
        make_bank(tmp_path, plan(), lambda making, todo: [])
    assert_whole(make_bank(tmp_path, plan(), Painter()))


def make_slowly(folder: Path) -> None:
    make_bank(folder, plan(), Painter(pause=0.3))


@pytest.mark.slow
def test_two_processes_make_one_bank_and_a_killed_one_is_taken_over(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    first, second = (spawn.Process(target=make_slowly, args=(tmp_path,)) for _ in range(2))
    first.start()
    journal = tmp_path / f"making-{plan().key}.jsonl"
    while not (journal.exists() and journal.stat().st_size > 50):
        time.sleep(0.01)
    second.start()
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    second.join(60)
    assert second.exitcode == 0
    assert_whole(FrameBank(tmp_path / plan().key))


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (2, 3, 2), (0,)])
def test_streamed_and_resident_lookups_are_the_same(tmp_path: Path, shape: tuple[int, ...]) -> None:
    bank = make_bank(tmp_path, plan(), Painter())
    frames = bank.frames("side")
    index = torch.randint(len(frames), shape, generator=torch.Generator().manual_seed(0))
    streamed, resident = StreamedFrames(frames, CPU)[index], ResidentFrames(frames, CPU)[index]
    assert torch.equal(streamed, resident)
    assert streamed.shape == (*shape, 6, 8, 3)
    assert np.array_equal(streamed.numpy(), frames[index.numpy()])
    assert torch.equal(bank.on(CPU, "side")[index], resident)


def anonymous_memory() -> int:
    """Bytes of this process that no file stands behind: what a machine without swap cannot take back."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:"))


def test_a_streamed_bank_needs_memory_for_a_batch_not_for_itself(tmp_path: Path) -> None:
    def blank(making: Making, todo: Sequence[int]) -> Iterable[int]:
        for episode in todo:
            making.write(episode, "side", np.full((400, 112, 112, 3), episode, np.uint8))
            yield episode

    episodes = Episodes("person", 30.0, tuple("abcdefghijklmnopqrst"), np.full(20, 400))
    bank = make_bank(tmp_path, BankPlan(episodes, ("side",), 112, 112, {}), blank)
    assert bank.frames("side").nbytes > 300e6
    stored = bank.on(CPU, "side", limit=0)
    stored[torch.arange(200)]
    before, most = anonymous_memory(), 0
    for first in range(0, 8000, 200):
        frames = stored[torch.arange(first, first + 200)]
        assert (frames == first // 400).all()
        most = max(most, anonymous_memory() - before)
    assert most < 60e6, f"{most / 1e6:.0f} MB"  # a batch is 7.5 MB


def test_a_bank_that_is_none_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a frame bank"):
        FrameBank(tmp_path)
    bank = make_bank(tmp_path, plan(), Painter())
    with pytest.raises(DataError, match=r"no camera 'sid' \(did you mean 'side'\?\)"):
        bank.frames("sid")
    path = bank.path / "side.frames"
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(CheckpointError, match="does not match its sha256"):
        FrameBank(bank.path).verify()
    path.write_bytes(data[:-1])
    with pytest.raises(DataError, match="its size has changed"):
        FrameBank(bank.path)


def test_frames_are_spread_evenly_over_each_video() -> None:
    starts, lengths = np.array([0, 10, 11]), np.array([10, 1, 100])
    index = uniform_frames(starts, lengths, 4)
    assert index.tolist() == [[0, 3, 6, 9], [10, 10, 10, 10], [11, 44, 77, 110]]
    assert uniform_frames(starts, lengths, 1).tolist() == [[4], [10], [61]]


def test_a_faster_video_skips_frames() -> None:
    assert subsampled(5, 1).tolist() == [0, 1, 2, 3, 4]
    assert subsampled(7, 2).tolist() == [0, 2, 4, 6]
    assert subsampled(6, 1.5).tolist() == [0, 1, 3, 4]
    for length in range(1, 400):
        for speed in (1.15, 1.3, 1.4, 1.5, 2.3, 0.7):
            index = subsampled(length, speed)
            assert index[0] == 0
            assert length - speed <= index[-1] + 1 <= length
    with pytest.raises(DataError, match="speed is 0"):
        subsampled(5, 0)


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"lengths": np.array([], int), "names": ()}, "at least one frame"),
        ({"lengths": np.array([3, 0, 1, 1])}, "at least one frame"),
        ({"names": ("a",)}, "1 names for 4 episodes"),
        ({"fps": 0.0}, "fps is 0.0"),
        ({"names": tuple("abca")}, "two episodes are called 'a'"),
        ({"states": np.zeros((3, 2), np.float32)}, "expected 16 rows"),
        ({"actions": np.full((16, 2), np.nan, np.float32)}, "finite numbers"),
    ],
)
def test_episodes_that_make_no_sense_are_refused(changes: dict[str, object], answer: str) -> None:
    with pytest.raises(DataError, match=answer):
        replace(plan().episodes, **changes)
