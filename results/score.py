"""Scores: the olympic mean of repeated runs, its interval, and intervals of ratios.

A run that missed its target counts as infinitely slow. Times are in seconds throughout; the functions don't care.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

CONFIDENCE = 0.95
RESAMPLES = 4000
FEWEST_FOR_OLYMPIC = 3
FEWEST_FOR_INTERVAL = 4
"""An olympic mean of three keeps one run, which has no spread."""
FEWEST_FOR_CLAIM = 4
"""With three runs a side, no order of the six is rarer than 1 in 10 by chance; with four it is 1 in 35."""
FEWEST_FOR_BOOTSTRAP = 3


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95% confidence interval."""

    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        """True when the two share a value."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True)
class Score:
    """The time to train of one configuration."""

    times_s: tuple[float, ...]
    """Every run, sorted; a missed target is infinite."""
    value_s: float
    """Olympic mean, or plain mean of fewer than three runs; infinite when void."""
    kind: Literal["olympic mean", "plain mean", "void"]
    interval_s: Interval | None
    """Of the mean; None with fewer than four runs."""
    why_void: str = ""

    @property
    def runs(self) -> int:
        """Number of runs, missed targets included."""
        return len(self.times_s)

    @property
    def missed(self) -> int:
        """Runs that missed the target."""
        return sum(math.isinf(time_s) for time_s in self.times_s)


def score(times_s: Sequence[float]) -> Score:
    """Score repeated runs; the order does not matter.

    Raises:
        ValueError: no runs, or a time that is not positive.
    """
    if not times_s:
        raise ValueError("a score needs at least one run")
    if any(not time_s > 0 for time_s in times_s):
        raise ValueError("a time to train must be positive")
    ordered = tuple(sorted(times_s))
    value = mean_of_sorted(ordered)
    if math.isinf(value):
        missed = sum(math.isinf(time_s) for time_s in ordered)
        allowed = "one may be dropped" if len(ordered) >= FEWEST_FOR_OLYMPIC else "none may be dropped with fewer than 3 runs"
        return Score(ordered, value, "void", None, f"{missed} of {len(ordered)} runs missed the target; {allowed}")
    kind: Literal["olympic mean", "plain mean"] = "olympic mean" if len(ordered) >= FEWEST_FOR_OLYMPIC else "plain mean"
    return Score(ordered, value, kind, trimmed_mean_interval(ordered))


def mean_of_sorted(ordered: Sequence[float]) -> float:
    """Olympic mean of sorted values: without the lowest and the highest. Plain mean of fewer than three."""
    kept = kept_of_sorted(ordered)
    return math.fsum(kept) / len(kept) if math.isfinite(kept[-1]) else math.inf


def kept_of_sorted(ordered: Sequence[Any]) -> Sequence[Any]:
    """The runs that an olympic mean is taken over."""
    return ordered[1:-1] if len(ordered) >= FEWEST_FOR_OLYMPIC else ordered


def trimmed_mean_interval(ordered: Sequence[float]) -> Interval | None:
    """95% interval of the mean with one value trimmed at each end, from sorted values; None with fewer than four.

    Standard error s_w / ((1 - 2g/n) sqrt(n)) with the winsorised standard deviation s_w and n - 2g - 1 degrees of freedom,
    g = 1: Tukey and McLaughlin, Sankhya A 25 (1963); Yuen, Biometrika 61 (1974).
    """
    n = len(ordered)
    if n < FEWEST_FOR_INTERVAL or math.isinf(ordered[-2]):
        return None
    from scipy.special import stdtrit

    winsorised = [ordered[1], *ordered[1:-1], ordered[-2]]
    mean = math.fsum(winsorised) / n
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in winsorised) / (n - 1))
    error = deviation / ((1 - 2 / n) * math.sqrt(n))
    half = float(stdtrit(n - 3, 0.5 + CONFIDENCE / 2)) * error
    centre = mean_of_sorted(ordered)
    return Interval(centre - half, centre + half)


def ratio_interval(numerator: Score, denominator: Score) -> Interval | None:
    """95% percentile interval of the ratio of two scores, by bootstrap over the runs of both ends.

    None with fewer than three runs at either end. The resamples are the same in every report (fixed seed).
    Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    if min(numerator.runs, denominator.runs) < FEWEST_FOR_BOOTSTRAP:
        return None
    if numerator.kind == "void" or denominator.kind == "void":
        return None
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = _resampled_means(numerator.times_s, seed=1) / _resampled_means(denominator.times_s, seed=2)
    ratios = ratios[~np.isnan(ratios)]
    low, high = np.quantile(ratios, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2], method="inverted_cdf")
    return Interval(float(low), float(high))


def _resampled_means(ordered: Sequence[float], seed: int) -> Any:
    import numpy as np

    picked = np.asarray(ordered)[_resamples(len(ordered), seed)]  # rows stay sorted, because the picks are
    return picked[:, 1:-1].mean(axis=1)


@cache
def _resamples(n: int, seed: int) -> Any:
    """Sorted picks of `n` runs out of `n`, with replacement: an array of RESAMPLES x n."""
    import numpy as np

    return np.sort(np.random.default_rng(seed).integers(0, n, size=(RESAMPLES, n)), axis=1)


def difference_of_ratios_interval(top: Score, bottom: Score, other_top: Score, other_bottom: Score) -> Interval | None:
    """95% percentile interval of `top / bottom - other_top / other_bottom`, by bootstrap over the runs of all four ends."""
    ends = (top, bottom, other_top, other_bottom)
    if min(end.runs for end in ends) < FEWEST_FOR_BOOTSTRAP or any(end.kind == "void" for end in ends):
        return None
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        a, b, c, d = (_resampled_means(end.times_s, seed) for seed, end in enumerate(ends, start=1))
        differences = a / b - c / d
    differences = differences[~np.isnan(differences)]
    low, high = np.quantile(differences, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2], method="inverted_cdf")
    return Interval(float(low), float(high))
