"""Two sides of an argument: two systems, two interconnects, or one before and after maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from results.run import Run
from results.scaling import Curve, Row, curves
from results.score import FEWEST_FOR_CLAIM, ratio_interval
from results.yaml_file import ConfigurationError

Key = tuple[Any, ...]
MATCHES: list[tuple[str, Callable[[Curve, Row], Key]]] = [
    (
        "workload, system, interconnect, settings, nodes, ranks and batch size",
        lambda curve, row: (curve.series, row.nodes, row.ranks, row.local_batch_size, row.global_batch_size),
    ),
    (
        "workload, nodes, ranks and batch size",
        lambda curve, row: (curve.series.workload, row.nodes, row.ranks, row.local_batch_size, row.global_batch_size),
    ),
    ("workload and number of ranks", lambda curve, row: (curve.series.workload, row.ranks)),
]
"""From the strictest on; the first that finds a pair is used, and named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One configuration on both sides; None for a void score."""

    workload: str
    nodes: int
    other_nodes: int
    ranks: int | None
    global_batch_size: int | None
    other_global_batch_size: int | None
    time_s: float | None
    other_time_s: float | None
    runs: int
    other_runs: int
    speed: float | None
    """Speed of the second side relative to the first: ratio of the times."""
    speed_low: float | None
    speed_high: float | None
    verdict: str
    differs: bool
    """A difference is shown: enough runs, and intervals that do not overlap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOfTwo:
    """All pairs, and what they have in common."""

    first: str
    second: str
    matched_by: str
    remarks: list[str]
    pairs: list[Pair]

    def below(self, percent: float) -> list[Pair]:
        """Pairs whose second side has less than `percent` of the first one's speed, or no score where the first has one."""
        return [pair for pair in self.pairs if _percent(pair) < percent]


def compare(first: Sequence[Run], second: Sequence[Run], names: tuple[str, str]) -> ComparisonOfTwo:
    """Pair the rows of both sides by the strictest match that finds any.

    Raises:
        ConfigurationError: no row of one side corresponds to a row of the other, or one to several.
    """
    sides = [curves(run for run in runs if run.counts) for runs in (first, second)]
    for side, name in zip(sides, names, strict=True):
        if not side:
            raise ConfigurationError(f"{name}: no run that counts")
    for matched_by, key in MATCHES:
        tables = [_by_key(side, key) for side in sides]
        common = [found for found in tables[0] if found in tables[1]]
        if not common:
            continue
        for table, name in zip(tables, names, strict=True):
            _refuse_ambiguous([table[found] for found in common], name)
        pairs = [_pair(*tables[0][found][0], tables[1][found][0][1]) for found in common]
        return ComparisonOfTwo(
            first=names[0], second=names[1], matched_by=matched_by, remarks=_remarks(sides, names), pairs=pairs
        )
    raise ConfigurationError(f"{names[0]} and {names[1]} have no workload and number of ranks in common")


def _by_key(side: Sequence[Curve], key: Callable[[Curve, Row], Key]) -> dict[Key, list[tuple[Curve, Row]]]:
    found: dict[Key, list[tuple[Curve, Row]]] = {}
    for curve in side:
        for row in curve.rows:
            places = found.setdefault(key(curve, row), [])
            if all(row.runs != other.runs for _, other in places):  # the base of a weak and a strong curve is one row
                places.append((curve, row))
    return found


def _refuse_ambiguous(places: Sequence[list[tuple[Curve, Row]]], name: str) -> None:
    for found in places:
        if len(found) > 1:
            kinds = "; ".join(f"{curve.series.system} {curve.series.interconnect} at {row.nodes} nodes" for curve, row in found)
            raise ConfigurationError(f"{name} is ambiguous: {kinds}; name one system or interconnect")


def _pair(curve: Curve, one: Row, other: Row) -> Pair:
    scores = one.score, other.score
    void = "void" in (scores[0].kind, scores[1].kind)
    interval = ratio_interval(*scores)
    differs, verdict = _verdict(one, other)
    return Pair(
        workload=curve.series.workload,
        nodes=one.nodes,
        other_nodes=other.nodes,
        ranks=one.ranks,
        global_batch_size=one.global_batch_size,
        other_global_batch_size=other.global_batch_size,
        time_s=None if scores[0].kind == "void" else scores[0].value_s,
        other_time_s=None if scores[1].kind == "void" else scores[1].value_s,
        runs=scores[0].runs,
        other_runs=scores[1].runs,
        speed=None if void else scores[0].value_s / scores[1].value_s,
        speed_low=interval.low if interval else None,
        speed_high=interval.high if interval else None,
        verdict=verdict,
        differs=differs,
    )


def _verdict(one: Row, other: Row) -> tuple[bool, str]:
    for row, name in ((one, "A"), (other, "B")):
        if row.score.kind == "void":
            return False, f"{name} void: {row.score.why_void}"
    intervals = one.score.interval_s, other.score.interval_s
    if intervals[0] is None or intervals[1] is None:
        fewest = min(one.score.runs, other.score.runs)
        return False, f"no difference shown: {fewest} runs are too few, at least {FEWEST_FOR_CLAIM} are needed"
    if intervals[0].overlaps(intervals[1]):
        return False, "no difference shown: the intervals overlap"
    change = one.score.value_s / other.score.value_s - 1
    return True, f"B is {'faster' if change > 0 else 'slower'} by {abs(change):.1%}"


def _remarks(sides: Sequence[Sequence[Curve]], names: tuple[str, str]) -> list[str]:
    remarks = []
    fields = {
        "emulated": "emulated nodes",
        "embedded": "embedded data",
        "mlperf_round": "MLPerf round",
        "settings_key": "settings",
    }
    for field, title in fields.items():
        values = [{getattr(curve.series, field) for curve in side} for side in sides]
        if values[0] != values[1]:
            remarks.append(f"{names[0]} and {names[1]} differ in {title}: times may differ for that reason alone.")
        elif True in values[0]:
            remarks.append(f"Both sides ran with {title}.")
    return remarks


def _percent(pair: Pair) -> float:
    if pair.time_s is None:
        return float("inf")
    return 100 * pair.speed if pair.speed is not None else 0.0
