"""Published single systems beside the user's rows with as many accelerators, as one scales up and the other out."""

from __future__ import annotations

from collections.abc import Sequence

from results.published import Published, PublishedFigure
from results.report.content import CurveContent, ScaleUpContent, ScaleUpRow

EMBEDDED = "Left out for embedded data: they compare with no published number."
NOTHING = "None of its single systems has as many accelerators as a row of that round (or of your own runs) here."


def scale_up(published: Published, curves: Sequence[CurveContent]) -> ScaleUpContent:
    """Pairs of a published one-node time and a row of the same workload with as many ranks."""
    rows = [
        row
        for figure in published.figures
        if figure.nodes == 1 and figure.minutes is not None
        for curve in curves
        if not curve.embedded and curve.workload == figure.workload and curve.mlperf_round in ("", published.round)
        for row in _pairs(figure, figure.minutes * 60, published.kind, curve)
    ]
    remark = "" if rows else EMBEDDED if any(curve.embedded for curve in curves) else NOTHING
    return ScaleUpContent(
        name=published.round,
        title=published.title,
        kind=published.kind,
        source=published.source,
        url=published.url,
        rows=sorted(rows, key=lambda row: (row.workload, row.accelerators, row.interconnect, row.system)),
        remark=remark,
    )


def _pairs(figure: PublishedFigure, time_s: float, kind: str, curve: CurveContent) -> list[ScaleUpRow]:
    return [
        ScaleUpRow(
            workload=figure.workload,
            accelerators=figure.accelerators,
            system=figure.system,
            kind=kind,
            published_time_s=time_s,
            nodes=row.nodes,
            interconnect=curve.interconnect,
            curve=curve.anchor,
            time_to_train_s=row.time_to_train_s,
            time_ratio=row.time_to_train_s / time_s if row.time_to_train_s else None,
        )
        for row in curve.rows
        if row.ranks == figure.accelerators
    ]
