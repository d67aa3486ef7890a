"""The report on a terminal: tables that fit 100 columns."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from results.report import cells
from results.report.content import FOOTNOTES, CurveContent, Report

WIDTH = 100
LONGEST_LIST = 20


def render(report: Report, *, color: bool = False, width: int = WIDTH) -> str:
    """The whole report as text of at most `width` columns."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=color, color_system="standard" if color else None, highlight=False)
    console.print(Text(report.title, style="bold"))
    for remark in report.remarks:
        console.print(Text(f"! {remark}", style="yellow"))
    for curve in report.curves:
        _curve(console, curve)
    for rails in report.rails:
        console.print()
        console.print(Text(f"{rails.title}: speedups side by side", style="bold"))
        print_table(console, cells.rail_table(rails))
    for content in report.scale_up:
        console.print()
        console.print(Text(f"Beside: {content.title} [{content.kind}]", style="bold"))
        if content.rows:
            print_table(console, cells.scale_up_table(content))
        console.print(Text(content.remark or f"Source: {content.source}", style="dim"))
    _not_counted(console, report)
    if report.curves:
        console.print()
        for footnote in FOOTNOTES:
            console.print(Text(footnote, style="dim"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _curve(console: Console, curve: CurveContent) -> None:
    console.print()
    console.print(Text(curve.title, style="bold"))
    console.print(Text(curve.base_sentence, style="" if curve.has_base else "yellow"))
    print_table(
        console, cells.scaling_table(curve).without("throughput")
    )  # it stands in the next table, and 100 columns are full
    if cells.compared(curve):
        console.print("Speedup = throughput x epochs x overhead; and its upper bounds:")
        print_table(console, cells.factor_table(curve))
        if cells.causes(curve):
            console.print("Points of efficiency lost, by cause:")
            print_table(console, cells.points_table(curve, short=True))
    for row in curve.rows:
        if row.sentence:
            console.print(Text(f"  {cells.nodes(row.nodes)}: {row.sentence}"))
        if row.rcp_suspicious:
            console.print(Text(f"  {cells.nodes(row.nodes)}, {cells.epochs(row)} epochs: {row.rcp_note}", style="yellow"))


def _not_counted(console: Console, report: Report) -> None:
    if report.not_counted:
        console.print()
        console.print(Text(f"Shown and not counted: {len(report.not_counted)} runs", style="bold"))
        print_table(console, cells.not_counted_table(report, LONGEST_LIST))
        _more(console, len(report.not_counted))
    if report.problems:
        console.print()
        console.print(Text(f"Not used: {len(report.problems)}", style="bold yellow"))
        for source, reason in report.problems[:LONGEST_LIST]:
            console.print(Text(f"  {source}: {reason}"))
        _more(console, len(report.problems))


def _more(console: Console, number: int) -> None:
    if number > LONGEST_LIST:
        console.print(Text(f"  … and {number - LONGEST_LIST} more; --json lists all", style="dim"))


def print_table(console: Console, table: cells.Table) -> None:
    """Print a table; numbers are never cut or wrapped."""
    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for number, header in enumerate(table.headers):
        text = number < table.left or header in ("verdict", "why", "reference")
        shown.add_column(header, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in row))
    console.print(shown)
