"""Intervals and comparisons, against SciPy, by hand, and on made-up methods whose truth is known."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from xskill.errors import ConfigError, DataError
from xskill.evaluate.statistics import Interval, Keyed, compared, mean_interval, success_interval

Floats = npt.NDArray[np.float64]


def made(seed: int, seeds: int, conditions: int, mean: float = 0.0, between: float = 0.0) -> Floats:
    """Scores (seeds, conditions) with spread 1 within a seed and `between` among seeds."""
    random = np.random.default_rng(seed)
    return mean + between * random.normal(size=(seeds, 1)) + random.normal(size=(seeds, conditions))


def keyed(scores: Floats) -> Keyed:
    return {(seed, f"c{at}"): float(score) for (seed, at), score in np.ndenumerate(scores)}


def coverage(interval_of: Callable[[Floats], Interval], between: float, seeds: int, conditions: int = 15) -> float:
    found = [interval_of(made(seed, seeds, conditions, between=between)) for seed in range(300)]
    return float(np.mean([one.low <= 0 <= one.high for one in found]))


# The mean


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_of_one_seed_is_scipys_bootstrap(level: float) -> None:
    scores = made(0, 1, 40) ** 2  # skewed
    oracle = stats.bootstrap(
        (scores[0],), np.mean, confidence_level=level, n_resamples=40_000, method="percentile", rng=1
    ).confidence_interval
    found = mean_interval(scores, level, draws=40_000)
    assert found.mean == pytest.approx(scores.mean())
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=0.02)


def test_the_interval_of_many_seeds_is_that_of_drawing_seeds_and_then_conditions() -> None:
    scores = {3: [0.0, 1.0, 5.0], 1: [2.0, 2.5], 2: [9.0, 7.0, 8.0, 4.0]}
    random = np.random.default_rng(1)
    means = []
    for _ in range(5_000):
        drawn = [scores[int(seed)] for seed in random.choice([1, 2, 3], 3)]
        means.append(np.mean([random.choice(one, len(one)).mean() for one in drawn]))
    found = mean_interval(scores)
    assert found.mean == pytest.approx((2.0 + 2.25 + 7.0) / 3)
    assert (found.low, found.high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.15)


def test_two_scores_by_hand() -> None:
    # Samples 00, 01, 10, 11: a mean of 0 in a quarter of them, of 1 in another, between them one half.
    assert mean_interval({7: [0, 1]}, level=0.9) == Interval(0.5, 0.0, 1.0)
    assert mean_interval({7: [0, 1]}, level=0.4) == Interval(0.5, 0.5, 0.5)
    assert mean_interval({1: [0], 2: [1]}, level=0.9) == Interval(0.5, 0.0, 1.0)


def test_the_interval_depends_on_the_scores_alone() -> None:
    scores = made(2, 3, 10)
    as_mapping = {seed: scores[seed].tolist() for seed in (2, 0, 1)}
    assert mean_interval(scores) == mean_interval(as_mapping) == mean_interval(scores)


def test_scores_without_spread_have_an_interval_without_width_that_holds_the_mean() -> None:
    for conditions in range(1, 30):
        found = mean_interval(np.full((3, conditions), 0.1 * conditions), level=0.01, draws=100)
        assert found.low <= found.mean <= found.high
        assert found.high - found.low == pytest.approx(0, abs=1e-12)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    assert 0.88 <= coverage(lambda scores: mean_interval(scores, draws=500), between=0, seeds=1, conditions=30) <= 0.98
    assert 0.85 <= coverage(lambda scores: mean_interval(scores, draws=500), between=1, seeds=10) <= 0.98


def test_seeds_taken_for_conditions_would_make_it_far_too_sure() -> None:
    assert coverage(lambda scores: mean_interval(scores.reshape(1, -1), draws=500), between=1, seeds=10) < 0.6


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({}, "no scores"),
        (np.zeros((0, 3)), "no scores"),
        ({1: [0.5], 4: []}, r"seed 4 have shape \(0,\)"),
        (np.zeros((2, 0)), "seed 0 have shape"),
        (np.zeros(3), "seed 0 have shape"),
        (np.zeros((1, 2, 3)), "seed 0 have shape"),
        ({1: [0.5], 4: [0.1, np.nan]}, "score 1 of seed 4 is nan"),
        (np.array([[np.inf, 0.0]]), "score 0 of seed 0 is inf"),
    ],
)
def test_scores_that_are_missing_or_not_finite_are_refused(scores: Floats, said: str) -> None:
    with pytest.raises(DataError, match=said):
        mean_interval(scores)


# Success rates


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_success_intervals_are_scipys(level: float) -> None:
    for trials in (1, 2, 10, 137):
        for successes in {0, 1, trials // 3, trials - 1, trials}:
            oracle = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
            found = success_interval(successes, trials, level)
            assert found.mean == successes / trials
            assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=1e-12)
            assert 0 <= found.low <= found.mean <= found.high <= 1


def test_nothing_but_failure_or_success_ends_exactly_at_none_or_all() -> None:
    for trials in range(1, 200):
        assert success_interval(0, trials).low == 0
        assert success_interval(trials, trials).high == 1


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 2), (-2, -1)])
def test_impossible_counts_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(DataError, match=f"{successes} successes of {trials} trials"):
        success_interval(successes, trials)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1, float("nan")])
def test_a_level_is_a_share(level: float) -> None:
    for call in (lambda: mean_interval({0: [1.0, 2.0]}, level), lambda: success_interval(1, 2, level)):
        with pytest.raises(ConfigError, match="level is"):
            call()


# Comparisons


@pytest.mark.parametrize("conditions", [5, 20])  # all 2**10 ways, and some of 2**40
def test_the_p_value_is_scipys(conditions: int) -> None:
    ours, theirs = made(1, 2, conditions, 0.3), made(2, 2, conditions)
    oracle = stats.permutation_test(
        (ours.ravel(), theirs.ravel()),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=1,
    )
    found = compared(keyed(ours), keyed(theirs), draws=20_000)
    exact = conditions == 5
    assert 0.01 < found.p_value < 0.9
    assert found.p_value == pytest.approx(oracle.pvalue, abs=1e-12 if exact else 0.02)


def test_the_p_value_of_successes_with_many_ties_is_that_of_the_sign_test() -> None:
    ours = np.array([[1, 1, 1, 1, 1, 1, 0, 1, 0, 1.0], [1, 1, 0, 0, 1, 0, 1, 0, 1, 1]])
    theirs = np.array([[0, 0, 0, 1, 0, 0, 1, 1, 0, 0.0], [0, 0, 0, 0, 0, 1, 1, 0, 1, 1]])
    wins, losses = int((ours > theirs).sum()), int((ours < theirs).sum())
    found = compared(keyed(ours), keyed(theirs))
    assert found.p_value == pytest.approx(stats.binomtest(wins, wins + losses).pvalue, abs=1e-12)


def test_a_comparison_by_hand() -> None:
    found = compared({(0, "a"): 2.0, (0, "b"): 3.0, (1, "a"): 5.0}, {(1, "a"): 4.0, (0, "b"): 1.0, (0, "a"): 1.0})
    assert found.difference.mean == pytest.approx(((1 + 2) / 2 + 1) / 2)
    assert found.difference == mean_interval({0: [1.0, 2.0], 1: [1.0]})
    assert found.p_value == 2 / 8  # only all signs as they are, or all turned, go as far


def test_rounding_breaks_no_ties() -> None:
    # Differences that cancel out are as small as can be, so that every flip goes as far.
    for parts in ((0.1, 0.2, -0.3), (0.7, 0.1, -0.8), (0.1, 0.1, 0.1, -0.3), (1.1, 2.2, -3.3)):
        assert compared(keyed(np.array([parts])), keyed(np.zeros((1, len(parts))))).p_value == 1


def test_each_seed_weighs_the_same_however_many_conditions_it_has() -> None:
    ours = {(0, "a"): 1.0, (0, "b"): 1.0, (0, "c"): 1.0, (1, "a"): -1.0}
    found = compared(ours, dict.fromkeys(ours, 0.0))
    assert found.difference.mean == 0
    assert found.p_value == 1


def test_the_order_of_the_scores_does_not_matter() -> None:
    ours, theirs = keyed(made(0, 3, 10, 0.5)), keyed(made(1, 3, 10))
    assert compared(dict(reversed(ours.items())), theirs) == compared(ours, theirs)


def test_equal_methods_do_not_differ() -> None:
    found = compared(keyed(made(0, 3, 30)), keyed(made(0, 3, 30)))
    assert found.difference == Interval(0.0, 0.0, 0.0)
    assert found.p_value == 1


def test_the_other_way_round_is_the_same_comparison() -> None:
    ours, theirs = keyed(made(0, 3, 10, 0.5)), keyed(made(1, 3, 10))
    one, other = compared(ours, theirs), compared(theirs, ours)
    assert one.p_value == other.p_value
    assert one.difference.mean == pytest.approx(-other.difference.mean)
    assert (one.difference.low, one.difference.high) == pytest.approx((-other.difference.high, -other.difference.low))


def test_a_p_value_drawn_at_random_is_never_zero() -> None:
    found = compared(keyed(10 + made(0, 2, 30)), keyed(made(1, 2, 30)), draws=999)
    assert found.p_value == pytest.approx(1 / 1000)
    assert found.difference.low > 9


def test_chance_is_called_a_difference_as_rarely_as_promised() -> None:
    found = [compared(keyed(made(seed, 2, 4)), keyed(made(1000 + seed, 2, 4)), draws=256) for seed in range(400)]
    assert 0.02 <= np.mean([one.p_value <= 0.05 for one in found]) <= 0.08


def test_methods_scored_on_other_seeds_or_conditions_are_not_compared() -> None:
    scores = dict(keyed(made(0, 2, 3)))
    fewer = {key: score for key, score in scores.items() if key != (1, "c2")}
    for ours, theirs in ((scores, fewer), (fewer, scores), (fewer, fewer | {(9, "x"): 0.0})):
        with pytest.raises(DataError, match=r"seed (1, condition 'c2'|9, condition 'x')"):
            compared(ours, theirs)


def test_comparisons_of_nothing_or_of_failed_runs_are_refused() -> None:
    with pytest.raises(DataError, match="no scores"):
        compared({}, {})
    with pytest.raises(DataError, match="score 0 of seed 2 is nan"):
        compared({(2, "a"): float("nan")}, {(2, "a"): 1.0})
