"""What launchers say when they lose a rank or a node, in the words of mpirun (Open MPI 4 and 5) and of Slurm's srun."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MPIRUN_SIGNAL = re.compile(
    r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>\S+) exited on signal \d+ \((?P<how>[^)]+)\)"
)
_SRUN_SIGNAL = re.compile(
    r"srun: error: (?P<host>\S+): tasks? (?P<rank>\d+)\S*: "
    r"(?P<how>Killed|Terminated|Aborted|Bus error|Segmentation fault|Out Of Memory)"
)
_MPIRUN_NODE = re.compile(r"lost communication with (?:a|the) remote daemon.*?Remote daemon: \S+ on node (?P<host>[\w.-]+)")
_SRUN_NODE = re.compile(
    r"srun: error: Node failure on (?P<host>\S+)|DUE TO NODE FAILURE|Timed out waiting for job step to complete"
)
_MEMORY = re.compile(r"StepId=\S+ exceeded memory limit \((?P<used>\d+) > (?P<limit>\d+)\)|[Dd]etected \d+ oom.kill event")
_UNREACHED = re.compile(r"daemon failed to report back.*?Remote host: (?P<host>[\w.-]+)")
_SSH = re.compile(r"^(?:ssh: .+|.+: Permission denied .+|Host key verification failed\.)$", re.MULTILINE)
_ENDED = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO (?P<why>TIME LIMIT|PREEMPTION)")

_TELLING = (
    r"^(\[\d\]<stderr>:)?\w*(Error|Exception): ",
    r"^(ssh|srun: error): ",
    r"Timeout \(",
    r"^\s*Message: ",
    r"ailed",
    r"rror",
)
"""Kinds of lines that name a cause, the most telling first: exceptions, ssh and srun, the stall watch, Open MPI's messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """What was lost, as the launcher tells it."""

    message: str
    rank: int | None = None
    blameless: bool = False
    """The run itself did nothing wrong: a node went down, or the scheduler took the nodes back."""


def find_loss(launcher_log: str) -> Loss | None:
    """The loss that a launcher's output tells of, or None. A lost node is told before the ranks that died of it."""
    text = " ".join(launcher_log.split())  # mpirun breaks its sentences over lines
    if found := _ENDED.search(text):
        return Loss(message=f"the scheduler ended the job: {found['why'].lower()}", blameless=True)
    if found := _MEMORY.search(text):
        amounts = f": {int(found['used']) >> 20} MiB of {int(found['limit']) >> 20}" if found["used"] else ""
        return Loss(message=f"the job used more memory than it had asked for{amounts}; sbatch --mem asks for more")
    if found := _MPIRUN_NODE.search(text) or _SRUN_NODE.search(text):
        host = f"node {found['host']}" if found["host"] else "a node"
        return Loss(message=f"{host} no longer answers", blameless=True)
    if found := _MPIRUN_SIGNAL.search(text) or _SRUN_SIGNAL.search(text):
        rank = int(found["rank"])
        return Loss(message=f"rank {rank} on {found['host']} was ended by the system: {found['how']}", rank=rank)
    return None


def unreachable_hosts(launcher_log: str) -> str:
    """One line on the hosts on which mpirun could start nothing, with ssh's own reason; empty when there are none."""
    text = " ".join(launcher_log.split())
    hosts = sorted({found["host"] for found in _UNREACHED.finditer(text)})
    if not hosts:
        return ""
    told = next((line.strip() for line in _SSH.findall(launcher_log)), "their launch daemon did not answer")
    return f"no rank could be started on {', '.join(hosts)}: {told}; `ssh {hosts[0]} true` must work without a question"


def cause(launcher_log: str) -> str:
    """The line that most likely says why: the first of the most telling kind that there is."""
    lines = [line.strip() for line in launcher_log.splitlines() if line.strip(" -*")]
    for kind in _TELLING:
        for line in lines:
            if re.search(kind, line):
                return line
    return lines[-1] if lines else "it said nothing"
