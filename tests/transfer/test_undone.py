"""Scenes in which something done is not done: lasting changes of a picture, found behind whatever passes before it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from xskill.data.episodes import Episodes
from xskill.data.frames import BankPlan, Making, StreamedFrames, make_bank
from xskill.engine.loop import Step
from xskill.errors import ConfigError
from xskill.presets import PRESETS
from xskill.transfer import undone
from xskill.transfer.train import LEAD, TransferPhase
from xskill.transfer.undone import EVENTS, NEVER, undone_in

CPU = torch.device("cpu")
LONG, SIZE, ARM = 160, 24, 4
PLACES = {"door": (slice(2, 10), slice(2, 8)), "pot": (slice(14, 18), slice(4, 8))}
DONE = {"door": 60, "pot": 110}


def kitchen(done: dict[str, int], seed: int = 0) -> np.ndarray:
    """A video of still things that change for good at some frame, without anybody."""
    background = np.random.default_rng(seed).integers(60, 120, (SIZE, SIZE, 3))
    video = np.repeat(background[None], LONG, 0)
    for thing, at in done.items():
        video[:at, *PLACES[thing]] = (200, 30, 30)
        video[at:, *PLACES[thing]] = (20, 20, 160)
    return video.astype(np.uint8)


def arm(frame: int) -> slice:
    """The columns that an arm hides: it stands at the right first, then goes to and fro."""
    if frame < 12:
        return slice(SIZE - ARM, SIZE)
    swing = abs((frame - 12) % 40 - 20) / 20
    begin = round(swing * (SIZE - ARM))
    return slice(begin, begin + ARM)


def with_arm(video: np.ndarray) -> np.ndarray:
    video = video.copy()
    for frame in range(len(video)):
        video[frame, :, arm(frame)] = 235 + frame % 20
    return video


def test_what_lasts_is_found_and_what_passes_is_not() -> None:
    nothing, both = with_arm(kitchen({})), with_arm(kitchen(DONE))
    store = StreamedFrames(np.concatenate([nothing, both]), CPU)
    found = undone_in(store, {0: (0, LONG), 1: (LONG, LONG)})
    assert found.times[0].tolist() == [NEVER] * EVENTS
    assert (found.event[0] == EVENTS).all()
    assert found.times[1, 2:].tolist() == [NEVER] * (EVENTS - 2)
    for event, (thing, at) in enumerate(DONE.items()):  # the larger first
        assert abs(int(found.times[1, event]) - at) <= 4
        assert (found.event[1][PLACES[thing]] == event).all()
    assert (found.event[1] < EVENTS).sum() == 8 * 6 + 4 * 4


def test_what_changes_in_one_video_only_is_an_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, count = {"door": 60}, 40
    videos = [kitchen({thing: at + number for thing, at in usual.items()}) for number in range(count)]
    videos[7] = kitchen({"door": 67, "pot": 110})  # something rests there, once
    store, spans = StreamedFrames(np.concatenate(videos), CPU), {3 + n: (n * LONG, LONG) for n in range(count)}
    for at_once in (512, 25):  # of many videos, some stand for all
        monkeypatch.setattr(undone, "COMPARED", at_once)
        found = undone_in(store, spans)
        assert (found.times[3:, 0] - torch.arange(60, 60 + count)).abs().max() <= 4
        assert (found.times[3:, 1:] == NEVER).all()
    few = {place: span for place, span in spans.items() if place < 20}
    assert abs(int(undone_in(store, few).times[10, 1]) - 110) <= 4  # too few to say so


def test_undone_the_scene_is_as_it_was_wherever_nothing_hides_it() -> None:
    video = with_arm(kitchen(DONE))
    found = undone_in(StreamedFrames(video, CPU), {0: (0, LONG)})
    late = [120, 131, 142, 150, 159]
    scenes, one = torch.from_numpy(video[late]), torch.zeros(len(late), dtype=torch.long)
    for event, thing in enumerate(DONE):
        never = with_arm(kitchen({**DONE, thing: LONG}))
        assert np.array_equal(found.scene(scenes, one, one + event)[0].numpy(), never[late])
        assert not np.array_equal(video[late], never[late])
    assert torch.equal(found.scene(scenes, one, one + EVENTS)[0], scenes)


@pytest.mark.parametrize(("length", "done"), [(1, NEVER), (2, NEVER), (5, 2)])
def test_a_video_may_be_of_any_length(length: int, done: int) -> None:
    found = undone_in(StreamedFrames(kitchen(DONE)[58 : 58 + length], CPU), {0: (0, length)})
    assert found.times[0].tolist() == [done] + [NEVER] * (EVENTS - 1)


def phase(folder: Path, undo: float) -> TransferPhase:
    videos = [with_arm(kitchen({thing: at}, seed)) for seed, (thing, at) in enumerate(DONE.items())]

    def fill(making: Making, todo: Sequence[int]) -> Iterable[int]:
        for episode in todo:
            making.write(episode, "side", videos[episode])
            yield episode

    number = np.tile(np.arange(LONG, dtype=np.float32), 2)[:, None]
    episodes = Episodes("robot", 10.0, ("a", "b"), np.array([LONG, LONG]), number, -number)
    bank = make_bank(folder, BankPlan(episodes, ("side",), SIZE, SIZE, {}), fill)
    skills = torch.randn(2 * LONG, 4, generator=torch.Generator().manual_seed(0))
    config = replace(PRESETS["debug"][1].transfer, batch_size=64, cross=0.0, undo=undo, shift=0)
    return TransferPhase(config, bank, skills, np.array([0]), np.array([1]), 0, CPU)


def test_an_aligner_that_sees_something_undone_is_told_to_go_back(tmp_path: Path) -> None:
    always, never = phase(tmp_path, 1.0), phase(tmp_path, 0.0)
    step = Step(0, "transfer", 0)
    batch, plain = always.batch(step), never.batch(step)
    seen, usual = always._looked_up(batch, noisy=False), never._looked_up(plain, noisy=False)
    assert torch.equal(batch["ids"], plain["ids"])
    assert torch.equal(seen["camera side"], usual["camera side"])  # the hand sees what is there
    assert torch.equal(seen["told"], usual["told"])
    assert torch.equal(usual["scene"], usual["camera side"][:, -1])
    assert always._undone is not None
    done = int(always._undone.times[0, 0])
    late = batch["ids"] > done
    assert 5 < late.sum() < 60
    assert torch.equal(batch["event"], torch.where(late, 0, EVENTS))
    due = done - int(LEAD * (LONG - 1))
    place = torch.where(late, due, batch["ids"])
    assert torch.equal(batch["now"], batch["ids"])
    assert torch.equal(batch["back"], place)
    assert torch.equal(seen["undone"], late)
    assert torch.equal(seen["skill"], always._skills[place])
    changed = (seen["scene"] != usual["scene"]).flatten(1).any(1)
    assert torch.equal(changed, late)
    found = seen["away"].abs().argmin(1) / (always.tokens - 1) * (LONG - 1)
    assert (found - place).abs().max() < 0.2 * LONG  # plans are warped
    measured = always.evaluate(always.network.eval())
    assert 0 <= measured["aligner_undone_place_error"] <= 1


def test_how_often_is_a_share() -> None:
    with pytest.raises(ConfigError, match=r"undo is 1.5"):
        replace(PRESETS["debug"][1].transfer, undo=1.5)
