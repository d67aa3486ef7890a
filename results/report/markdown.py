"""The report as Markdown that pastes into a ticket."""

from __future__ import annotations

from tabulate import tabulate

from results.report import cells
from results.report.content import BYTES_TITLE, FOOTNOTES, CurveContent, Report

LONGEST_LIST = 50


def render(report: Report) -> str:
    """GitHub-flavoured Markdown."""
    parts = [f"# {report.title}"]
    parts += ["\n".join(f"- {_escape(remark)}" for remark in report.remarks)] if report.remarks else []
    for curve in report.curves:
        parts += _curve(curve)
    for rails in report.rails:
        parts += [f"## {_escape(rails.title)}: speedups side by side", _table(cells.rail_table(rails))]
    evidence = cells.rail_bytes_table(report)
    if evidence.rows:
        parts += [f"## {BYTES_TITLE}", _table(evidence)]
    if report.fabrics:
        parts += ["## Fabric, measured by allreduce over the path of training", _table(cells.fabric_table(report))]
    for content in report.scale_up:
        parts.append(f"## Beside: {_escape(content.title)} ({content.kind})")
        parts += [_table(cells.scale_up_table(content))] if content.rows else []
        parts.append(_escape(content.remark or f"Source: {content.source} {content.url}".strip()))
    if report.not_counted:
        parts += [
            f"## Shown and not counted: {len(report.not_counted)} runs",
            _table(cells.not_counted_table(report, LONGEST_LIST)),
        ]
    if report.problems:
        lines = [f"- `{source}`: {_escape(reason)}" for source, reason in report.problems[:LONGEST_LIST]]
        parts += [f"## Not used: {len(report.problems)}", "\n".join(lines)]
    parts += ["---", "\n".join(f"- {footnote}" for footnote in FOOTNOTES)]
    return "\n\n".join(parts) + "\n"


def _curve(curve: CurveContent) -> list[str]:
    parts = [f"## {_escape(curve.title)}", _escape(curve.base_sentence), _table(cells.scaling_table(curve))]
    sentences = [f"- {cells.nodes(row.nodes)}: {_escape(row.sentence)}" for row in curve.rows if row.sentence]
    parts += ["\n".join(sentences)] if sentences else []
    if cells.compared(curve):
        parts += ["Speedup = throughput x epochs x overhead; and its upper bounds:", _table(cells.factor_table(curve))]
        if cells.causes(curve):
            parts += ["Points of efficiency lost, by cause:", _table(cells.points_table(curve))]
    parts += ["Epochs to target beside MLPerf's reference convergence points:", _table(cells.convergence_table(curve))]
    if cells.measures_energy(curve):
        parts += [f"{cells.ENERGY_CAPTION}:", _table(cells.energy_table(curve))]
    return parts


def _table(table: cells.Table) -> str:
    text = table.left, ("verdict", "why", "reference")
    align = ["left" if number < text[0] or header in text[1] else "right" for number, header in enumerate(table.headers)]
    rows = [[_escape(cell) for cell in row] for row in table.rows]
    return tabulate(rows, headers=table.headers, tablefmt="pipe", colalign=align if rows else None, disable_numparse=True)


def _escape(text: str) -> str:
    """Text that Markdown would read as a table, markup or HTML."""
    for mark in "\\|*_<`":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")
