"""Measure the path that training will use, with the launcher, the environment and the libraries that training uses."""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path

from launch.emulation import inside_emulated_node
from launch.interconnect import Interconnect
from launch.job import Host, Job, binding_variables, passed_on
from launch.launcher_words import cause, unreachable_hosts
from launch.launchers import get_launcher
from launch.rails import asked_rails
from launch.runner import Placement
from launch.show import Display
from launch.supervise import supervise
from results import rails
from results.fabric import (
    MEASUREMENT_FILE,
    SETTINGS_FILE,
    Expectation,
    FabricMeasurement,
    FabricResult,
    FabricSettings,
    allreduce_fit,
)
from results.model import write_atomically
from results.rates import parse_rate
from results.rundir import RunDirectory
from results.yaml_file import ConfigurationError

STALL_S = 120.0
"""A dead peer or a cut rail ends the measurement after this time without progress."""


class FabricError(Exception):
    """The measurement did not come to its end; the message names the log and its last line."""


def node_count(placement: Placement) -> int:
    """Number of nodes that the hosts, or the surrounding allocation, make; 1 without both."""
    return len(placement.hosts) or int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))


def expectation(
    share: str | None, line_rate: str | None, interconnect: Interconnect, names: tuple[str, str] = ("--expect", "--line-rate")
) -> Expectation | None:
    """The acceptance check of `--expect 90% --line-rate 100gbit`; the rate of the interconnect configuration by default.

    `names` are those of both values in error messages.

    Raises:
        ConfigurationError: no percentage, or no line rate to take a share of.
    """
    if share is None:
        if line_rate is not None:
            raise ConfigurationError(f"{names[1]} does nothing without {names[0]}, for example 90%")
        return None
    number = share.strip().removesuffix("%")
    try:
        part = float(number) / 100
    except ValueError:
        part = 0.0
    if not 0 < part <= 1 or not share.strip().endswith("%"):
        raise ConfigurationError(f"{names[0]} {share}: write a percentage of the line rate, for example 90%")
    if line_rate is not None:
        rate = parse_rate(line_rate)
    elif interconnect.rate_gbit_per_s is not None:
        rate = interconnect.rate_gbit_per_s * 1e9
    else:
        raise ConfigurationError(f"{interconnect.name} states no line rate; add {names[1]}, for example 100gbit")
    return Expectation(share=part, line_rate_bits_per_s=rate, rails=max(1, interconnect.rails))


def make_job(placement: Placement, interconnect: Interconnect, ranks_per_node: int, folder: Path) -> Job:
    """The launch of a measurement in `folder`, as training is launched.

    Raises:
        ConfigurationError: malformed hosts, fewer than two ranks, or more than fit.
    """
    site, nodes = placement.site, node_count(placement)
    ranks = nodes * ranks_per_node
    if ranks < 2:
        raise ConfigurationError("a fabric has at least two ranks; name hosts with --host, or ask for --ranks-per-node 2")
    one_host = nodes == 1 and not placement.hosts
    bind = site.bind_ranks and not one_host and not inside_emulated_node()
    environment = {**passed_on(os.environ), "OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO", **interconnect.environment()}
    environment |= binding_variables(ranks_per_node) if bind else {}
    job = Job(
        tokens=[*site.container, site.python or sys.executable, "-m", "training.fabric", str(folder)],
        ranks=ranks,
        ranks_per_node=ranks_per_node,
        hosts=[Host.parse(host, ranks_per_node) for host in placement.hosts],
        environment=environment | site.environment,
        one_host=one_host,
        cores_per_rank=site.cpus_per_rank or 1,
        bind=bind,
    )
    job.check()
    return job


def measure(
    placement: Placement,
    interconnect: Interconnect,
    ranks_per_node: int,
    settings: FabricSettings,
    expected: Expectation | None,
    folder: Path,
    display: Display | None = None,
) -> FabricResult:
    """Measure, judge the rails, and write `fabric.json` and `command.json` into `folder`.

    Raises:
        ConfigurationError: it cannot be started.
        FabricError: the ranks failed.
    """
    from results import nccl_log

    launcher = get_launcher(placement.launcher, placement.site)
    run_dir = RunDirectory(folder)
    out = folder / MEASUREMENT_FILE
    job = make_job(placement, interconnect, ranks_per_node, folder)
    run_dir.launcher_log.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SETTINGS_FILE, settings.model_dump_json(indent=1) + "\n")
    command, environment = launcher.command(job), launcher.environment(job)
    write_atomically(run_dir.command, json.dumps({"tokens": command, "environment": environment}, indent=1) + "\n")
    outcome = supervise(command, environment, run_dir, display or Display())
    log = run_dir.launcher_log.read_text(encoding="utf-8", errors="replace")
    if outcome.exit_status != 0 or not out.exists():
        reason = unreachable_hosts(log) or cause(log)
        raise FabricError(f"the measurement ended with status {outcome.exit_status}: {reason}; log: {run_dir.launcher_log}")
    measurement = FabricMeasurement.model_validate_json(out.read_text(encoding="utf-8"))
    asked = asked_rails(interconnect)
    result = FabricResult(
        interconnect=interconnect.name,
        emulated_nodes=inside_emulated_node(),
        command=command,
        asked=asked,
        measurement=measurement,
        evidence=rails.judge(
            asked=asked,
            before=measurement.before,
            after=measurement.after,
            least_exchange_bytes=measurement.least_exchange_bytes,
            nccl=nccl_log.read(log.splitlines()),
        ),
        fit=allreduce_fit(measurement),
        expectation=expected,
    )
    write_atomically(folder / "fabric.json", result.model_dump_json(indent=1) + "\n")
    out.unlink()
    return result


def new_folder(runs: Path, interconnect: str) -> Path:
    """A folder of its own for one measurement, beside the runs: `runs/fabric/edr-2-20261201-120000`."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    return (runs / "fabric" / f"{Path(interconnect).stem}-{stamp}").absolute()
