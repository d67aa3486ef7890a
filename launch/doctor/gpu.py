"""The NVIDIA driver and the GPUs as it lists them, NCCL, and GPUDirect."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any

from launch.doctor.machine import Finding, Machine, Probed

QUERY = "index,name,driver_version,memory.total,persistence_mode"
LEAST_DRIVER = {"11": 450, "12": 525, "13": 580}
"""The oldest branch of the driver that runs programs of a CUDA major version (docs.nvidia.com/deploy/cuda-compatibility,
minor version compatibility)."""
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU as the driver lists it."""

    name: str
    driver: str
    memory: str
    persistent: bool


def listed(machine: Machine) -> tuple[list[Gpu], str]:
    """The driver's GPUs, and why there are none."""
    answer = machine.run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"])
    if answer.status != 0:
        return [], answer.complaint or answer.output.strip()
    rows = [[cell.strip() for cell in row] for row in csv.reader(answer.output.splitlines()) if row]
    return [Gpu(name=row[1], driver=row[2], memory=row[3], persistent=row[4] == "Enabled") for row in rows if len(row) == 5], ""


def driver(machine: Machine, gpus: list[Gpu], why: str, torch: Probed) -> list[Finding]:
    """The driver, whether it is new enough for torch's CUDA, and whether the GPUs are alike."""
    loaded = machine.text("/proc/driver/nvidia/version")
    if not gpus:
        if loaded is None:
            return [Finding(part="driver", level="ok", found="no NVIDIA driver: training runs on the CPU")]
        return [
            Finding(
                part="driver", level="broken", found=f"loaded, but it lists no GPU: {why}",
                remedy="nvidia-smi; after an update of the driver: rmmod nvidia_uvm nvidia && modprobe nvidia, or reboot",
            )
        ]  # fmt: skip
    version = gpus[0].driver
    names = sorted({f"{gpu.name} {gpu.memory}" for gpu in gpus})
    findings = [_age(version, (torch.facts or {}).get("cuda"))]
    if len(names) > 1:
        remedy = "export CUDA_VISIBLE_DEVICES with those of one kind: ranks wait for the slowest"
        findings.append(Finding(part="gpus", level="warning", found=f"different ones: {'; '.join(names)}", remedy=remedy))
    elif not all(gpu.persistent for gpu in gpus):
        found = f"{len(gpus)} {names[0]}, without persistence mode: each start of a run waits for the driver"
        findings.append(Finding(part="gpus", level="warning", found=found, remedy="nvidia-smi -pm 1 (root)"))
    else:
        findings.append(Finding(part="gpus", level="ok", found=f"{len(gpus)} {names[0]}"))
    return findings


def _age(version: str, cuda: str | None) -> Finding:
    least = LEAST_DRIVER.get((cuda or "").partition(".")[0])
    branch = version.partition(".")[0]
    if least and branch.isdigit() and int(branch) < least:
        found = f"{version} is older than {least}, which CUDA {cuda} of this torch needs"
        remedy = "a newer driver (root), or a stack of an older CUDA: requirements/volta.txt takes CUDA 12"
        return Finding(part="driver", level="broken", found=found, remedy=remedy)
    return Finding(part="driver", level="ok", found=version)


def nccl(torch: Probed, horovod: Probed) -> Finding | None:
    """NCCL: torch and Horovod must load one and the same, and no older one than Horovod was built for."""
    own: str | None = (torch.facts or {}).get("nccl")
    facts: dict[str, Any] = horovod.facts or {}
    if not own or not facts.get("nccl"):
        return None  # the lines on torch and Horovod say so
    built, loaded, libraries = dotted(facts["nccl"]), facts.get("nccl_loaded"), facts.get("nccl_libraries", [])
    remedy = (
        "python -m launch.horovod_build --gpu (builds against the NCCL that torch loads); no other libnccl on LD_LIBRARY_PATH"
    )
    if len(libraries) > 1:
        return Finding(part="nccl", level="broken", found=f"two in one process: {', '.join(libraries)}", remedy=remedy)
    if loaded and dotted(loaded) != own:
        found = f"torch was built for {own}, Horovod for {built}, and {dotted(loaded)} is loaded ({libraries[0]})"
        return Finding(part="nccl", level="broken", found=found, remedy=remedy)
    if built != own:
        found = f"torch has {own}, Horovod was built for {built}"
        return Finding(part="nccl", level="warning", found=found, remedy=remedy)
    return Finding(part="nccl", level="ok", found=f"{own} in torch and Horovod")


def dotted(code: int) -> str:
    """NCCL's version number as words: 23007 is 2.30.7, and 2708 was 2.7.8."""
    scale = 10000 if code >= 10000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def gpudirect(machine: Machine, gpus: int, hcas: int) -> Finding | None:
    """Whether HCAs can read and write GPU memory, where there are both."""
    if not gpus or not hcas:
        return None
    modules = {line.split()[0] for line in (machine.text("/proc/modules") or "").splitlines() if line.strip()}
    loaded = [name for name in PEER_MODULES if name in modules]
    if loaded:
        return Finding(part="gpudirect", level="ok", found=f"{loaded[0]} is loaded")
    return Finding(
        part="gpudirect", level="warning", found="no nvidia_peermem: gradients go through host memory on their way to the HCA",
        remedy="modprobe nvidia_peermem (root); it comes with the driver, for the RDMA stack that was installed before it",
    )  # fmt: skip
