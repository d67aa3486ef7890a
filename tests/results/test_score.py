"""Scores: known values, MLPerf's rules for missed targets, and properties that no score may break."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.score import ratio_interval, score, trimmed_mean_interval

INF = math.inf
times = st.floats(min_value=0.01, max_value=1e6, allow_nan=False)
run_times = st.lists(st.one_of(times, st.just(INF)), min_size=1, max_size=12)


def test_olympic_mean_of_the_published_dgx1_runs() -> None:
    found = score([108.14, 115.16, 115.17, 115.34, 115.58])
    assert found.kind == "olympic mean"
    assert found.value_s == pytest.approx((115.16 + 115.17 + 115.34) / 3)


def test_fewer_than_three_runs_are_a_plain_mean() -> None:
    assert (score([10.0]).kind, score([10.0]).value_s) == ("plain mean", 10.0)
    assert (score([10.0, 20.0]).kind, score([10.0, 20.0]).value_s) == ("plain mean", 15.0)


def test_one_missed_target_is_dropped_as_the_slowest_and_two_void() -> None:
    one = score([10.0, 11.0, 12.0, 13.0, INF])
    assert (one.value_s, one.missed, one.kind) == (12.0, 1, "olympic mean")
    two = score([10.0, 11.0, 12.0, INF, INF])
    assert (two.value_s, two.kind, two.interval_s) == (INF, "void", None)
    assert "2 of 5 runs missed the target" in two.why_void
    assert score([10.0, INF]).kind == "void"


@pytest.mark.parametrize("bad", [[], [0.0], [-1.0, 2.0], [math.nan]])
def test_no_score_of_nothing_or_of_times_that_cannot_be(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"needs at least one|must be positive"):
        score(bad)


def test_interval_of_the_trimmed_mean_by_hand() -> None:
    """n=5, one trimmed at each end: winsorised 2, 2, 3, 4, 4 has s_w = 1; error 1/(0.6 sqrt(5)); t(2, 0.975) = 4.302653."""
    interval = trimmed_mean_interval([1.0, 2.0, 3.0, 4.0, 100.0])
    half = 4.302652729911275 / (0.6 * math.sqrt(5))
    assert interval is not None
    assert interval.low == pytest.approx(3 - half)
    assert interval.high == pytest.approx(3 + half)
    assert trimmed_mean_interval([1.0, 2.0, 3.0]) is None
    assert trimmed_mean_interval([1.0, 2.0, INF, INF]) is None


def test_the_interval_covers_the_mean_about_as_often_as_it_says() -> None:
    """Normal runs: Yuen's interval with five runs, 95% nominal."""
    chance = random.Random(1)
    hits = 0
    for _ in range(2000):
        interval = score([chance.gauss(100, 2) for _ in range(5)]).interval_s
        hits += interval is not None and interval.low <= 100 <= interval.high
    assert 0.92 < hits / 2000 < 0.98


def test_bootstrap_of_a_ratio() -> None:
    base, fast = score([100.0, 101.0, 102.0, 103.0, 104.0]), score([50.0, 50.5, 51.0, 51.5, 52.0])
    interval = ratio_interval(base, fast)
    assert interval is not None
    assert interval.low < base.value_s / fast.value_s < interval.high
    assert interval.low > 100 / 52 - 1e-9
    assert interval.high < 104 / 50 + 1e-9
    assert ratio_interval(base, score([50.0, 51.0])) is None
    assert ratio_interval(base, score([INF, INF, 5.0])) is None


@given(run_times, st.randoms(use_true_random=False))
def test_the_order_of_runs_changes_nothing(runs: list[float], chance: random.Random) -> None:
    shuffled = runs[:]
    chance.shuffle(shuffled)
    assert score(shuffled) == score(runs)


@given(run_times, st.one_of(times, st.just(INF)))
def test_a_slower_run_never_makes_a_score_better(runs: list[float], extra: float) -> None:
    before = score(runs).value_s
    slower = max(extra, before)
    assert score([*runs, slower]).value_s >= before * (1 - 1e-12)


@given(st.lists(times, min_size=1, max_size=12), times)
def test_scores_scale_with_the_unit(runs: list[float], factor: float) -> None:
    assert score([time * factor for time in runs]).value_s == pytest.approx(score(runs).value_s * factor)


@given(st.lists(times, min_size=3, max_size=8))
def test_a_speedup_over_itself_is_one(runs: list[float]) -> None:
    found = score(runs)
    assert found.value_s / found.value_s == 1
    interval = ratio_interval(found, found)
    assert interval is not None
    assert interval.low <= 1 + 1e-12
    assert interval.high >= 1 - 1e-12
