"""One sentence for each row of a scaling table: what cost most, and the lever if there is one."""

from __future__ import annotations

from results.decomposition import Cause, Comparison
from results.scaling import Curve, Row

NOTHING_LOST_POINTS = 1.0


def sentence(curve: Curve, row: Row, comparison: Comparison | None) -> str:
    """Plain words for a row against its base case, and what unequal images cost it; empty for a base case of one rank."""
    return " ".join(part for part in (_sentence(curve, row, comparison), _imbalance(row)) if part)


def _imbalance(row: Row) -> str:
    found = [run.imbalance for run in row.kept if run.imbalance is not None]
    if not found or not row.ranks or row.ranks == 1:
        return ""
    grouped, ungrouped = (sum(values) / len(values) for values in zip(*found, strict=True))
    shares = row.wait_shares()
    measured = f"; ranks were seen to wait {shares[2]:.1%} of the training time for the slowest" if shares else ""
    return (
        f"Unequal images alone would make ranks wait {grouped:.1%} of the computation "
        f"({ungrouped:.1%} without grouping by aspect ratio){measured}."
    )


def _sentence(curve: Curve, row: Row, comparison: Comparison | None) -> str:
    base = curve.base
    if row.score.kind == "void":
        return f"Void: {row.score.why_void}."
    if base is row or base is None:
        return ""
    if comparison is None:
        return f"No speedup: the base case is void ({base.score.why_void})."
    ideal = comparison.bounds.ideal
    reached = f"{comparison.speedup:.2f}x on {ideal:g}x the ranks" if ideal != 1 else f"{comparison.speedup:.2f}x"
    lost = comparison.lost_points
    if not comparison.points:
        return f"{reached}; the source does not hold what a decomposition needs (epochs and epoch times)."
    cause, points = max(comparison.points.items(), key=lambda item: item[1])
    if lost < NOTHING_LOST_POINTS and points < 2 * NOTHING_LOST_POINTS:
        return f"{reached}: at the ideal, within a point."
    gains = [f"{-value:.0f} by {name}" for name, value in comparison.points.items() if value <= -NOTHING_LOST_POINTS]
    won = f" (and {', '.join(gains)} won)" if gains else ""
    whole, part = f"{lost:.0f}", f"{points:.0f}"
    share = f"{part} of the {whole} points lost" if points < lost and part != whole else f"{part} point{'s' * (part != '1')} lost"
    verb = "is" if part == "1" else "are"
    return f"{reached}: {share}{won} {verb} {cause}: {_detail(cause, base, row, curve)}."


def base_sentence(curve: Curve) -> str:
    """The base case in absolute figures, or which run to add."""
    base = curve.base
    if base is None:
        series = curve.series
        command = f"trainscale run {series.workload} --nodes 1 --interconnect {series.interconnect}"
        if curve.rows[0].runs[0].origin == "mlperf-log":
            command = f"the log of {series.system} on 1 node"
        smallest = min(row.nodes for row in curve.rows)
        return f"Base case missing: no run on 1 node (the smallest has {smallest}), so no speedups. Add: {command}"
    ranks = f", {base.ranks} rank{'s' * (base.ranks != 1)}" if base.ranks else ""
    if base.score.kind == "void":
        return f"Base case: 1 node{ranks}: void, {base.score.why_void}; no speedups."
    rate = f", {base.samples_per_s:,.0f} images/s" if base.samples_per_s else ""
    return f"Base case: 1 node{ranks}: {base.score.value_s / 60:.2f} min{rate}."


def _detail(cause: Cause, base: Row, row: Row, curve: Curve) -> str:
    details = {
        "epochs": _epochs(base, row),
        "throughput": _throughput(base, row),
        "compute": _compute(base, row, curve),
        "input wait": _waiting(base, row, 0, "for input; more input threads, faster storage or a local copy of the data"),
        "exposed communication": _waiting(
            base, row, 1, "for gradients; a faster interconnect, a larger local batch, accumulation or fp16 compression"
        ),
        "stragglers": _waiting(base, row, 2, f"for the slowest rank{_slowest(row)}"),
        "evaluation": f"{_share(base)} of the time at the base, {_share(row)} here; a larger evaluation batch, "
        "or evaluation beside training where the rules allow it",
        "checkpoints and logging": "they do not shrink with more nodes; fewer checkpoints, or faster storage",
        "restarts": "work done again after interruptions; no interconnect changes that",
        "other overhead": "time on the clock outside epochs and evaluations that the source does not name",
    }
    return details[cause]


def _epochs(base: Row, row: Row) -> str:
    batch = f"global batch {row.global_batch_size} needs" if row.global_batch_size else "this size needs"
    same = "" if row.global_batch_size != base.global_batch_size else " at the same global batch (chance, or evaluation epochs)"
    return f"{batch} {_number(row.epochs)} epochs against {_number(base.epochs)}{same}; no interconnect changes that"


def _throughput(base: Row, row: Row) -> str:
    detail = "the logs do not tell waiting from computing"
    if base.local_batch_size != row.local_batch_size and base.local_batch_size and row.local_batch_size:
        return f"the local batch is {row.local_batch_size} against {base.local_batch_size}, and {detail}"
    return detail


def _compute(base: Row, row: Row, curve: Curve) -> str:
    if base.local_batch_size != row.local_batch_size:
        return f"a local batch of {row.local_batch_size} uses a rank less well than one of {base.local_batch_size}"
    if curve.series.emulated:
        return "the emulated nodes share the cores of one host; separate hosts would not"
    return "the same local batch takes longer; compare clocks, temperatures and CPU binding of the nodes"


def _waiting(base: Row, row: Row, which: int, what: str) -> str:
    before, now = base.wait_shares(), row.wait_shares()
    if before is None or now is None:
        return f"ranks wait {what}"
    return f"ranks wait {now[which]:.1%} of the training time against {before[which]:.1%} {what}"


def _slowest(row: Row) -> str:
    hosts = [run.slowest_host for run in row.kept if run.slowest_host]
    return f", most often on {max(sorted(set(hosts)), key=hosts.count)}: look there first" if hosts else ""


def _share(row: Row) -> str:
    return "unknown" if row.evaluation_share is None else f"{row.evaluation_share:.1%}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}".removesuffix(".0")
