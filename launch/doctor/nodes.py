"""The other nodes: does ssh reach them without a question, and do their clocks agree with this one's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from launch.doctor.machine import Finding, Level, Machine

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
CLOCK_TOLERANCE_S = 1.0
"""Events of one run are put in order by the clocks of several nodes."""


def names(machine: Machine, hosts: Sequence[str]) -> list[str]:
    """The nodes to look at: those named, else those of the surrounding allocation; slots are left out."""
    if hosts:
        return [host.partition(":")[0] for host in hosts]
    allocated = machine.environ.get("SLURM_JOB_NODELIST")
    return machine.run(["scontrol", "show", "hostnames", allocated]).output.split() if allocated else []


def findings(machine: Machine, hosts: Sequence[str], *, needed: bool, now: Callable[[], float] = time.time) -> list[Finding]:
    """A line on ssh and one on the clocks; `needed` tells whether ranks are started over ssh."""
    if not hosts:
        return []
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = dict(zip(hosts, pool.map(lambda host: _offset(machine, host, now), hosts), strict=True))
    refused = {host: answer for host, answer in answers.items() if isinstance(answer, str)}
    offsets = {host: answer for host, answer in answers.items() if not isinstance(answer, str)}
    lines = []
    if refused:
        first = next(iter(refused))
        level: Level = "broken" if needed else "warning"
        remedy = f"ssh-copy-id {first} and ssh-keyscan {first} >> ~/.ssh/known_hosts; then `ssh {first} true` asks nothing"
        found = "; ".join(f"{host}: {why}" for host, why in refused.items())
        lines.append(
            Finding(part="ssh", level=level, found=f"{len(refused)} of {len(hosts)} not reached: {found}", remedy=remedy)
        )
    else:
        lines.append(Finding(part="ssh", level="ok", found=f"{len(hosts)} nodes without a question"))
    return [*lines, *_clocks(offsets)]


def _clocks(offsets: dict[str, tuple[float, float]]) -> list[Finding]:
    # What the way there and back took cannot be told from an offset.
    off = {host: offset for host, (offset, doubt) in offsets.items() if abs(offset) - doubt > CLOCK_TOLERANCE_S}
    if not offsets:
        return []
    if off:
        found = ", ".join(f"{host} {offset:+.1f} s" for host, offset in off.items())
        remedy = "chronyc makestep on those nodes, and systemctl enable --now chronyd"
        return [Finding(part="clocks", level="warning", found=f"differ from this node's: {found}", remedy=remedy)]
    most = max(abs(offset) + doubt for offset, doubt in offsets.values())
    return [Finding(part="clocks", level="ok", found=f"{len(offsets)} nodes within {most:.2f} s of this one")]


def _offset(machine: Machine, host: str, now: Callable[[], float]) -> tuple[float, float] | str:
    """How far a node's clock is ahead and half of what asking took, or why it could not be asked."""
    before_s = now()
    answer = machine.run([*SSH, host, "date", "+%s.%N"])
    after_s = now()
    try:
        return float(answer.output) - (before_s + after_s) / 2, (after_s - before_s) / 2
    except ValueError:
        return answer.complaint or f"ssh ended with status {answer.status}"
