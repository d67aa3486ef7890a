"""Machines as the doctor sees them, recorded: files under a folder, and what commands and probes answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.doctor import PROBES, Finding, Machine
from launch.doctor.machine import Answer, Probed

TORCH = {"version": "2.7.1+cu126", "cuda": "12.6", "architectures": ["sm_60", "sm_70", "sm_80"], "gpus": [], "nccl": "2.26.2"}
MPI4PY = {"version": "Open MPI v5.0.11", "library": "/opt/mpi/lib/libmpi.so.40"}
HOROVOD = {
    "mpi": True, "gloo": True, "nccl": 22602, "cuda": True, "threads": True, "library": "/opt/mpi/lib/libmpi.so.40",
    "nccl_libraries": ["/env/nvidia/nccl/lib/libnccl.so.2"], "nccl_loaded": 22602,
}  # fmt: skip
FOUR_V100 = "\n".join(f"{index}, Tesla V100-SXM2-16GB, 535.183.01, 16384 MiB, Enabled" for index in range(4))
"""`nvidia-smi --query-gpu=index,name,driver_version,memory.total,persistence_mode --format=csv,noheader`."""


def machine(
    root: Path, *, says: Mapping[str, str | Answer] | None = None, environ: Mapping[str, str] | None = None, **probes: Any
) -> Machine:
    """A machine whose files lie under `root`, whose commands answer by their first words, and whose probes find these facts."""
    facts = {"torch": TORCH, "mpi4py": MPI4PY, "horovod": HOROVOD, "dali": {"version": "2.4.0", "folder": str(root)}} | probes
    names = {code: name for name, code in PROBES.items()}

    def run(tokens: Sequence[str]) -> Answer:
        line = " ".join(tokens)
        for start, answer in (says or {}).items():
            if line.startswith(start):
                return answer if isinstance(answer, Answer) else Answer(status=0, output=answer)
        return Answer(status=None, complaint=f"{tokens[0]} is not installed")

    def probe(code: str) -> Probed:
        answer = facts[names[code]]
        return Probed(facts=None, complaint=answer) if isinstance(answer, str) else Probed(facts=answer)

    return Machine(root=root, run=run, probe=probe, environ=environ or {})


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def hca(
    root: Path,
    name: str,
    *,
    state: str = "4: ACTIVE",
    physical: str = "5: LinkUp",
    rate: str = "100 Gb/sec (4X EDR)",
    layer: str = "InfiniBand",
    slot: str = "16",
) -> None:
    """One HCA with one port, as the kernel writes it (drivers/infiniband/core/sysfs.c) for a ConnectX-5 in a Gen3 x16 slot."""
    port = f"/sys/class/infiniband/{name}/ports/1"
    files = {f"{port}/state": state, f"{port}/phys_state": physical, f"{port}/rate": rate, f"{port}/link_layer": layer}
    device = f"/sys/class/infiniband/{name}/device"
    files |= {f"{device}/current_link_width": slot, f"{device}/max_link_width": "16"}
    files |= {f"{device}/current_link_speed": "8.0 GT/s PCIe", f"{device}/max_link_speed": "8.0 GT/s PCIe"}
    write(root, files)


def by_part(findings: Sequence[Finding]) -> dict[str, Finding]:
    found = {finding.part: finding for finding in findings}
    assert len(found) == len(findings), "two lines on one part"
    assert all(finding.remedy for finding in findings if finding.level != "ok"), "a line without the command that mends it"
    return found
