"""From runs to the one Report that every format renders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from results.archive import Archive
from results.decomposition import Comparison, compare_row
from results.explain import base_sentence, sentence
from results.fabric import FabricResult
from results.published import Published, load_published
from results.rcp import DEFAULT_ROUND, Verdict, judge
from results.report.content import CurveContent, Report, RowContent, RunContent
from results.report.fabric_evidence import allreduce_of, fabric_content, load_fabrics
from results.report.rails import rail_comparisons
from results.report.scale_up import scale_up
from results.run import Run
from results.scaling import Curve, Row, curves


def build_report(
    archive: Archive, sources: Sequence[Path], against: Sequence[str] = (), made_at: datetime | None = None
) -> Report:
    """Score, compare and explain all that an archive holds.

    `against` names published numbers to set beside the curves.

    Raises:
        ConfigurationError: `against` names nothing that there is.
    """
    published = [found for name in against for found in load_published(name)]
    fabrics, problems = load_fabrics(archive.fabric_files)
    ambiguous = _ambiguous_systems(archive.runs)
    found = curves(run for run in archive.runs if run.counts)
    variants = _variants(found)
    contents = []
    places: dict[int, str] = {}
    for number, curve in enumerate(found, start=1):
        content = _curve(curve, f"curve-{number}", variants.get(curve.series.settings_key, ""), ambiguous, fabrics)
        contents.append(content)
        for row in curve.rows:
            places |= {id(run): content.anchor for run in row.runs}
    problems += [(str(problem.source), problem.reason) for problem in archive.problems]
    problems += [(str(path), "no record yet: not started, still running, or killed") for path in archive.without_record]
    return Report(
        made_at=(made_at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        sources=[str(source) for source in sources],
        remarks=_remarks(archive, found, ambiguous, published),
        curves=contents,
        rails=rail_comparisons(found, [content.title for content in contents]),
        scale_up=[scale_up(file, contents) for file in published],
        fabrics=[fabric_content(fabric) for fabric in fabrics],
        runs=[_run(number, run, places.get(id(run), "")) for number, run in enumerate(archive.runs, start=1)],
        problems=problems,
    )


def _curve(curve: Curve, anchor: str, variant: str, ambiguous: set[str], fabrics: Sequence[FabricResult]) -> CurveContent:
    series = curve.series
    batches = {row.local_batch_size for row in curve.rows} if curve.scaling == "weak scaling" else set()
    total = {row.global_batch_size for row in curve.rows} if curve.scaling == "strong scaling" else set()
    detail = f"{batches.pop()} images per rank" if batches else f"global batch {total.pop()}" if total else ""
    rows = []
    for row in curve.rows:
        allreduce = allreduce_of(fabrics, series.interconnect, row.nodes, series.emulated)
        rows.append(_row(curve, row, compare_row(curve, row, allreduce)))
    return CurveContent(
        anchor=anchor,
        workload=series.workload,
        system=f"{series.system} ({series.hardware})" if series.system in ambiguous else series.system,
        interconnect=series.interconnect,
        scaling=curve.scaling,
        scaling_detail=detail,
        variant=variant,
        mlperf_round=series.mlperf_round,
        emulated=series.emulated,
        embedded=series.embedded,
        base_sentence=base_sentence(curve),
        has_base=curve.base is not None and curve.base.score.kind != "void",
        rows=rows,
    )


def _row(curve: Curve, row: Row, comparison: Comparison | None) -> RowContent:
    score, interval = row.score, row.score.interval_s
    epochs = [run.epochs for run in row.runs if run.epochs is not None]
    factors = comparison.factors if comparison else None
    is_base = row is curve.base
    other = comparison if comparison and not is_base else None
    rcp, rcp_note = _rcp(curve, row)
    return RowContent(
        nodes=row.nodes,
        ranks=row.ranks,
        local_batch_size=row.local_batch_size,
        global_batch_size=row.global_batch_size,
        runs=score.runs,
        missed_runs=score.missed,
        score_kind=score.kind,
        time_to_train_s=_finite(score.value_s),
        time_low_s=interval.low if interval else None,
        time_high_s=interval.high if interval else None,
        fastest_s=_finite(score.times_s[0]),
        slowest_s=_finite(score.times_s[-1]),
        training_only_s=row.training_s,
        run_times_s=[_finite(time_s) for time_s in score.times_s],
        epochs=row.epochs,
        epochs_least=min(epochs, default=None),
        epochs_most=max(epochs, default=None),
        images_per_s=row.samples_per_s,
        evaluation_share=row.evaluation_share,
        gpu_energy_j=row.mean_s("gpu_energy_j"),
        power_per_gpu_w=row.power_per_gpu_w,
        images_per_j=row.samples_per_j,
        is_base=is_base,
        speedup=comparison.speedup if comparison else None,
        speedup_low=comparison.interval.low if comparison and comparison.interval else None,
        speedup_high=comparison.interval.high if comparison and comparison.interval else None,
        throughput_speedup=factors.throughput if factors else None,
        epochs_ratio=factors.epochs if factors else None,
        overhead_ratio=factors.overhead if factors else None,
        efficiency=comparison.efficiency if comparison else None,
        ideal_speedup=comparison.bounds.ideal if comparison else None,
        amdahl_bound=other.bounds.amdahl if other else None,
        communication_bound=other.bounds.communication if other else None,
        points=_plain(other) if other else {},
        sentence=sentence(curve, row, comparison),
        rcp_epochs=rcp.point.mean_epochs if rcp and rcp.point else None,
        rcp_least_epochs=rcp.point.least_epochs if rcp and rcp.point else None,
        rcp_note=rcp_note,
        rcp_suspicious=rcp.suspicious if rcp else False,
    )


def _plain(comparison: Comparison) -> dict[str, float]:
    return {str(cause): points for cause, points in comparison.points.items()}


def _rcp(curve: Curve, row: Row) -> tuple[Verdict | None, str]:
    if curve.series.embedded:
        return None, "no reference: embedded data"
    epochs = [run.epochs for run in row.runs if run.epochs is not None]
    verdict = judge(curve.series.workload, row.global_batch_size, epochs) if row.global_batch_size else None
    if verdict is None:
        return None, "no reference" if epochs else "target missed"
    if verdict.point is None:
        return verdict, f"{DEFAULT_ROUND} has no reference for so large a batch"
    epochs_there = f"{verdict.point.mean_epochs:.1f} in {DEFAULT_ROUND}"
    if verdict.how == "smaller than any reference batch":
        return verdict, f"{epochs_there} at {verdict.point.global_batch_size}, its smallest"
    how = " (interpolated)" if verdict.how == "interpolated" else ""
    if not verdict.suspicious:
        return verdict, epochs_there + how
    least = f"a mean below {verdict.point.least_epochs:.1f} is faster than chance allows"
    return verdict, f"SUSPICIOUSLY FAST against {epochs_there}{how}; {least}"


def _run(number: int, run: Run, curve: str) -> RunContent:
    reason = run.reason
    if run.rails == "rails-differ":
        reason = f"kept out of the speedups, rails differ: {run.rails_reason}"
    return RunContent(
        anchor=f"run-{number}",
        name=run.name,
        source=str(run.source),
        curve=curve,
        workload=run.workload,
        system=run.system,
        interconnect=run.interconnect,
        nodes=run.nodes,
        ranks=run.ranks,
        status=run.status,
        counted=run.counts,
        reason=reason,
        time_to_train_s=run.time_to_train_s,
        epochs=run.epochs,
        images_per_s=run.samples / run.samples_time_s if run.samples and run.samples_time_s else None,
        restart_s=run.restart_s,
        page_cache_cleared=run.page_cache_cleared,
        seed=run.seed,
        started_at=run.started_at,
        rails=run.rails,
        rails_reason=run.rails_reason,
        rail_bytes=run.rail_bytes,
    )


def _remarks(archive: Archive, found: Sequence[Curve], ambiguous: set[str], published: Sequence[Published]) -> list[str]:
    runs = archive.runs
    remarks = []
    if any(run.emulated for run in runs):
        remarks.append("Nodes are emulated on one host: these times say that the machinery works, not how a cluster performs.")
    if any(run.embedded for run in runs):
        remarks.append(
            "Embedded data sets are this project's own: these are not MLPerf results and compare with no published number."
        )
    if any(run.origin == "mlperf-log" for run in runs):
        remarks.append(
            "MLPerf logs: images/s and evaluation time are derived from their epoch and evaluation events; evaluation that ran "
            "beside training is not counted as overhead; which rails carried the traffic is not stated in such logs."
        )
    if len({run.mlperf_round for run in runs if run.mlperf_round}) > 1:
        remarks.append(
            "The logs come from different MLPerf rounds, whose rules and schedules differ; rounds are never mixed or compared."
        )
    remarks += [f"Runs named {name} come from different machines; they are kept apart." for name in sorted(ambiguous)]
    resumed = [f"{run.name} ({_times(run.restarts)}, {run.restart_s or 0.0:.1f} s)" for run in runs if run.restarts]
    if resumed:
        remarks.append(f"Interrupted and resumed; the time lost counts in the time to train: {', '.join(resumed)}.")
    warm = [run.name for run in runs if run.page_cache_cleared is False]
    if warm:
        more = f" and {len(warm) - 5} more" if len(warm) > 5 else ""
        remarks.append(
            f"Page cache not cleared before (not permitted on every host): {', '.join(warm[:5])}{more}. They may have read data "
            "from memory, which MLPerf's rules forbid."
        )
    if any(row.score.runs < 3 for curve in found for row in curve.rows):
        remarks.append(
            "Some rows have fewer than three runs: one lucky evaluation moves such a row by 6 to 28%. MLPerf asks for five."
        )
    if not found and runs:
        remarks.append("No run here can be scored; each is listed below with the reason.")
    return remarks


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _ambiguous_systems(runs: Iterable[Run]) -> set[str]:
    """Systems whose runs come from different hardware."""
    hardware: dict[str, set[str]] = {}
    for run in runs:
        hardware.setdefault(run.system, set()).add(run.hardware)
    return {name for name, models in hardware.items() if len(models - {""}) > 1}


def _variants(found: Sequence[Curve]) -> dict[str, str]:
    """For each digest of settings, those that differ among the curves of its workload."""
    by_workload: dict[str, dict[str, dict[str, Any]]] = {}
    for curve in found:
        if curve.series.settings_key:
            by_workload.setdefault(curve.series.workload, {})[curve.series.settings_key] = curve.rows[0].runs[0].settings
    labels = {}
    for settings in by_workload.values():
        keys = sorted({key for flat in settings.values() for key in flat})
        differing = [key for key in keys if len({str(flat.get(key)) for flat in settings.values()}) > 1]
        for digest, flat in settings.items():
            shown = [f"{key.removeprefix('communication.')}={flat.get(key)}" for key in differing[:3]]
            labels[digest] = ", ".join(shown + ["…"] * (len(differing) > 3))
    return labels


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
