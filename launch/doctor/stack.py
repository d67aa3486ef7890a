"""Python, torch, DALI and apex, and whether their kernels run on the GPUs that are here."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from launch import fatbin
from launch.doctor.machine import PYTHON, Finding, Machine, Probed

TORCH = """
import json, torch
gpus = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
flags = torch._C._cuda_getArchFlags() if torch.version.cuda else ""
nccl = torch.cuda.nccl.version() if torch.version.cuda and torch.distributed.is_nccl_available() else None
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "architectures": (flags or "").split(), "gpus": gpus,
                  "nccl": nccl and ".".join(map(str, nccl))}))
"""
DALI = "import json, nvidia.dali as d; print(json.dumps({'version': d.__version__, 'folder': d.__path__[0]}))"
APEX = "import json, amp_C; from apex.optimizers import FusedLAMB, FusedSGD; print(json.dumps({}))"
DALI_LIBRARIES = ("libdali_kernels.so", "libdali_operators.so")


def python() -> Finding:
    """Which Python runs this, and so the ranks."""
    return Finding(part="python", level="ok", found=f"{sys.version.split()[0]} in {sys.prefix}")


def capabilities(torch: Probed) -> list[int]:
    """The GPUs that torch sees, as numbers: 70 is sm_70."""
    return [major * 10 + minor for major, minor in (torch.facts or {}).get("gpus", [])]


def torch(probed: Probed, driver_gpus: int) -> Finding:
    """torch, and whether it holds kernels for the GPUs."""
    facts = probed.facts
    if facts is None:
        remedy = f"{PYTHON} -m pip install -r requirements/default.txt (V100: requirements/volta.txt)"
        return Finding(part="torch", level="broken", found=probed.complaint, remedy=remedy)
    gpus = capabilities(probed)
    held = fatbin.Architectures(frozenset(_numbers(facts["architectures"])), frozenset())
    missing = sorted({number for number in gpus if not held.run_on(number)})
    if missing:
        names = ", ".join(f"sm_{number}" for number in missing)
        remedy = f"{PYTHON} -m pip install -r requirements/volta.txt" if missing[0] < 75 else "install a torch built for it"
        return Finding(part="torch", level="broken", found=f"{facts['version']} holds no kernels for {names}", remedy=remedy)
    if driver_gpus and not gpus:
        found = f"{facts['version']} sees no GPU, though the driver lists {driver_gpus}"
        remedy = (
            "echo $CUDA_VISIBLE_DEVICES (must not be empty); the driver must know the CUDA of this torch (see driver)"
            if facts["cuda"]
            else "install a torch with CUDA"
        )
        return Finding(part="torch", level="broken", found=found, remedy=remedy)
    seen = f"{len(gpus)} GPUs" + (f" {', '.join(f'sm_{number}' for number in sorted(set(gpus)))}" if gpus else "")
    kernels = f", kernels for {held}" if held else ", no CUDA"
    return Finding(part="torch", level="ok", found=f"{facts['version']}, {seen}{kernels}")


def _numbers(names: Iterable[str]) -> list[int]:
    return [int(name.removeprefix("sm_").rstrip("af")) for name in names if name.startswith("sm_")]


def dali(probed: Probed, gpus: list[int]) -> Finding:
    """DALI, and whether it holds kernels for the GPUs."""
    if probed.facts is None:
        remedy = f"{PYTHON} -m pip install nvidia-dali-cuda130 (V100: nvidia-dali-cuda120), or train with --input torch"
        return Finding(part="dali", level="warning", found=probed.complaint, remedy=remedy)
    version = probed.facts["version"]
    held = fatbin.NONE
    for name in DALI_LIBRARIES if gpus else ():
        path = Path(probed.facts["folder"]) / name
        held = held | fatbin.read(path) if path.exists() else held
    missing = sorted({number for number in gpus if held and not held.run_on(number)})
    if missing:
        remedy = f"{PYTHON} -m pip uninstall nvidia-dali-cuda130; {PYTHON} -m pip install -r requirements/volta.txt"
        found = f"{version} holds no kernels for sm_{missing[0]}, only {held}"
        return Finding(part="dali", level="broken", found=found, remedy=remedy)
    return Finding(part="dali", level="ok", found=f"{version}{f', kernels for {held}' if held else ''}")


def apex(machine: Machine) -> Finding:
    """NVIDIA's apex is optional; the package of that name in the index is another project."""
    try:
        found = metadata.distribution("apex")
    except metadata.PackageNotFoundError:
        return Finding(part="apex", level="ok", found="not installed: optimizers are torch's fused ones")
    if not any(str(path).startswith("apex/optimizers") for path in found.files or []):
        return Finding(
            part="apex", level="warning", found=f"{found.version} is not NVIDIA's apex but another project of that name",
            remedy=f"{PYTHON} -m pip uninstall apex; NVIDIA's is built from its source repository",
        )  # fmt: skip
    probed = machine.probe(APEX)
    if probed.facts is None:
        return Finding(
            part="apex", level="warning", found=f"NVIDIA apex {found.version} without its kernels: {probed.complaint}",
            remedy="build it again with APEX_CPP_EXT=1 APEX_CUDA_EXT=1, or uninstall it: torch's fused optimizers are taken then",
        )  # fmt: skip
    return Finding(part="apex", level="ok", found=f"NVIDIA apex {found.version} with its fused optimizers")
