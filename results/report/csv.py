"""The rows of all scaling tables as CSV, units in the names of the columns."""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from typing import Any

from results.report.content import CurveContent, Report, RowContent

CURVE_COLUMNS = [
    "workload", "system", "interconnect", "scaling", "variant", "mlperf_round", "emulated", "embedded",
]  # fmt: skip
ROW_COLUMNS = [field.name for field in fields(RowContent) if field.name != "points"]


def render(report: Report) -> str:
    """One line for each row; empty where a figure is not known, points lost by cause in columns of their own."""
    causes = list(dict.fromkeys(cause for curve in report.curves for row in curve.rows for cause in row.points))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*CURVE_COLUMNS, *ROW_COLUMNS, *(f"lost_points_{cause.replace(' ', '_')}" for cause in causes)])
    for curve in report.curves:
        for row in curve.rows:
            writer.writerow(
                [*_values(curve, CURVE_COLUMNS), *_values(row, ROW_COLUMNS), *(row.points.get(cause, "") for cause in causes)]
            )
    return out.getvalue()


def _values(content: CurveContent | RowContent, names: list[str]) -> list[Any]:
    return [_cell(getattr(content, name)) for name in names]


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join("inf" if item is None else str(item) for item in value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"  # a name must not become a formula in a spreadsheet
    return "" if value is None else value
