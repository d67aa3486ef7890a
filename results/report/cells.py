"""Figures as text, the same in every format that people read; and the tables as headers and cells."""

from __future__ import annotations

from dataclasses import dataclass

from results.rates import show_rate
from results.report.content import CurveContent, RailContent, Report, RowContent, RunContent, ScaleUpContent, workload_title

NONE = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """Headers and text cells; the first `left` columns are text, the others numbers."""

    headers: list[str]
    rows: list[list[str]]
    left: int = 0

    def without(self, header: str) -> Table:
        """The same table without one column."""
        at = self.headers.index(header)
        return Table(self.headers[:at] + self.headers[at + 1 :], [row[:at] + row[at + 1 :] for row in self.rows], self.left)


def minutes(time_s: float | None) -> str:
    """Minutes with about four figures."""
    if time_s is None:
        return "∞"
    value = time_s / 60
    return f"{value:.1f}" if value >= 1000 else f"{value:.2f}" if value >= 10 else f"{value:.3f}"


def count(value: int) -> str:
    """A number with thousands marks."""
    return f"{value:,}"


def rate(value: float | None) -> str:
    """Images per second."""
    return NONE if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def ratio(value: float | None) -> str:
    """A factor."""
    return NONE if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """A part of one, in percent."""
    return NONE if value is None else f"{value:.1%}" if abs(value) < 0.0995 else f"{value:.0%}"


def between(low: float | None, high: float | None) -> str:
    """An interval of factors."""
    return NONE if low is None or high is None else f"{low:.2f}–{high:.2f}".replace("inf", "∞")


def epochs(row: RowContent) -> str:
    """Mean epochs to target."""
    return NONE if row.epochs is None else f"{row.epochs:.1f}".removesuffix(".0")


def nodes(number: int) -> str:
    """A number of nodes in words."""
    return f"{number} node{'s' * (number != 1)}"


def whole(value: int | None) -> str:
    """A count that may be unknown."""
    return NONE if value is None else str(value)


def score(row: RowContent) -> str:
    """The score in minutes; p marks a plain mean."""
    if row.time_to_train_s is None:
        return "void"
    return minutes(row.time_to_train_s) + (" p" if row.score_kind == "plain mean" else "")


def spread(row: RowContent) -> str:
    """Fastest to slowest run in minutes."""
    if row.runs == 1:
        return NONE
    digits = 1 if row.fastest_s and row.fastest_s >= 6000 else None
    return "–".join(f"{time_s / 60:.1f}" if digits and time_s else minutes(time_s) for time_s in (row.fastest_s, row.slowest_s))


def runs(row: RowContent) -> str:
    """Number of runs, and how many of them missed the target."""
    return f"{row.runs}" + (f" ({row.missed_runs}∞)" if row.missed_runs else "")


def scaling_table(curve: CurveContent) -> Table:
    """Minutes and throughput by nodes."""
    headers = [
        "nodes",
        "ranks",
        "local",
        "global",
        "runs",
        "epochs",
        "minutes",
        "min–max",
        "speedup",
        "images/s",
        "throughput",
        "eff.",
        "eval",
    ]
    rows = [
        [
            whole(row.nodes), whole(row.ranks), whole(row.local_batch_size), whole(row.global_batch_size), runs(row), epochs(row),
            score(row), spread(row), ratio(row.speedup), rate(row.images_per_s), ratio(row.throughput_speedup),
            percent(row.efficiency), percent(row.evaluation_share),
        ]
        for row in curve.rows
    ]  # fmt: skip
    return Table(headers, rows)


def factor_table(curve: CurveContent) -> Table:
    """Speedup, its interval, its three factors and its bounds, for rows other than the base case."""
    headers = [
        "nodes",
        "global",
        "speedup",
        "95% interval",
        "throughput",
        "epochs",
        "overhead",
        "ideal",
        "Amdahl",
        "communication",
    ]
    rows = [
        [
            whole(row.nodes), whole(row.global_batch_size), ratio(row.speedup), between(row.speedup_low, row.speedup_high),
            ratio(row.throughput_speedup), ratio(row.epochs_ratio), ratio(row.overhead_ratio), ratio(row.ideal_speedup),
            ratio(row.amdahl_bound), ratio(row.communication_bound),
        ]
        for row in compared(curve)
    ]  # fmt: skip
    return Table(headers, rows)


