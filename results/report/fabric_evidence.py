"""Fabric measurements beside the runs: shown in the report, and the ground of its communication bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from results.fabric import AllreducePoint, FabricResult
from results.report.content import FabricContent


def load_fabrics(paths: Iterable[Path]) -> tuple[list[FabricResult], list[tuple[str, str]]]:
    """The latest measurement of each interconnect and number of nodes; path and reason of what cannot be used."""
    found: dict[tuple[str, int, bool], FabricResult] = {}
    problems = []
    for path in paths:
        try:
            result = FabricResult.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            problems.append((str(path), f"not a fabric measurement: {str(error).splitlines()[0]}"))
            continue
        key = result.interconnect, result.measurement.nodes, result.emulated_nodes
        if key not in found or found[key].measurement.started_at < result.measurement.started_at:
            found[key] = result
    return [found[key] for key in sorted(found)], problems


def allreduce_of(fabrics: Sequence[FabricResult], interconnect: str, nodes: int, emulated: bool) -> Sequence[AllreducePoint]:
    """Measured allreduces for the communication bound; empty without a measurement that went over the rails asked for."""
    for result in fabrics:
        same = (result.interconnect, result.measurement.nodes, result.emulated_nodes) == (interconnect, nodes, emulated)
        if same and result.evidence.verdict != "rails-differ":
            return result.measurement.allreduce
    return []


def fabric_content(result: FabricResult) -> FabricContent:
    """The figures of one measurement that the report shows."""
    size_bytes, busbw = result.best_busbw
    outcome, line = result.outcome
    return FabricContent(
        interconnect=result.interconnect,
        nodes=result.measurement.nodes,
        ranks=result.measurement.ranks,
        emulated=result.emulated_nodes,
        best_busbw_bits_per_s=busbw,
        best_size_bytes=size_bytes,
        latency_s=result.fit.latency_s if result.fit else None,
        rails=result.evidence.verdict,
        outcome="" if outcome == "not-asked" else f"{outcome}: {line}",
        measured_at=result.measurement.started_at,
    )
