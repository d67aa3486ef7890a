"""A comparison of two sides on a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text

from results.compare import ComparisonOfTwo, Pair
from results.report import cells
from results.report.content import workload_title
from results.report.terminal import WIDTH, print_table


def render(found: ComparisonOfTwo, *, color: bool = False) -> str:
    """Text of at most 100 columns."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=color, color_system="standard" if color else None, highlight=False)
    console.print(Text(f"A: {found.first}   B: {found.second}", style="bold"))
    console.print(Text(f"Rows are paired by {found.matched_by}.", style="dim"))
    for remark in found.remarks:
        console.print(Text(f"! {remark}", style="yellow"))
    headers = ["workload", "nodes", "ranks", "global", "runs", "A, min", "B, min", "B's speed", "95% interval", "verdict"]
    print_table(console, cells.Table(headers, [_row(pair) for pair in found.pairs], left=1))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _row(pair: Pair) -> list[str]:
    return [
        workload_title(pair.workload), _both(pair.nodes, pair.other_nodes), cells.whole(pair.ranks),
        _both(pair.global_batch_size, pair.other_global_batch_size), _both(pair.runs, pair.other_runs),
        cells.minutes(pair.time_s), cells.minutes(pair.other_time_s), cells.ratio(pair.speed),
        cells.between(pair.speed_low, pair.speed_high), pair.verdict,
    ]  # fmt: skip


def _both(first: int | None, second: int | None) -> str:
    return cells.whole(first) if first == second else f"{cells.whole(first)}/{cells.whole(second)}"