def causes(curve: CurveContent) -> list[str]:
    """Causes of loss that a curve's rows name, in their order."""
    return list(dict.fromkeys(cause for row in curve.rows for cause in row.points))


SHORT_CAUSES = {
    "input wait": "input", "exposed communication": "comm.", "evaluation": "eval", "checkpoints and logging": "ckpt+log",
    "other overhead": "other",
}  # fmt: skip


def points_table(curve: CurveContent, *, short: bool = False) -> Table:
    """Points of efficiency lost by cause; `short` headers for narrow places."""
    shown = causes(curve)
    rows = [
        [whole(row.nodes), whole(row.global_batch_size), points(sum(row.points.values()))]
        + [points(row.points.get(cause)) for cause in shown]
        for row in compared(curve)
        if row.points
    ]
    names = [SHORT_CAUSES.get(cause, cause) for cause in shown] if short else shown
    return Table(["nodes", "global", "lost", *names], rows)


def points(value: float | None) -> str:
    """Points of efficiency; -0.0 is 0.0."""
    return NONE if value is None else f"{value + 0.0 if abs(value) >= 0.05 else 0.0:.1f}"


def compared(curve: CurveContent) -> list[RowContent]:
    """Rows that are set against a base case."""
    return [row for row in curve.rows if row.speedup is not None and not row.is_base]


def convergence_table(curve: CurveContent) -> Table:
    """Epochs beside the reference, and training alone beside time to train."""
    headers = ["nodes", "global", "epochs", "least–most", "training, min", "95%, min", "reference"]
    rows = [
        [
            whole(row.nodes), whole(row.global_batch_size), epochs(row), _range(row.epochs_least, row.epochs_most),
            NONE if row.training_only_s is None else minutes(row.training_only_s), _interval(row), row.rcp_note,
        ]
        for row in curve.rows
    ]  # fmt: skip
    return Table(headers, rows)


ENERGY_CAPTION = "Energy of the GPU boards from run_start to run_stop (no processors, network or cooling)"


def measures_energy(curve: CurveContent) -> bool:
    """True when the boards of any row were measured."""
    return any(row.gpu_energy_j is not None for row in curve.rows)


def energy_table(curve: CurveContent) -> Table:
    """Board energy of a run, mean board power and what was trained for it, for the rows that were measured."""
    headers = ["nodes", "global", "energy, kJ", "per GPU, W", "images/s per W"]
    rows = [
        [
            whole(row.nodes), whole(row.global_batch_size), f"{row.gpu_energy_j / 1e3:,.1f}",
            NONE if row.power_per_gpu_w is None else f"{row.power_per_gpu_w:.0f}", ratio(row.images_per_j),
        ]
        for row in curve.rows
        if row.gpu_energy_j is not None
    ]  # fmt: skip
    return Table(headers, rows)


def rail_table(content: RailContent) -> Table:
    """Two interconnects side by side."""
    headers = ["nodes", content.first, "95%", content.second, "95%", "difference", "95%", "verdict"]
    rows = [
        [
            str(row.nodes), ratio(row.first_speedup), between(row.first_low, row.first_high), ratio(row.second_speedup),
            between(row.second_low, row.second_high), f"{row.difference:+.2f}", _signed(row.difference_low, row.difference_high),
            row.verdict,
        ]
        for row in content.rows
    ]  # fmt: skip
    return Table(headers, rows)


def scale_up_table(content: ScaleUpContent) -> Table:
    """Published single systems beside rows with as many accelerators."""
    headers = ["workload", "system", "GPUs", "published, min", "nodes", "interconnect", "here, min", "here/published"]
    rows = [
        [
            workload_title(row.workload), row.system, str(row.accelerators), minutes(row.published_time_s),
            str(row.nodes), row.interconnect, minutes(row.time_to_train_s), ratio(row.time_ratio),
        ]
        for row in content.rows
    ]  # fmt: skip
    return Table(headers, rows, left=2)


