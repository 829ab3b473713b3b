"""The phase: independent batches of every embodiment, prototypes kept to their rules, and what it refuses."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from tests.discover.made import TINY, bank
from xskill.data.episodes import uniform_frames
from xskill.data.frames import FrameStore
from xskill.discover.config import AugmentConfig, DiscoverConfig
from xskill.discover.encoder import SkillModel
from xskill.discover.look import look, told
from xskill.discover.train import DiscoverPhase, Footage, random_frames
from xskill.engine.checkpoint import Checkpoint, load_pretrained
from xskill.engine.config import LoopConfig
from xskill.engine.loop import Step, train
from xskill.errors import CheckpointError, ConfigError, DataError

CPU = torch.device("cpu")


def footage(folder: Path, *bodies: str, lengths: tuple[int, ...] = ()) -> list[Footage]:
    banks = [bank(folder / body, body, lengths) if lengths else bank(folder / body, body) for body in bodies]
    return [Footage(made, np.arange(4), np.array([4, 5])) for made in banks]


def phase(folder: Path, config: DiscoverConfig = TINY, *bodies: str, **more: object) -> DiscoverPhase:
    return DiscoverPhase(config, footage(folder, *(bodies or ("robot", "person"))), 0, CPU, **more)


def trained(made: DiscoverPhase, config: DiscoverConfig, folder: Path) -> Checkpoint:
    quiet = Console(file=io.StringIO())
    return train(made, config.loop, seed=0, folder=folder, device="cpu", console=quiet)


class Watched:
    """Frames that note when they are looked up."""

    def __init__(self, store: FrameStore, looked_up: list[FrameStore]) -> None:
        self._store, self._looked_up = store, looked_up

    def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
        self._looked_up.append(self._store)
        return self._store[index]


def test_embodiments_are_drawn_from_streams_of_their_own(tmp_path: Path) -> None:
    made = phase(tmp_path, replace(TINY, videos=3))
    ids = torch.stack([made.batch(Step(0, "discover", step))["ids"] for step in range(200)])
    robot, person = ids[:, 0::2], ids[:, 1::2]
    # Were the same episodes drawn for both, this would be 1; with independent draws it is 1 of 4.
    assert (robot[:, 0] == person[:, 0]).float().mean().item() == pytest.approx(0.25, abs=0.12)
    again = made.batch(Step(0, "discover", 7))["ids"]
    assert torch.equal(again, ids[7])
    for body in (robot, person):  # each video once in an epoch of four
        assert all(sorted(epoch) == [0, 1, 2, 3] for epoch in body.flatten().reshape(-1, 4).tolist())


def test_paired_embodiments_show_the_same_in_a_step(tmp_path: Path) -> None:
    robot, person = footage(tmp_path, "robot", "person")
    config = replace(TINY, videos=3, paired=True)
    made = DiscoverPhase(config, [robot, person], 0, CPU)
    for step in range(8):
        ids = made.batch(Step(0, "discover", step))["ids"]
        assert torch.equal(ids[0::2], ids[1::2])
    with pytest.raises(DataError, match="all show the same demonstrations; these do not"):
        DiscoverPhase(config, [robot, replace(person, train=np.array([3, 2, 1, 0]))], 0, CPU)


def test_embodiments_that_alternate_have_steps_of_their_own(tmp_path: Path) -> None:
    config = replace(TINY, videos=3, alternate=True)
    made = phase(tmp_path, config)
    ids = torch.stack([made.batch(Step(0, "discover", step))["ids"] for step in range(16)])
    assert ids.shape == (16, 3)
    for turns in (ids[0::2], ids[1::2]):  # each video once in an epoch of four
        assert all(sorted(epoch) == [0, 1, 2, 3] for epoch in turns.flatten().reshape(-1, 4).tolist())
    (one, other), looked_up = made.frames, []
    made.frames = [Watched(store, looked_up) for store in (one, other)]
    for index in range(3):
        step = Step(0, "discover", index)
        made.loss(made.module, made.batch(step), step)
    assert looked_up == [one, other, one]
    made.frames = [one, other]
    best = trained(made, replace(config, keep="newest"), tmp_path / "run")
    assert {"used_robot", "used_person"} <= set(best.metrics)
    paired = phase(tmp_path, replace(config, paired=True))
    robot, person = (paired.batch(Step(0, "discover", step))["ids"] for step in (4, 5))
    assert torch.equal(robot, person)


def test_what_is_drawn_for_each_frame_is_drawn_for_each_view_of_it(tmp_path: Path) -> None:
    made = phase(tmp_path, replace(TINY, augment=AugmentConfig(each_frame=True)))
    views = made.batch(Step(0, "discover", 0))["views"]
    videos, frames = 2 * TINY.videos, TINY.frames_per_video
    assert views.shape[:3] == (videos, frames, 2)
    assert len(views[..., :4].flatten(0, 2).unique(dim=0)) == videos * frames * 2  # no crop twice
    assert trained(made, TINY, tmp_path / "run").step == TINY.loop.steps


def test_the_newest_weights_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    config = replace(TINY, loop=replace(TINY.loop, steps=4, checkpoint_every=1))
    for keep in ("aligned", "newest"):
        made = phase(tmp_path, replace(config, keep=keep))
        shared = iter([0.1, 0.9, 0.3, 0.2])
        made.evaluate = lambda module, shared=shared: {"shared_usage": next(shared)}
        assert trained(made, config, tmp_path / keep).step == {"aligned": 2, "newest": 4}[keep]


def test_frames_drawn_at_random_are_other_ones_every_time_and_in_order(tmp_path: Path) -> None:
    made = phase(tmp_path, replace(TINY, sampling="random"))
    episodes = footage(tmp_path, "robot")[0].bank.episodes
    drawn = set()
    for index in range(50):
        batch = made.batch(Step(0, "discover", index))
        for episode, frames in zip(batch["ids"][0::2], batch["frames"][0::2], strict=True):
            start, length = episodes.starts[episode], episodes.lengths[episode]
            assert (frames.diff() >= 1).all()
            assert start <= frames[0]
            assert frames[-1] < start + length
            drawn |= set(frames.tolist())
    assert drawn == set(range(episodes.starts[4]))  # all of the four that train
    assert torch.equal(batch["frames"], made.batch(Step(0, "discover", 49))["frames"])
    short = random_frames(np.array([5]), np.array([7]), 12, torch.Generator())
    assert short.tolist() == uniform_frames(np.array([5]), np.array([7]), 12).tolist()


def test_frames_are_spread_over_whole_videos(tmp_path: Path) -> None:
    made = phase(tmp_path)
    batch = made.batch(Step(0, "discover", 0))
    episodes = footage(tmp_path, "robot")[0].bank.episodes
    for episode, frames in zip(batch["ids"][0::2], batch["frames"][0::2], strict=True):
        start, length = episodes.starts[episode], episodes.lengths[episode]
        assert frames[0] == start
        assert frames[-1] == start + length - 1
        assert (frames.diff() >= 1).all()


def test_any_imbalance_between_embodiments_is_drawn_evenly(tmp_path: Path) -> None:
    many, few = footage(tmp_path, "robot", "person")
    made = DiscoverPhase(TINY, [many, replace(few, train=np.array([2]))], 0, CPU)
    ids = made.batch(Step(0, "discover", 0))["ids"]
    assert set(ids[1::2].tolist()) == {2}
    assert sorted(ids[0::2].tolist()) == [0, 1, 2, 3]


def test_three_embodiments_train_together(tmp_path: Path) -> None:
    made = phase(tmp_path, TINY, "robot", "person", "red")
    best = trained(made, TINY, tmp_path / "run")
    assert {f"used_{body}" for body in ("robot", "person", "red")} <= set(best.metrics)
    assert {"recall_person", "recall_red", "sub_task_red", "sub_task_information"} <= set(best.metrics)


@pytest.mark.parametrize("optimizer_kind", [torch.optim.Adam, torch.optim.AdamW])
def test_prototypes_stay_of_unit_length_and_still_while_frozen(tmp_path: Path, optimizer_kind: type) -> None:
    made = phase(tmp_path, replace(TINY, frozen_steps=2))
    assert isinstance(made.module, SkillModel)
    weight = made.module.prototypes.weight
    optimizer, begun = optimizer_kind(made.module.parameters(), lr=0.1, weight_decay=0.1), weight.detach().clone()
    for index in range(4):
        step = Step(0, "discover", index)
        loss, _ = made.loss(made.module, made.batch(step), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        made.updated()
        assert weight.detach().norm(dim=1).numpy() == pytest.approx(1, abs=1e-5)
        assert torch.allclose(weight, begun, atol=1e-6) == (index < 2)


@pytest.mark.parametrize("left_out", ["prototype_weight", "time_weight"])
def test_either_loss_can_be_left_out(tmp_path: Path, left_out: str) -> None:
    made = phase(tmp_path, replace(TINY, **{left_out: 0.0}))
    loss, parts = made.loss(made.module, made.batch(Step(0, "discover", 0)), Step(0, "discover", 0))
    other = parts["time_loss"] if left_out == "prototype_weight" else 0.5 * parts["prototype_loss"]
    assert loss.item() == pytest.approx(other.item())


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    one, again = (trained(phase(tmp_path), TINY, tmp_path / name).weights.read_bytes() for name in ("a", "b"))
    assert one == again


@pytest.mark.slow
def test_it_learns_that_the_same_motion_is_the_same_skill(tmp_path: Path) -> None:
    config = replace(
        TINY, num_prototypes=16, loop=LoopConfig(steps=250, checkpoint_every=50, learning_rate=2e-3, ema_decay=0.95)
    )
    made = phase(tmp_path, config, "robot", "red")
    before = made.evaluate(made.module.eval())
    after = trained(made, config, tmp_path / "run").metrics
    assert before["recall_red"] < 0.8
    assert after["recall_red"] > 0.9
    assert after["sub_task_red"] > before["sub_task_red"] + 0.2
    assert after["shared_usage"] > 0.6
    assert after["prototype_loss_over_log_k"] < 0.6


def test_a_model_is_read_back_and_looked_at(tmp_path: Path) -> None:
    made = phase(tmp_path)
    best = trained(made, TINY, tmp_path / "run")
    model = SkillModel(TINY, (16, 16)).eval()
    load_pretrained(best.path, model)
    found = look(model, made.held_out, TINY, tmp_path)
    assert found["shared_usage"] == pytest.approx(best.metrics["shared_usage"])
    assert {"recall_person_x1.3", "recall_person_x1.5", "recall_person_x2"} <= set(found)
    assert (tmp_path / "embedding.png").stat().st_size > 5000
    assert (tmp_path / "prototypes.png").stat().st_size > 2000
    with pytest.raises(CheckpointError, match="does not fit this network"):
        load_pretrained(best.path, SkillModel(replace(TINY, num_prototypes=9), (16, 16)))


def test_what_cannot_be_learned_from_is_refused(tmp_path: Path) -> None:
    robot, person = footage(tmp_path, "robot", "person")
    with pytest.raises(DataError, match="no video of 'person' to learn from"):
        replace(person, train=np.array([], int))
    with pytest.raises(DataError, match="no video of 'person' is held out"):
        DiscoverPhase(TINY, [robot, replace(person, held_out=np.array([], int))], 0, CPU)
    with pytest.raises(DataError, match="two sets of videos are of the same embodiment"):
        DiscoverPhase(TINY, [robot, robot], 0, CPU)
    with pytest.raises(DataError, match="there is no video"):
        DiscoverPhase(TINY, [], 0, CPU)
    with pytest.raises(ConfigError, match="num_prototypes is 1; it must be at least 2"):
        replace(TINY, num_prototypes=1)
    with pytest.raises(ConfigError, match="every clip needs negatives"):
        replace(TINY, frames_per_video=7)


def test_what_will_hardly_work_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    config = replace(TINY, num_prototypes=100)
    DiscoverPhase(config, footage(tmp_path, "robot", lengths=(3, 20, 2, 20, 20, 20)), 0, CPU, said.append)
    assert said == [
        "all videos are of 'robot': skills are discovered, but shared with nobody",
        "a step has 48 clips of each embodiment, fewer than the 100 prototypes to share",
        "2 videos of 'robot' are shorter than a clip of 4: frames repeat",
    ]


def test_collapse_and_chance_are_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    made = phase(tmp_path, replace(TINY, num_prototypes=32), warn=said.append)
    assert isinstance(made.module, SkillModel)
    with torch.no_grad():
        made.module.encoder.transformer.norm.weight.zero_()
        made.module.encoder.transformer.norm.bias.fill_(1.0)
    for _ in range(2):
        found = made.evaluate(made.module.eval())
    assert found["used_robot"] == 1
    assert found["shared_usage"] == pytest.approx(0, abs=1e-6)
    assert [text for text in said if "collapsed" in text] == [
        f"the skills of '{body}' have collapsed: 1 of 32 prototypes are used" for body in ("robot", "person")
    ]
    assert sum("sits at log K" in text for text in said) == 1


def test_half_precision_pixels_are_only_for_half_precision_networks() -> None:
    for device, precision, dtype in [
        ("cpu", "bf16", torch.float32),  # a CPU multiplies fp32 faster
        ("cuda", "fp32", torch.float32),
        ("cuda", "bf16", torch.float16),
    ]:
        config = replace(TINY, loop=replace(TINY.loop, precision=precision))
        assert DiscoverPhase.pixels(config, torch.device(device)) == dtype


def test_measures_that_mean_nothing_are_left_out(tmp_path: Path) -> None:
    sets = [replace(videos, held_out=np.array([4])) for videos in footage(tmp_path, "robot", "person")]
    made = DiscoverPhase(TINY, sets, 0, CPU)
    found = made.evaluate(made.module.eval())
    assert "sub_task_person" not in found  # there is no other video to find it in
    assert "recall_person" in found
    assert len(told({**found, "recall_person": None}, ["robot", "person"], TINY)) == 1


def test_one_embodiment_alone_trains(tmp_path: Path) -> None:
    best = trained(DiscoverPhase(TINY, footage(tmp_path, "robot"), 0, CPU), TINY, tmp_path / "run")
    assert np.isfinite(best.metrics["shared_usage"])
