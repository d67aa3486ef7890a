"""Figures of a report: minutes and speedup against nodes, and where the efficiency went. SVG for the page, PNG for slides.

Colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which colour-blind readers can tell apart; markers and
hatches differ as well. Points are not joined: nothing was measured between them (Hoefler and Belli, SC'15, rule 12).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.report import cells
from results.report.content import CurveContent, Report, RowContent, workload_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
MARKERS = ["o", "s", "^", "D", "v", "P"]
CAUSE_STYLES = {
    "epochs": ("#0072B2", ""), "throughput": ("#E69F00", ""), "compute": ("#E69F00", ""), "input wait": ("#56B4E9", "//"),
    "exposed communication": ("#D55E00", ""), "stragglers": ("#CC79A7", "\\\\"), "evaluation": ("#009E73", ""),
    "checkpoints and logging": ("#F0E442", "||"), "restarts": ("#8C510A", "xx"), "other overhead": ("#999999", "--"),
}  # fmt: skip
INK, RULE, PAPER = "#010203", "#020304", "#030405"
"""Stand-ins that a page replaces by its own colours, light or dark, and a file by the light ones."""
LIGHT = {INK: "#1a1d21", RULE: "#d5d9de", PAPER: "#ffffff"}
LARGEST_NUMBER_OF_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, not yet drawn."""

    name: str
    title: str
    description: str
    """What a reader sees, for those who can't."""
    group: str
    """Anchor of the first of its curves."""
    draw: Callable[[], MatplotlibFigure]

    def svg(self) -> str:
        """SVG element with the page's colour variables, to be put into HTML."""
        text = _svg(self)
        for stand_in, variable in ((INK, "--ink"), (RULE, "--rule"), (PAPER, "--paper")):
            text = text.replace(stand_in, f"var({variable})")
        text = text[text.index("<svg") :]
        head = f'<svg role="img" aria-label="{self.description}" '
        return head + re.sub(r'^<svg |(?<= )(width|height)="[\d.]+pt" ', "", text, count=3)

    def svg_file(self) -> str:
        """An SVG file in light colours."""
        text = _svg(self)
        for stand_in, color in LIGHT.items():
            text = text.replace(stand_in, color)
        return text

    def png(self, dpi: int = 200) -> bytes:
        """A PNG in light colours, for slides."""
        from PIL import Image

        drawn = self.draw()
        _recolor(drawn)
        out = io.BytesIO()
        drawn.savefig(out, format="png", dpi=dpi, facecolor=LIGHT[PAPER])
        small = io.BytesIO()  # a palette holds all that a line drawing has, in a third of the bytes
        Image.open(out).convert("RGB").quantize(64).save(small, format="png", optimize=True)
        return small.getvalue()


def all_figures(report: Report) -> list[Figure]:
    """Up to three figures for each workload and system that was run at more than one size; none for a single point."""
    groups: dict[tuple[str, ...], list[CurveContent]] = {}
    for curve in report.curves:
        key = (curve.workload, curve.system, curve.variant, curve.mlperf_round, str(curve.labels))
        groups.setdefault(key, []).append(curve)
    found: list[Figure] = []
    shown = [group for group in groups.values() if len({row.nodes for curve in group for row in curve.rows}) > 1]
    for group in shown[:LARGEST_NUMBER_OF_GROUPS]:
        found += _group_figures(group, report)
    return found


