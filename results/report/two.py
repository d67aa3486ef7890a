"""A comparison of two sides on a terminal."""

from __future__ import annotations

from results.compare import ComparisonOfTwo, Pair
from results.report import cells
from results.report.content import workload_title
from results.report.terminal import Page


def render(found: ComparisonOfTwo, *, color: bool = False) -> str:
    """Text of at most 100 columns."""
    page = Page()
    page.text(f"A: {found.first}   B: {found.second}", "bold")
    page.text(f"Rows are paired by {found.matched_by}.", "dim")
    for remark in found.remarks:
        page.text(f"! {remark}", "yellow")
    headers = ["workload", "nodes", "ranks", "global", "runs", "A, min", "B, min", "B's speed", "95% interval", "verdict"]
    page.table(cells.Table(headers, [_row(pair) for pair in found.pairs], left=1))
    return page.render(color=color)


def _row(pair: Pair) -> list[str]:
    return [
        workload_title(pair.workload), _both(pair.nodes, pair.other_nodes), cells.whole(pair.ranks),
        _both(pair.global_batch_size, pair.other_global_batch_size), _both(pair.runs, pair.other_runs),
        cells.minutes(pair.time_s), cells.minutes(pair.other_time_s), cells.ratio(pair.speed),
        cells.between(pair.speed_low, pair.speed_high), pair.verdict,
    ]  # fmt: skip


def _both(first: int | None, second: int | None) -> str:
    return cells.whole(first) if first == second else f"{cells.whole(first)}/{cells.whole(second)}"