def fabric_table(report: Report) -> Table:
    """Fabric measurements."""
    headers = ["interconnect", "nodes", "ranks", "busbw", "at bytes", "latency, µs", "rails", "verdict"]
    rows = [
        [
            fabric.interconnect + (" (emulated)" if fabric.emulated else ""), str(fabric.nodes), str(fabric.ranks),
            show_rate(fabric.best_busbw_bits_per_s), count(fabric.best_size_bytes),
            NONE if fabric.latency_s is None else f"{fabric.latency_s * 1e6:.1f}", fabric.rails, fabric.outcome or NONE,
        ]
        for fabric in report.fabrics
    ]  # fmt: skip
    return Table(headers, rows, left=1)


def not_counted_table(report: Report, limit: int) -> Table:
    """Failed, interrupted and set-aside runs."""
    rows = [[run.name, run.status, str(run.nodes), run.interconnect, run.reason] for run in report.not_counted[:limit]]
    return Table(["run", "status", "nodes", "interconnect", "why"], rows, left=2)


def run_row(run: RunContent) -> list[str]:
    """One run among all."""
    warm = "page cache not cleared" if run.page_cache_cleared is False else ""
    return [
        run.name, run.status, str(run.nodes), whole(run.ranks), run.interconnect,
        minutes(run.time_to_train_s) if run.time_to_train_s else NONE, NONE if run.epochs is None else f"{run.epochs:g}",
        rate(run.images_per_s), run.rails, whole(run.seed), "; ".join(note for note in (warm, run.reason) if note),
    ]  # fmt: skip


RUN_HEADERS = ["run", "status", "nodes", "ranks", "interconnect", "minutes", "epochs", "images/s", "rails", "seed", "note"]


def rail_bytes_table(report: Report) -> Table:
    """What each device carried in a run, as a mean over the runs of one shape between nodes."""
    groups: dict[tuple[str, int], list[RunContent]] = {}
    for run in report.runs:
        if run.nodes > 1 and run.rail_bytes:
            groups.setdefault((run.interconnect, run.nodes), []).append(run)
    carried = {key: _mean_bytes(runs) for key, runs in groups.items()}
    least = max((max(sizes.values()) for sizes in carried.values()), default=0) / 1000
    devices = sorted({name for sizes in carried.values() for name, size in sizes.items() if size > least})
    rows = [
        [
            interconnect, str(nodes), str(len(runs)),
            *(_gigabytes(carried[interconnect, nodes].get(device)) for device in devices),
            ", ".join(dict.fromkeys(run.rails for run in runs)),
        ]
        for (interconnect, nodes), runs in groups.items()
        if devices  # nodes that are emulated on one host have no rails
    ]  # fmt: skip
    return Table(["interconnect", "nodes", "runs", *devices, "verdict"], rows, left=1)


def _mean_bytes(runs: list[RunContent]) -> dict[str, float]:
    devices = dict.fromkeys(device for run in runs for device in run.rail_bytes)
    return {device: sum(run.rail_bytes.get(device, 0) for run in runs) / len(runs) for device in devices}


def _gigabytes(size_bytes: float | None) -> str:
    return NONE if size_bytes is None else f"{size_bytes / 1e9:,.2f} GB"


def rails_by_run(run: RunContent) -> str:
    """Bytes by device."""
    return ", ".join(f"{device} {number / 1e9:,.2f} GB" for device, number in run.rail_bytes.items())


def _range(low: float | None, high: float | None) -> str:
    return NONE if low is None or high is None else f"{low:g}–{high:g}"


def _interval(row: RowContent) -> str:
    if row.time_low_s is None or row.time_high_s is None:
        return NONE
    return f"{minutes(row.time_low_s)}–{minutes(row.time_high_s)}" if row.time_low_s > 0 else f"0–{minutes(row.time_high_s)}"


def _signed(low: float | None, high: float | None) -> str:
    return NONE if low is None or high is None else f"{low:+.2f} to {high:+.2f}"
