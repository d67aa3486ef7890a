"""Reference convergence points (RCPs): does a row reach its target in a plausible number of epochs for its batch size?

As `rcp_checker` of mlcommons/logging does it: means without the lowest and the highest, points that are slower than their
neighbours interpolated are pruned, between batch sizes a straight line, and a one-sided t-test (5%) that only a faster
convergence than the reference can fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import yaml

from results.published import RCP_FILE
from results.score import FEWEST_FOR_OLYMPIC, mean_of_sorted

DEFAULT_ROUND = "v1.0"
"""The first round with RCPs, and the one whose targets and models are those of the presets."""
SUBMISSION_RUNS = 5
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class ReferencePoint:
    """Convergence of the reference at one global batch size."""

    global_batch_size: int
    mean_epochs: float
    deviation_epochs: float
    least_epochs: float
    """A submission's mean below this converges suspiciously fast."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row beside the reference."""

    mlperf_round: str
    how: Literal["reference", "interpolated", "smaller than any reference batch", "larger than any reference batch"]
    point: ReferencePoint | None
    """None beyond the largest reference batch."""
    suspicious: bool


def judge(workload: str, global_batch_size: int, epochs: Sequence[float], mlperf_round: str = DEFAULT_ROUND) -> Verdict | None:
    """Set the epochs to target of repeated runs beside the reference; None where MLPerf has none for the workload.

    Fewer than three runs are never called suspicious (the rules judge five), nor is a batch smaller than any of the reference.
    """
    if not epochs:
        return None
    points = reference_points(mlperf_round, workload)
    if not points:
        return None
    how, point = _at(points, global_batch_size)
    enough = len(epochs) >= FEWEST_FOR_OLYMPIC
    suspicious = (
        enough
        and how in ("reference", "interpolated")
        and point is not None
        and mean_of_sorted(sorted(epochs)) < point.least_epochs
    )
    return Verdict(mlperf_round, how, point, suspicious)


@cache
def reference_points(mlperf_round: str, workload: str) -> tuple[ReferencePoint, ...]:
    """Pruned points of a round, by batch size; empty where there are none."""
    data = yaml.safe_load(RCP_FILE.read_text(encoding="utf-8"))
    runs: dict[int, list[int]] = data.get(mlperf_round, {}).get(workload, {})
    return tuple(_pruned([_point(batch, epochs) for batch, epochs in sorted(runs.items())]))


def rounds() -> list[str]:
    """Rounds that have reference convergence points."""
    return list(yaml.safe_load(RCP_FILE.read_text(encoding="utf-8")))


def _point(batch: int, epochs: Sequence[float]) -> ReferencePoint:
    mean = mean_of_sorted(sorted(epochs))
    centre = sum(epochs) / len(epochs)
    deviation = math.sqrt(sum((value - centre) ** 2 for value in epochs) / len(epochs))
    return ReferencePoint(batch, mean, deviation, _least(mean, deviation, len(epochs) - 2))


def _least(mean: float, deviation: float, reference_runs: int) -> float:
    """The mean at which the one-sided t-test of two samples with this deviation just passes."""
    from scipy.special import stdtrit

    kept = SUBMISSION_RUNS - 2
    quantile = float(stdtrit(reference_runs + kept - 2, 1 - ALPHA))
    return mean - quantile * deviation * math.sqrt(1 / reference_runs + 1 / kept)


def _between(low: ReferencePoint, high: ReferencePoint, batch: int) -> ReferencePoint:
    part = (batch - low.global_batch_size) / (high.global_batch_size - low.global_batch_size)
    mean = low.mean_epochs + part * (high.mean_epochs - low.mean_epochs)
    deviation = low.deviation_epochs + part * (high.deviation_epochs - low.deviation_epochs)
    return ReferencePoint(batch, mean, deviation, _least(mean, deviation, 2 * SUBMISSION_RUNS))


def _pruned(points: list[ReferencePoint]) -> list[ReferencePoint]:
    if not points:
        return []
    fastest = min(points, key=lambda point: point.mean_epochs)
    kept = [point for point in points if point.global_batch_size >= fastest.global_batch_size]
    at = 1
    while at < len(kept) - 1:
        middle = kept[at]
        if middle.mean_epochs > _between(kept[at - 1], kept[at + 1], middle.global_batch_size).mean_epochs:
            del kept[at]
            at -= 1
        at += 1
    return kept


def _at(
    points: Sequence[ReferencePoint], batch: int
) -> tuple[
    Literal["reference", "interpolated", "smaller than any reference batch", "larger than any reference batch"],
    ReferencePoint | None,
]:
    for point in points:
        if point.global_batch_size == batch:
            return "reference", point
    lower = [point for point in points if point.global_batch_size < batch]
    higher = [point for point in points if point.global_batch_size > batch]
    if lower and higher:
        return "interpolated", _between(lower[-1], higher[0], batch)
    if higher:
        return "smaller than any reference batch", higher[0]
    return "larger than any reference batch", None
