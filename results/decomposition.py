"""Where a speedup was lost: three factors whose product is the time-to-train speedup, and points of efficiency for each loss.

speedup = throughput speedup x epochs ratio x overhead ratio, exactly: with time T, epochs E and rate X of the base case (b)
and of a row, T_b / T = (X / X_b) (E_b / E) (O_b / O), O = T X / E being what the clock shows beyond training.

Points: efficiency lost is 100 (1 - speedup / ideal). It is shared among the factors by their logarithms, and within a factor
by logarithmic means, so that the points add up exactly and no order of the factors is preferred: the LMDI method,
B. W. Ang, Energy Policy 32 (2004) 1131-1139. A gain has negative points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from results.fabric import AllreducePoint
from results.scaling import Curve, Row, size_ratio, speedup
from results.score import Interval

Cause = Literal[
    "epochs", "throughput", "input wait", "exposed communication", "stragglers", "compute",
    "evaluation", "checkpoints and logging", "restarts", "other overhead",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Factors:
    """Their product is the time-to-train speedup."""

    throughput: float
    epochs: float
    overhead: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds of the time-to-train speedup; None where the measurement for it is missing."""

    ideal: float
    amdahl: float | None
    """With the part outside training that did not shrink on any size as the serial part."""
    communication: float | None
    """As Amdahl, and no optimizer step faster than the measured allreduce of the gradients."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row against its base case."""

    speedup: float
    interval: Interval | None
    factors: Factors | None
    efficiency: float | None
    """Throughput speedup over the ideal one."""
    bounds: Bounds
    points: dict[Cause, float]
    """Points of efficiency lost (positive) or gained, out of 100; their sum is 100 (1 - speedup / ideal)."""

    @property
    def lost_points(self) -> float:
        """100 (1 - speedup / ideal)."""
        return 100 * (1 - self.speedup / self.bounds.ideal)


def compare_row(curve: Curve, row: Row, allreduce: Sequence[AllreducePoint] = ()) -> Comparison | None:
    """Set a row against the base case of its curve; None without one, or when a score is void.

    `allreduce` is what the fabric carried between as many nodes, for the communication bound.
    """
    base = curve.base
    found = speedup(base, row) if base else None
    if base is None or found is None:
        return None
    ideal = size_ratio(base, row)
    factors = _factors(base, row)
    return Comparison(
        speedup=found[0],
        interval=found[1],
        factors=factors,
        efficiency=factors.throughput / ideal if factors else _throughput_efficiency(base, row, ideal),
        bounds=_bounds(curve, base, row, ideal, allreduce),
        points=_points(base, row, ideal, factors) if factors else {},
    )


def log_mean(a: float, b: float) -> float:
    """Logarithmic mean (a - b) / (ln a - ln b) of two positive numbers; a where both are equal."""
    if math.isclose(a, b, rel_tol=1e-12):
        return a
    return (a - b) / math.log(a / b)


def _throughput_efficiency(base: Row, row: Row, ideal: float) -> float | None:
    if not base.samples_per_s or not row.samples_per_s:
        return None
    return row.samples_per_s / base.samples_per_s / ideal


def _factors(base: Row, row: Row) -> Factors | None:
    if not (base.samples_per_s and row.samples_per_s and base.epochs and row.epochs):
        return None
    throughput, epochs = row.samples_per_s / base.samples_per_s, base.epochs / row.epochs
    return Factors(throughput, epochs, base.score.value_s / row.score.value_s / (throughput * epochs))


def _points(base: Row, row: Row, ideal: float, factors: Factors) -> dict[Cause, float]:
    efficiency = base.score.value_s / row.score.value_s / ideal
    weight = 100 * log_mean(1.0, efficiency)
    points: dict[Cause, float] = {"epochs": -weight * math.log(factors.epochs)}
    points |= _throughput_points(base, row, ideal / factors.throughput, weight)
    points |= _overhead_points(base, row, factors.overhead, weight)
    return points


def _throughput_points(base: Row, row: Row, slowdown: float, weight: float) -> dict[Cause, float]:
    """Seconds of a rank per sample, relative to the base case's 1, grew to `slowdown`; shared by what grew."""
    shares, base_shares = row.wait_shares(), base.wait_shares()
    if shares is None or base_shares is None:
        return {"throughput": weight * math.log(slowdown)}
    scale = weight / log_mean(slowdown, 1.0)
    waits = [slowdown * share - base_share for share, base_share in zip(shares, base_shares, strict=True)]
    compute = (slowdown - 1) - sum(waits)
    names: tuple[Cause, ...] = ("input wait", "exposed communication", "stragglers", "compute")
    return {name: scale * grown for name, grown in zip(names, (*waits, compute), strict=True)}


def _overhead_points(base: Row, row: Row, ratio: float, weight: float) -> dict[Cause, float]:
    """Time on the clock per second of training, shared by the accounts outside training."""
    base_training_s, training_s = base.training_s, row.training_s
    if not base_training_s or not training_s:
        return {"other overhead": -weight * math.log(ratio)}
    before = base.score.value_s / base_training_s
    after = before / ratio
    scale = weight / log_mean(after, before)
    accounts: dict[Cause, str] = {
        "evaluation": "evaluation_s",
        "checkpoints and logging": "checkpoint_s",
        "restarts": "restart_s",
    }
    grown: dict[Cause, float] = {}
    for cause, account in accounts.items():
        base_s, row_s = base.mean_s(account), row.mean_s(account)
        if base_s is not None and row_s is not None:
            grown[cause] = row_s / training_s - base_s / base_training_s
    grown["other overhead"] = (after - before) - sum(grown.values())
    return {cause: scale * value for cause, value in grown.items()}


def _bounds(curve: Curve, base: Row, row: Row, ideal: float, allreduce: Sequence[AllreducePoint]) -> Bounds:
    serial_s = [r.score.value_s - r.training_s for r in curve.rows if r.training_s and r.score.kind != "void"]
    if not serial_s or not base.training_s:
        return Bounds(ideal, None, None)
    least_s = max(0.0, min(serial_s))
    training_s = base.training_s / ideal
    amdahl = min(ideal, base.score.value_s / (least_s + training_s))
    return Bounds(ideal, amdahl, _communication_bound(base, row, least_s, training_s, allreduce))


def _communication_bound(
    base: Row, row: Row, serial_s: float, training_s: float, allreduce: Sequence[AllreducePoint]
) -> float | None:
    run = row.kept[0]
    if not allreduce or not run.model_parameters or not row.global_batch_size or not base.epochs or not base.samples_per_epoch:
        return None
    gradient_bytes = run.model_parameters * (2 if run.compression == "fp16" else 4)
    steps = base.epochs * base.samples_per_epoch / row.global_batch_size
    bound = base.score.value_s / (serial_s + max(training_s, steps * allreduce_time_s(allreduce, gradient_bytes)))
    return min(size_ratio(base, row), bound)


def allreduce_time_s(points: Sequence[AllreducePoint], size_bytes: float) -> float:
    """Seconds of one allreduce: between measured sizes by a straight line, beyond the largest by its bandwidth."""
    points = sorted(points, key=lambda point: point.size_bytes)
    if size_bytes <= points[0].size_bytes:
        return points[0].seconds_s
    for low, high in pairwise(points):
        if size_bytes <= high.size_bytes:
            part = (size_bytes - low.size_bytes) / (high.size_bytes - low.size_bytes)
            return low.seconds_s + part * (high.seconds_s - low.seconds_s)
    return points[-1].seconds_s * size_bytes / points[-1].size_bytes
