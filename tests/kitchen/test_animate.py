"""Animated demonstrators: any order, in that order, always the same for the same seed and never twice alike."""

import itertools

import numpy as np
import pytest

from xskill.kitchen.animate import IN_FRONT, RESTS, animate
from xskill.kitchen.env import HOME
from xskill.kitchen.tasks import TASKS, completions


@pytest.mark.parametrize("hands", [1, 2])
def test_every_pair_and_many_longer_orders_are_done_in_order(hands: int) -> None:
    random = np.random.default_rng(0)
    orders = [*itertools.permutations(TASKS, 2), *(tuple(random.permutation(list(TASKS))) for _ in range(10))]
    for seed, order in enumerate(orders):
        motion = animate(order, seed, hands=hands)
        assert tuple(completion.task for completion in completions(motion.qpos)) == order


def test_a_motion_is_a_function_of_order_and_seed() -> None:
    order = ("kettle", "light")
    one, same, other = animate(order, 1), animate(order, 1), animate(order, 2)
    assert np.array_equal(one.qpos, same.qpos)
    assert np.array_equal(one.hands, same.hands)
    assert one.hands.shape != other.hands.shape or np.abs(one.hands - other.hands).max() > 0.02
    lengths = {len(animate(("kettle", "light", "slide", "microwave"), seed).qpos) for seed in range(12)}
    assert len(lengths) > 6
    assert 100 < min(lengths) < max(lengths) < 340


def test_nothing_moves_but_what_the_hand_is_at() -> None:
    motion = animate(("microwave", "hinge"), 3)
    steps = np.abs(np.diff(motion.qpos, axis=0)) > 1e-9
    assert set(np.flatnonzero(steps.any(0))) <= {20, 21, 22}
    assert not (steps[:, 22] & steps[:, 21]).any()
    assert np.array_equal(motion.qpos[:, :9], np.tile(HOME[:9], (len(motion.qpos), 1)))
    assert np.abs(motion.hands[:, 1] - RESTS[1]).max() < 0.05  # the other hand rests


def test_two_hands_are_at_work_at_once() -> None:
    motion = animate(("microwave", "slide", "kettle", "light"), 0, hands=2)
    speed = np.linalg.norm(np.diff(motion.hands, axis=0), axis=-1)
    assert ((speed > 0.012).all(axis=1)).mean() > 0.15
    alone = animate(("microwave", "slide", "kettle", "light"), 0)
    assert len(motion.qpos) < 0.8 * len(alone.qpos)


def test_the_kettle_is_lifted_and_the_hand_stays_with_it() -> None:
    motion = animate(("kettle",), 5)
    moving = np.flatnonzero(np.abs(np.diff(motion.qpos[:, 24])) > 1e-4)
    assert motion.qpos[:, 25].max() > HOME[25] + 0.1
    assert np.allclose(np.linalg.norm(motion.qpos[:, 26:30], axis=1), 1)
    held = motion.hands[moving, 0] - motion.qpos[moving, 23:26] - IN_FRONT
    assert held.std(0).max() < 0.03
