"""The report on a terminal: tables that fit 100 columns."""

from __future__ import annotations

import io
import textwrap
from itertools import zip_longest

from results.report import cells
from results.report.content import BYTES_TITLE, FOOTNOTES, CurveContent, Report

WIDTH = 100
LONGEST_LIST = 20
GAP = "  "
NARROWEST = 12
TEXT_COLUMNS = ("verdict", "why", "reference")


class Page:
    """Lines of text, each with a style of rich (or none)."""

    def __init__(self, width: int = WIDTH) -> None:
        self._width = width
        self._lines: list[tuple[str, str]] = []

    def text(self, text: str = "", style: str = "", indent: str = "") -> None:
        """A paragraph, wrapped."""
        lines = textwrap.wrap(text, self._width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        self._lines += [(line, style) for line in lines or [""]]

    def table(self, table: cells.Table) -> None:
        """A table; numbers are never cut or wrapped, the one column of text takes what is left."""
        texts = [number < table.left or header in TEXT_COLUMNS for number, header in enumerate(table.headers)]
        rows = [table.headers, *table.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(table.headers))]
        over = sum(widths) + len(GAP) * (len(widths) - 1) - self._width
        widest = max((column for column, text in enumerate(texts) if text), key=lambda column: widths[column], default=None)
        if over > 0 and widest is not None:
            widths[widest] = max(NARROWEST, widths[widest] - over)
        for number, row in enumerate(rows):
            cells_of_row = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
            for parts in zip_longest(*cells_of_row, fillvalue=""):
                aligned = [part.ljust(w) if text else part.rjust(w) for part, w, text in zip(parts, widths, texts, strict=True)]
                self._lines.append((GAP.join(aligned).rstrip(), ""))
            if number == 0:
                self._lines.append(("─" * min(self._width, sum(widths) + len(GAP) * (len(widths) - 1)), ""))

    def render(self, *, color: bool) -> str:
        """All lines; with `color`, styled for a terminal."""
        if not color:
            return "\n".join(line for line, _ in self._lines) + "\n"
        from rich.console import Console
        from rich.text import Text

        out = io.StringIO()
        console = Console(file=out, width=self._width, force_terminal=True, color_system="standard", highlight=False)
        for line, style in self._lines:
            console.print(Text(line, style=style), soft_wrap=True)
        return out.getvalue()


def render(report: Report, *, color: bool = False, width: int = WIDTH) -> str:
    """The whole report as text of at most `width` columns."""
    page = Page(width)
    page.text(report.title, "bold")
    for remark in report.remarks:
        page.text(f"! {remark}", "yellow")
    for curve in report.curves:
        _curve(page, curve)
    for rails in report.rails:
        page.text()
        page.text(f"{rails.title}: speedups side by side", "bold")
        page.table(cells.rail_table(rails))
    evidence = cells.rail_bytes_table(report)
    if evidence.rows:
        page.text()
        page.text(BYTES_TITLE, "bold")
        page.table(evidence)
    if report.fabrics:
        page.text()
        page.text("Fabric, measured by allreduce over the path of training", "bold")
        page.table(cells.fabric_table(report))
    for content in report.scale_up:
        page.text()
        page.text(f"Beside: {content.title} [{content.kind}]", "bold")
        if content.rows:
            page.table(cells.scale_up_table(content))
        page.text(content.remark or f"Source: {content.source}", "dim")
    _not_counted(page, report)
    if report.curves:
        page.text()
        for footnote in FOOTNOTES:
            page.text(footnote, "dim")
    return page.render(color=color)


def _curve(page: Page, curve: CurveContent) -> None:
    page.text()
    page.text(curve.title, "bold")
    page.text(curve.base_sentence, "" if curve.has_base else "yellow")
    page.table(cells.scaling_table(curve).without("throughput"))  # it stands in the next table, and 100 columns are full
    for row in curve.rows:
        if row.sentence:
            page.text(f"{cells.nodes(row.nodes)}: {row.sentence}", indent="  ")
        if row.rcp_suspicious:
            page.text(f"{cells.nodes(row.nodes)}, {cells.epochs(row)} epochs: {row.rcp_note}", "yellow", indent="  ")
    if cells.compared(curve):
        page.text("Speedup = throughput x epochs x overhead; and its upper bounds:")
        page.table(cells.factor_table(curve))
        if cells.causes(curve):
            page.text("Points of efficiency lost, by cause:")
            page.table(cells.points_table(curve, short=True))
    page.text("Epochs to target, and training without evaluation and checkpoints:")
    page.table(cells.convergence_table(curve))
    if cells.measures_energy(curve):
        page.text(f"{cells.ENERGY_CAPTION}:")
        page.table(cells.energy_table(curve))


def _not_counted(page: Page, report: Report) -> None:
    if report.not_counted:
        page.text()
        page.text(f"Shown and not counted: {len(report.not_counted)} runs", "bold")
        page.table(cells.not_counted_table(report, LONGEST_LIST))
        _more(page, len(report.not_counted))
    if report.problems:
        page.text()
        page.text(f"Not used: {len(report.problems)}", "bold yellow")
        for source, reason in report.problems[:LONGEST_LIST]:
            page.text(f"{source}: {reason}", indent="  ")
        _more(page, len(report.problems))


def _more(page: Page, number: int) -> None:
    if number > LONGEST_LIST:
        page.text(f"… and {number - LONGEST_LIST} more; --json lists all", "dim", indent="  ")
