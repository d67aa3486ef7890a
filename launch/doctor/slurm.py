"""Slurm as seen from this machine, and the MPI plug-ins of its srun."""

from __future__ import annotations

import re

from launch.doctor.machine import Finding, Machine
from launch.site import SiteProfile


def findings(machine: Machine, site: SiteProfile) -> list[Finding]:
    """Is there a controller that answers, a partition as the site names it, and the MPI plug-in that starts ranks."""
    ping = machine.run(["scontrol", "ping"])
    if ping.status is None:
        return [Finding(part="slurm", level="ok", found="not here; ranks are started by mpirun")]
    if not re.search(r"\bis UP\b", ping.output):
        told = ping.output.strip().splitlines()[0] if ping.output.strip() else ping.complaint
        remedy = "systemctl status slurmctld on the controller; here /etc/slurm/slurm.conf and munge (munge -n | unmunge)"
        return [Finding(part="slurm", level="warning", found=f"installed, but no controller answers: {told}", remedy=remedy)]
    return [_partition(machine, site), _plugin(machine, site)]


def _partition(machine: Machine, site: SiteProfile) -> Finding:
    rows = [line.split("|") for line in machine.run(["sinfo", "--noheader", "--format=%R|%D|%a"]).output.splitlines()]
    partitions = {row[0]: f"{row[1]} nodes, {row[2]}" for row in rows if len(row) == 3}
    told = "; ".join(f"{name}: {what}" for name, what in partitions.items())
    if site.partition and site.partition not in partitions:
        remedy = f"name one of these in the site profile: {', '.join(partitions)}"
        return Finding(part="slurm", level="broken", found=f"no partition {site.partition}", remedy=remedy)
    return Finding(part="slurm", level="ok", found=told or "the controller answers; no partition is open to you")


def _plugin(machine: Machine, site: SiteProfile) -> Finding:
    answer = machine.run(["srun", "--mpi=list"])
    # Slurm writes the list to standard output or, before 22.05, to standard error; pmix_v4 is what `pmix` then takes.
    words = set(re.findall(r"\b(?:none|pmi2|cray_shasta|pmix(?:_v\d+)?)\b", answer.output))
    if site.mpi_plugin in words:
        return Finding(part="srun", level="ok", found=f"MPI plug-ins {', '.join(sorted(words))}")
    found = f"has no MPI plug-in {site.mpi_plugin}, only {', '.join(sorted(words)) or 'none'}"
    remedy = "launcher: mpirun in the site profile, or Slurm built with PMIx (Debian: apt-get install libpmix-dev)"
    return Finding(part="srun", level="broken" if site.launcher == "srun" else "warning", found=found, remedy=remedy)
