"""The same workload and system on two interconnects: what the second rail brought, and whether the data show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from results.report.content import RailContent, RailRow
from results.scaling import Curve, Row, speedup
from results.score import FEWEST_FOR_CLAIM, Interval, difference_of_ratios_interval


def rail_comparisons(curves: Sequence[Curve], titles: Sequence[str]) -> list[RailContent]:
    """Every pair of curves that differ in nothing but the interconnect."""
    groups: dict[tuple[object, str], list[tuple[Curve, str]]] = {}
    for curve, title in zip(curves, titles, strict=True):
        if curve.base is not None:
            groups.setdefault((replace(curve.series, interconnect=""), curve.scaling), []).append((curve, title))
    found = []
    for group in groups.values():
        for (first, title), (second, _) in combinations(group, 2):
            rows = _rows(first, second)
            if rows and first.series.interconnect != second.series.interconnect:
                names = first.series.interconnect, second.series.interconnect
                together = title.replace(f" {names[0]} ", f" {names[0]} and {names[1]} ", 1)
                found.append(RailContent(title=together, first=names[0], second=names[1], rows=rows))
    return found


def _rows(first: Curve, second: Curve) -> list[RailRow]:
    rows = []
    for one in first.rows:
        other = next((row for row in second.rows if _size(row) == _size(one)), None)
        if other is not None and one.nodes > 1:
            row = _row(first, one, second, other)
            rows += [row] if row else []
    return rows


def _row(first: Curve, one: Row, second: Curve, other: Row) -> RailRow | None:
    if first.base is None or second.base is None:
        return None
    before, after = speedup(first.base, one), speedup(second.base, other)
    if before is None or after is None:
        return None
    ends = [first.base.score, one.score, second.base.score, other.score]
    interval = difference_of_ratios_interval(ends[2], ends[3], ends[0], ends[1])
    fewest = min(end.runs for end in ends)
    names = first.series.interconnect, second.series.interconnect
    return RailRow(
        nodes=one.nodes,
        first_speedup=before[0],
        first_low=before[1].low if before[1] else None,
        first_high=before[1].high if before[1] else None,
        second_speedup=after[0],
        second_low=after[1].low if after[1] else None,
        second_high=after[1].high if after[1] else None,
        difference=after[0] - before[0],
        difference_low=interval.low if interval else None,
        difference_high=interval.high if interval else None,
        verdict=verdict(names, before, after, fewest),
    )


def verdict(
    names: tuple[str, str], before: tuple[float, Interval | None], after: tuple[float, Interval | None], fewest: int
) -> str:
    """A difference is claimed only with enough runs and intervals that do not overlap."""
    if fewest < FEWEST_FOR_CLAIM or before[1] is None or after[1] is None:
        return f"no difference shown: {fewest} runs are too few, at least {FEWEST_FOR_CLAIM} are needed"
    if before[1].overlaps(after[1]):
        return "no difference shown: the intervals overlap"
    faster = names[0] if before[0] > after[0] else names[1]
    return f"{faster} scales better by {abs(after[0] / before[0] - 1):.1%}"


def _size(row: Row) -> tuple[int, int | None, int | None, int | None]:
    return row.nodes, row.ranks, row.local_batch_size, row.global_batch_size