def write_all(report: Report, folder: Path) -> list[Path]:
    """Write every figure as SVG and PNG.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for figure in all_figures(report):
        svg, png = folder / f"{figure.name}.svg", folder / f"{figure.name}.png"
        svg.write_text(figure.svg_file(), encoding="utf-8")
        png.write_bytes(figure.png())
        paths += [svg, png]
    return paths


def _group_figures(group: list[CurveContent], report: Report) -> list[Figure]:
    first = group[0]
    stem = re.sub(r"[^a-z0-9]+", "-", f"{first.workload} {first.system} {first.variant} {first.mlperf_round}".lower()).strip("-")
    subject = " · ".join(
        [workload_title(first.workload), first.system, *([first.variant] if first.variant else []), *first.labels]
    )
    names = [curve_name(curve, group) for curve in group]
    anchors = {curve.anchor for curve in group}
    beside = [
        (row.nodes, row.published_time_s, f"{row.system} ({content.kind}, {row.accelerators} GPUs)")
        for content in report.scale_up
        for row in content.rows
        if row.curve in anchors
    ]
    times = f"Minutes to train against nodes for {', '.join(names)}; the table below holds the figures."
    found = [Figure(f"{stem}-minutes", f"{subject}: time to train", times, first.anchor, lambda: _minutes(group, names, beside))]
    if any(cells.compared(curve) for curve in group):
        text = (
            f"Time-to-train speedup against nodes for {', '.join(names)}, with the ideal line; the table below holds the figures."
        )
        found.append(Figure(f"{stem}-speedup", f"{subject}: speedup", text, first.anchor, lambda: _speedups(group, names)))
    if any(row.points for curve in group for row in curve.rows):
        text = "Points of efficiency lost by cause, a stacked bar for each row; the table below holds the figures."
        found.append(
            Figure(f"{stem}-losses", f"{subject}: where the efficiency went", text, first.anchor, lambda: _losses(group, names))
        )
    return found


def curve_name(curve: CurveContent, group: Sequence[CurveContent]) -> str:
    """Shortest name that tells a curve from the others of its group."""
    name = curve.interconnect if curve.interconnect != "not stated" else curve.system
    same = [other for other in group if other.interconnect == curve.interconnect]
    return f"{name}, {curve.scaling.removesuffix(' scaling')}" if len(same) > 1 else name


def _axes(height_in: float = 3.1) -> tuple[MatplotlibFigure, Axes]:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(4.5, height_in), layout="constrained", facecolor="none")
    axes = drawing.add_subplot(facecolor="none")
    axes.grid(True, color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(RULE)
    return drawing, axes


def _minutes(group: list[CurveContent], names: list[str], beside: list[tuple[int, float, str]]) -> MatplotlibFigure:
    drawing, axes = _axes()
    base = next((row for curve in group for row in curve.rows if row.is_base and row.time_to_train_s), None)
    nodes = sorted({row.nodes for curve in group for row in curve.rows})
    if base and base.time_to_train_s:
        ideal = [base.time_to_train_s / 60 / n for n in nodes]
        axes.plot(nodes, ideal, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="ideal", zorder=1)
    for number, (curve, name) in enumerate(zip(group, names, strict=True)):
        _minutes_of_curve(axes, curve, name, number, len(group))
    for number, (system, points) in enumerate(_by_system(beside).items()):
        shift = 2 ** (-0.1 * number - 0.05 * (len(group) > 1))
        x, y = [point[0] * shift for point in points], [point[1] / 60 for point in points]
        marker = ["*", "X", "h", "p"][number % 4]
        axes.plot(x, y, linestyle="", marker=marker, markersize=10, color=INK, markerfacecolor="none", label=system, zorder=4)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _node_axis(axes, nodes)
    _minute_ticks(axes)
    axes.set_ylabel("time to train (minutes)", color=INK, fontsize=10)
    _legend(axes)
    return drawing


def _minutes_of_curve(axes: Axes, curve: CurveContent, name: str, number: int, curves: int) -> None:
    color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
    shift = 2 ** (0.17 * (number - (curves - 1) / 2))  # side by side, so that none hides another
    rows = [row for row in curve.rows if row.time_to_train_s]
    for row in rows:
        times = [time_s / 60 for time_s in row.run_times_s if time_s]
        axes.plot(
            [row.nodes * shift * 2**0.075] * len(times), times, linestyle="", marker=".", markersize=4, color=color, alpha=0.55
        )
        if row.time_low_s is not None and row.time_high_s is not None:
            low = max(row.time_low_s, 0.02 * (row.time_to_train_s or 1))
            axes.plot([row.nodes * shift] * 2, [low / 60, row.time_high_s / 60], color=color, linewidth=1.4)
    x, y = [row.nodes * shift for row in rows], [(row.time_to_train_s or 0) / 60 for row in rows]
    axes.plot(x, y, linestyle="", marker=marker, markersize=7, color=color, markeredgecolor=PAPER, label=name, zorder=3)


def _by_system(beside: list[tuple[int, float, str]]) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for nodes, time_s, system in beside:
        if (nodes, time_s) not in found.setdefault(system, []):
            found[system].append((nodes, time_s))
    return found


def _speedups(group: list[CurveContent], names: list[str]) -> MatplotlibFigure:
    drawing, axes = _axes()
    rows = [row for curve in group for row in curve.rows if row.speedup]
    nodes = sorted({row.nodes for row in rows})
    ideal = sorted({(row.nodes, row.ideal_speedup or row.nodes) for row in rows})
    axes.plot(*zip(*ideal, strict=True), color=INK, linewidth=1, linestyle=(0, (4, 3)), label="ideal", zorder=1)
    width = 0.028 * (nodes[-1] - nodes[0])
    amdahl = [(row.nodes, row.amdahl_bound) for row in rows if row.amdahl_bound]
    if amdahl and len(group) == 1:
        axes.plot(*zip(*amdahl, strict=True), linestyle="", marker="_", markersize=14, color=INK, label="Amdahl bound", zorder=2)
    for number, (curve, name) in enumerate(zip(group, names, strict=True)):
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        shift = width * (number - (len(group) - 1) / 2)
        of_curve = [row for row in curve.rows if row.speedup]
        for row in of_curve:
            if row.speedup_low is not None and row.speedup_high is not None:
                axes.plot([row.nodes + shift] * 2, [row.speedup_low, row.speedup_high], color=color, linewidth=1.4)
        x, y = [row.nodes + shift for row in of_curve], [row.speedup or 0 for row in of_curve]
        axes.plot(x, y, linestyle="", marker=marker, markersize=7, color=color, markeredgecolor=PAPER, label=name, zorder=3)
    _node_axis(axes, nodes)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("time-to-train speedup", color=INK, fontsize=10)
    _legend(axes)
    return drawing


def _losses(group: list[CurveContent], names: list[str]) -> MatplotlibFigure:
    bars = [(name, row) for curve, name in zip(group, names, strict=True) for row in curve.rows if row.points]
    causes = list(dict.fromkeys(cause for _, row in bars for cause in row.points))
    drawing, axes = _axes(1.0 + 0.34 * len(bars) + 0.18 * ((len(causes) + 1) // 2))
    labels = []
    for at, (name, row) in enumerate(bars):
        _bar(axes, at, row, causes)
        batch = f", {row.global_batch_size}" if _repeated(bars, name, row) else ""
        labels.append(f"{row.nodes} nodes{batch}" + (f", {name}" if len(group) > 1 else ""))
    axes.set_yticks(range(len(bars)), labels)
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=1)
    most = max(5.0, *(_sum(row, 1) for _, row in bars))
    axes.set_xlim(-1.05 * max(_sum(row, -1) for _, row in bars), 1.3 * most)
    axes.grid(False, axis="y")
    axes.set_xlabel("points of efficiency lost, out of 100", color=INK, fontsize=10)
    _cause_legend(axes, [cause for cause in causes if any(abs(row.points.get(cause, 0)) >= 0.05 for _, row in bars)])
    return drawing


def _bar(axes: Axes, at: int, row: RowContent, causes: list[str]) -> None:
    """Losses to the right of zero, gains to the left."""
    ends = {1: 0.0, -1: 0.0}
    for cause in causes:
        value = row.points.get(cause, 0.0)
        side = 1 if value > 0 else -1
        color, hatch = CAUSE_STYLES.get(cause, ("#999999", ""))
        axes.barh(at, value, left=ends[side], height=0.62, color=color, hatch=hatch, edgecolor=PAPER, linewidth=0.8)
        ends[side] += value
    lost = sum(row.points.values())
    text = f"  {100 - lost:.0f}% of ideal"
    axes.text(ends[1], at, text, ha="left", va="center", fontsize=9, color=INK)


def _sum(row: RowContent, side: int) -> float:
    """Sum of the losses (side 1) or of the gains (side -1), not negative."""
    return sum(max(0.0, side * value) for value in row.points.values())


def _repeated(bars: list[tuple[str, RowContent]], name: str, row: RowContent) -> bool:
    return sum(other_name == name and other.nodes == row.nodes for other_name, other in bars) > 1


def _cause_legend(axes: Axes, causes: list[str]) -> None:
    from matplotlib.patches import Patch

    handles = []
    for cause in causes:
        color, hatch = CAUSE_STYLES.get(cause, ("#999999", ""))
        handles.append(Patch(facecolor=color, hatch=hatch, edgecolor=PAPER, label=cause))
    options: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2, "columnspacing": 1.2}
    axes.legend(handles=handles, frameon=False, fontsize=8.5, labelcolor=INK, handlelength=1.3, **options)


def _node_axis(axes: Axes, nodes: list[int]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.xaxis.set_major_locator(FixedLocator(nodes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(n) for n in nodes])
    axes.set_xlabel("nodes", color=INK, fontsize=10)


def _minute_ticks(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="best", handlelength=1.8)


def _svg(figure: Figure) -> str:
    import matplotlib

    drawn = figure.draw()
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": figure.name, "font.family": "sans-serif"}):
        drawn.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = out.getvalue()
    referred = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', text))
    text = re.sub(r' id="([\w.-]+)"', lambda match: f' id="{figure.name}-{match[1]}"' if match[1] in referred else "", text)
    text = re.sub(r'(url\(|href=")#', rf"\1#{figure.name}-", text)
    return re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)


def _recolor(drawn: MatplotlibFigure) -> None:
    """Replace the stand-in colours of every artist by the light ones."""
    from matplotlib.colors import to_hex

    for artist in drawn.findobj():
        for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor", "labelcolor"):
            getter, setter = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
            if getter is None or setter is None:
                continue
            try:
                found = to_hex(getter())
            except (ValueError, TypeError):
                continue
            if found in LIGHT:
                setter(LIGHT[found])
