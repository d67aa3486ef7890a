"""All nodes at once: the doctor on each through srun or mpirun, and one table with what differs."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.doctor.machine import Finding, Level
from launch.job import Host, Job, passed_on
from launch.launcher_words import cause, unreachable_hosts
from launch.launchers import Launcher, get_launcher
from launch.launchers.srun import Srun
from launch.site import SiteProfile
from results.model import write_atomically
from results.yaml_file import ConfigurationError

TIMEOUT_S = 600
VARIABLE_PARTS = frozenset({"/dev/shm", "runs", "scratch"})
"""Free room differs a little everywhere: only its level is compared."""
ByNode = Mapping[str, Sequence[Finding]]


def new_folder(runs: Path) -> Path:
    """A folder of its own for the nodes' answers. It lies under that of the runs, which all nodes must see anyway."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    return (runs / "doctor" / stamp).absolute()


def leave(folder: Path, findings: Sequence[Finding]) -> None:
    """On a node: leave this node's lines in the folder, under its name."""
    rows = [dataclasses.asdict(finding) for finding in findings]
    write_atomically(folder / f"{platform.node()}.json", json.dumps(rows, indent=1) + "\n")


def collect(folder: Path) -> dict[str, list[Finding]]:
    """The lines of each node that left some."""
    return {path.stem: [Finding(**row) for row in json.loads(path.read_text())] for path in sorted(folder.glob("*.json"))}


def make_job(nodes: int, hosts: Sequence[str], site: SiteProfile, arguments: Sequence[str], folder: Path) -> Job:
    """The doctor once on each node, leaving its lines in the folder."""
    doctor = [site.python or sys.executable, "-m", "launch.cli", "doctor", *arguments, "--leave-in", str(folder)]
    return Job(
        tokens=[*site.container, *doctor],
        ranks=nodes,
        ranks_per_node=1,
        hosts=[Host(host.partition(":")[0], 1) for host in hosts],
        environment=passed_on(os.environ),
        bind=False,
    )


def get_starter(name: str, site: SiteProfile) -> Launcher:
    """What starts the doctor on the nodes. srun does so without any MPI: whether that works is one of the questions.

    Raises:
        ConfigurationError: there is no such launcher here.
    """
    launcher = get_launcher(name, site)
    return Srun(mpi_plugin="none", options=site.srun_options) if isinstance(launcher, Srun) else launcher


def ask(job: Job, launcher: Launcher, folder: Path) -> dict[str, list[Finding]]:
    """Start the doctor on all nodes; returns what each found.

    Raises:
        ConfigurationError: no node answered; the message is the launcher's.
    """
    folder.mkdir(parents=True)
    environment = os.environ | launcher.environment(job)
    try:
        done = subprocess.run(
            launcher.command(job), env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        found = collect(folder)
        if not found:
            raise ConfigurationError(f"{launcher.name} gave no answer within {TIMEOUT_S} s") from None
        return found
    found = collect(folder)
    if not found:
        told = unreachable_hosts(done.stderr) or cause(done.stderr + done.stdout)
        raise ConfigurationError(f"no node answered in {folder} (do all see it?): {told}")
    return found


def missing(expected: Sequence[str], found: ByNode, folder: Path) -> list[Finding]:
    """A line when nodes left no answer."""
    # A node may know itself by another name than the one it is called by, so that its absence shows in the count.
    silent = [name for name in expected if not any(node == name or node.startswith(f"{name}.") for node in found)]
    if len(found) >= len(expected):
        return []
    remedy = f"ssh {silent[0]} ls {folder.parent}: the folder of runs and this environment must be on every node"
    return [Finding(part="nodes", level="broken", found=f"no answer of {', '.join(silent)}", remedy=remedy)]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One part on all nodes."""

    part: str
    level: Level
    found: str
    remedy: str
    nodes: list[str]
    """Those that this row is about; all of them where the nodes agree."""


def compare(found: ByNode) -> list[Row]:
    """One row for a part on which all nodes agree, else one for each different answer, the rarest first and marked."""
    rows = []
    for part in dict.fromkeys(finding.part for findings in found.values() for finding in findings):
        answers: dict[tuple[Level, str], list[str]] = {}
        told = {node: _about(part, findings) for node, findings in found.items()}
        for node, finding in told.items():
            answers.setdefault((finding.level, finding.level if part in VARIABLE_PARTS else finding.found), []).append(node)
        most = max(len(names) for names in answers.values())
        common = sum(len(names) == most for names in answers.values()) == 1
        for (level, _), names in sorted(answers.items(), key=lambda answer: len(answer[1])):
            odd = len(answers) > 1 and not (common and len(names) == most)
            remedy = told[names[0]].remedy or ("make these nodes like the others" if odd else "")
            shown: Level = "warning" if odd and level == "ok" else level
            rows.append(Row(part=part, level=shown, found=told[names[0]].found, remedy=remedy, nodes=names))
    return rows


def _about(part: str, findings: Sequence[Finding]) -> Finding:
    """A node's line on a part; several of one part do not occur."""
    absent = Finding(part=part, level="warning", found="nothing, unlike on other nodes", remedy="make the nodes alike")
    return next((finding for finding in findings if finding.part == part), absent)


def expected_nodes(hosts: Sequence[str]) -> int:
    """How many nodes the hosts, or the surrounding allocation, make.

    Raises:
        ConfigurationError: neither says so.
    """
    if hosts:
        return len(hosts)
    if "SLURM_JOB_NUM_NODES" not in os.environ:
        raise ConfigurationError(
            "--all-nodes: which ones? Name them with --host or --hostfile, or ask within an allocation: "
            "salloc -N 8 trainscale doctor --all-nodes"
        )
    return int(os.environ["SLURM_JOB_NUM_NODES"])
