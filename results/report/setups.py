"""The full set-up of runs for the page: read again from their records, each different set-up once."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from results.archive import RECORD, UnusableRecord, load_record
from results.facts import HostFacts
from results.record import ComputeFacts, RunRecord
from results.report.content import Report


@dataclass(frozen=True, slots=True)
class Setup:
    """What runs share of their set-up."""

    anchor: str
    title: str
    sections: list[tuple[str, str]]
    """Heading and text, as it is."""


def setups(report: Report, limit: int) -> tuple[list[Setup], dict[str, str], dict[str, str]]:
    """Different set-ups among the first `limit` runs with a record; anchor of its set-up, and command, by anchor of the run."""
    found: dict[str, Setup] = {}
    of_run: dict[str, str] = {}
    commands: dict[str, str] = {}
    for run in report.runs[:limit]:
        path = Path(run.source) / RECORD
        try:
            record = load_record(path)
        except (OSError, UnusableRecord):
            continue  # an MLPerf log has none; a record that went since is no longer there to be shown
        sections = _sections(record)
        digest = hashlib.sha256(repr(sections).encode()).hexdigest()
        if digest not in found:
            title = f"{record.spec.workload}, {record.spec.preset}, {record.spec.nodes} x {record.spec.ranks_per_node} ranks, "
            found[digest] = Setup(
                f"setup-{len(found) + 1}", f"{title}{record.spec.interconnect} on {record.spec.system}", sections
            )
        of_run[run.anchor] = found[digest].anchor
        commands[run.anchor] = shlex.join(record.command)
    return list(found.values()), of_run, commands


def _sections(record: RunRecord) -> list[tuple[str, str]]:
    settings = yaml.safe_dump(record.spec.settings.model_dump(mode="json"), sort_keys=False, width=100)
    software = {"python": record.software.python, "mpi": record.software.mpi, **record.software.packages}
    git = record.git
    state = {True: " with changes", False: ", clean", None: ""}[git.dirty]
    return [
        ("Hosts", "\n".join(_hosts(record.hosts)) or "not recorded"),
        ("Software", "\n".join(f"{name}: {version}" for name, version in software.items() if version)),
        ("trainscale", f"version {git.version or 'not installed'}, commit {git.commit or 'unknown'}{state}"),
        ("Compute", _compute(record.compute)),
        (
            "Environment",
            "\n".join(f"{name}={value}" for name, value in record.environment.items()) or "nothing that matters was set",
        ),
        ("Data", "\n".join([str(record.spec.data_dir), f"digest {record.data_digest or 'not recorded'}", *_staging(record)])),
        ("Settings", f"preset {record.spec.preset}\nexperiment {record.spec.experiment or '-'}\n{settings}"),
        ("Notes", "\n".join(record.notes) or "none"),
    ]


def _compute(compute: ComputeFacts | None) -> str:
    if compute is None:
        return "not recorded"
    flags = {"cuDNN benchmark": compute.cudnn_benchmark, "TF32": compute.tf32}
    switched = ", ".join(f"{name} {'on' if on else 'off'}" for name, on in flags.items())
    return f"{compute.device}\noptimizer: {compute.optimizer}" + ("" if compute.device == "cpu" else f"\n{switched}")


def _staging(record: RunRecord) -> list[str]:
    """Where the copies lie, equal hosts on one line; seconds differ from run to run and stand in the record."""
    groups: dict[str, list[str]] = {}
    for copy in record.staging:
        groups.setdefault(f"{copy.path}, {copy.files:,} files, {copy.size_bytes:,} bytes", []).append(copy.host)
    lines = [f"read from the copy on {', '.join(hosts)}: {text}" for text, hosts in groups.items()]
    cache = {True: "cleared before the run", False: "NOT cleared before the run", None: "not recorded"}
    return [*lines, f"page cache: {cache[record.page_cache_cleared]}"]


def _hosts(hosts: Iterable[HostFacts]) -> list[str]:
    """Equal hosts on one line."""
    groups: dict[str, list[str]] = {}
    for host in hosts:
        devices = "; ".join(f"{device.name} {device.rate or device.kind} {device.state}".strip() for device in host.network)
        gpus = "; ".join(f"{host.gpus.count(gpu)}x {gpu}" for gpu in dict.fromkeys(host.gpus)) or "no GPU"
        memory = f"{host.memory_bytes / 2**30:.0f} GiB"
        text = f"  {host.cpu}, {host.cpus} CPUs, {memory}\n  {gpus}\n  kernel {host.kernel}, {host.os_release}\n  {devices}"
        groups.setdefault(text, []).append(host.hostname)
    return [f"{', '.join(names)}:\n{text}" for text, names in groups.items()]
