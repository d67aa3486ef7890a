"""The fabric before the runs of an experiment: measured over its nodes, and no run starts where it is far below its class."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from launch import fabric
from launch.experiment import FabricCheck
from launch.host_lock import hosts_to_itself
from launch.interconnect import Interconnect
from launch.job import Host
from launch.runner import Placement
from launch.show import Display
from results.fabric import BULK_BYTES, Expectation, FabricResult, FabricSettings
from results.spec import RunSpec
from results.yaml_file import ConfigurationError

SETTINGS = FabricSettings(
    smallest_bytes=BULK_BYTES // 4, largest_bytes=4 * BULK_BYTES, seconds_per_size=1.0, stall_s=fabric.STALL_S
)
"""Bulk sizes alone: a check is about bandwidth, and should take seconds."""


def expectation(check: FabricCheck, interconnect: Interconnect) -> Expectation:
    """What a check asks of an interconnect.

    Raises:
        ConfigurationError: no percentage, or no line rate to take a share of.
    """
    found = fabric.expectation(check.expect, check.line_rate, interconnect, ("fabric_check", "fabric_check.line_rate"))
    assert found is not None
    return found


def checked_interconnects(specs: Iterable[RunSpec]) -> dict[str, RunSpec]:
    """The interconnects that carry gradients between nodes, each with the run that takes most nodes."""
    largest: dict[str, RunSpec] = {}
    for spec in specs:
        before = largest.get(spec.interconnect)
        if spec.nodes > 1 and (before is None or spec.nodes > before.nodes):
            largest[spec.interconnect] = spec
    return largest


def check_fabrics(check: FabricCheck, specs: list[RunSpec], folder: Path, placement: Placement, display: Display) -> None:
    """Measure every interconnect of the runs over as many nodes as they take; results go to `folder`/fabric.

    Raises:
        ConfigurationError: one is below what is expected, or cannot be measured.
    """
    for name, spec in checked_interconnects(specs).items():
        interconnect = placement.interconnect(name)
        if interconnect.kind == "loopback":
            continue  # nodes that are emulated on one host have no fabric
        hosts = placement.hosts[: spec.nodes]
        if not hosts and "SLURM_JOB_NUM_NODES" not in os.environ:
            raise ConfigurationError(f"fabric_check: {spec.nodes} nodes over {name}: name hosts, or run inside an allocation")
        expected, own = expectation(check, interconnect), fabric.new_folder(folder, name)
        display.say(f"checking the fabric: {name}, {spec.nodes} nodes")
        with hosts_to_itself([Host.parse(host, 1).name for host in hosts], display):
            try:
                result = fabric.measure(
                    replace(placement, hosts=hosts), interconnect, spec.ranks_per_node, SETTINGS, expected, own, display
                )
            except fabric.FabricError as error:
                raise ConfigurationError(f"fabric_check of {name}: {error}") from error
        outcome, line = result.outcome
        if outcome != "passed":
            raise ConfigurationError(f"{refusal(result)}; no run was started; {own}")
        display.say(f"  {line}")


def refusal(result: FabricResult) -> str:
    """Why a fabric did not pass, in one line."""
    return f"the fabric check of {result.interconnect} failed: {result.outcome[1]}"


def refusal_in(folder: Path) -> str:
    """Why the fabric that was measured into a folder did not pass; empty where it did, or is not measured yet."""
    path = folder / "fabric.json"
    if not path.exists():
        return ""
    result = FabricResult.model_validate_json(path.read_text(encoding="utf-8"))
    return refusal(result) if result.outcome[0] == "failed" else ""
