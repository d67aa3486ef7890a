"""A fabric measurement for people: tables for a terminal, and a figure."""

from __future__ import annotations

import io
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from results.fabric import FabricMeasurement, FabricResult, PointToPoint
from results.rates import show_rate

WIDTH = 100


def render(result: FabricResult) -> str:
    """The whole measurement as text of at most 100 columns."""
    measurement = result.measurement
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, highlight=False)
    console.print(title(result))
    console.print(_allreduce_table(measurement))
    if result.fit is not None:
        fit, error = result.fit, f"relative error {result.fit.relative_error:.0%}"
        console.print(
            f"Fit T = latency + size / bandwidth: {show_time(fit.latency_s)}, busbw {show_rate(fit.bits_per_s)}, {error}"
        )
    for inside, heading in ((False, "Between two nodes"), (True, "Inside one node")):
        points = [point for point in measurement.point_to_point if point.inside_node is inside]
        if points:
            console.print(_pair_table(heading, points))
    console.print(f"Rails: {result.evidence.verdict}, {result.evidence.reason}")
    outcome, line = result.outcome
    if outcome != "not-asked":
        console.print(f"{outcome.capitalize()}: {line}")
    return out.getvalue()


def title(result: FabricResult) -> str:
    """One line that says what was measured where."""
    measurement = result.measurement
    per_node = measurement.ranks // measurement.nodes
    emulated = ", EMULATED nodes" if result.emulated_nodes else ""
    shape = f"{measurement.nodes} nodes x {per_node} ranks{emulated}"
    return f"Fabric {result.interconnect}: {shape}, {measurement.device}, Horovod over {measurement.operations}"


def show_time(seconds_s: float) -> str:
    """A time with three digits and a unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds_s >= factor:
            return f"{seconds_s / factor:.3g} {unit}"
    return f"{seconds_s / 1e-6:.3g} us"


def show_size(size_bytes: int) -> str:
    """A size in binary units where it is whole in them: `256 KiB`."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def draw(result: FabricResult, path: Path) -> None:
    """Write a figure of busbw and time over message size, with the fit and the line rate; the suffix of `path` is its format."""
    from matplotlib.figure import Figure

    measurement, points = result.measurement, result.measurement.allreduce
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    bandwidth, time = figure.subplots(1, 2)
    sizes = [point.size_bytes for point in points]
    bandwidth.semilogx(
        sizes, [point.busbw_bits_per_s(measurement.ranks) / 1e6 for point in points], "o-", label="allreduce, busbw"
    )
    between = [point for point in measurement.point_to_point if point.hosts == _first_pair(measurement)]
    if between:
        bandwidth.semilogx(
            [point.size_bytes for point in between],
            [point.bits_per_s / 1e6 for point in between],
            "s--",
            label="two nodes, one way",
        )
    if result.expectation is not None:
        full = result.expectation.line_rate_bits_per_s * result.expectation.rails
        bandwidth.axhline(full / 1e6, color="gray", linewidth=1, label="line rate")
        bandwidth.axhline(result.expectation.share * full / 1e6, color="gray", linewidth=1, linestyle=":", label="expected")
    bandwidth.set(xlabel="message size in bytes", ylabel="Mbit/s", ylim=(0, None))
    bandwidth.legend()
    time.loglog(sizes, [point.seconds_s for point in points], "o", label="allreduce")
    if result.fit is not None:
        factor = 2 * (measurement.ranks - 1) / measurement.ranks
        fitted = [result.fit.latency_s + 8 * factor * size / result.fit.bits_per_s for size in sizes]
        time.loglog(sizes, fitted, "-", linewidth=1, label="fit")
    time.set(xlabel="message size in bytes", ylabel="seconds")
    time.legend()
    figure.suptitle(title(result), fontsize=10)
    figure.savefig(path)


def _first_pair(measurement: FabricMeasurement) -> tuple[str, str] | None:
    return next((point.hosts for point in measurement.point_to_point if not point.inside_node), None)


def _allreduce_table(measurement: FabricMeasurement) -> Table:
    table = Table(box=box.SIMPLE, title="Allreduce", title_justify="left")
    for heading in ("size", "time", "fastest", "slowest", "algbw", "busbw", "n"):
        table.add_column(heading, justify="right")
    for point in measurement.allreduce:
        table.add_row(
            show_size(point.size_bytes),
            *(show_time(value) for value in (point.seconds_s, point.fastest_s, point.slowest_s)),
            show_rate(point.algbw_bits_per_s),
            show_rate(point.busbw_bits_per_s(measurement.ranks)),
            str(point.iterations),
        )
    return table


def _pair_table(heading: str, points: list[PointToPoint]) -> Table:
    table = Table(box=box.SIMPLE, title=f"{heading} (MPI)", title_justify="left")
    table.add_column("ranks on")
    for name in ("size", "latency", "bandwidth"):
        table.add_column(name, justify="right")
    for point in points:
        pair = point.hosts[0] if point.inside_node else " - ".join(point.hosts)
        table.add_row(pair, show_size(point.size_bytes), show_time(point.latency_s), show_rate(point.bits_per_s))
    return table
