"""A CUDA home for compiling Horovod, put together from what is there: a toolkit with nvcc, and the wheels that torch requires.

torch's wheels bring CUDA's headers and libraries but no compiler; a cluster's toolkit brings a compiler but often no NCCL; the
compiler's own wheels come without the rest (those of CUDA 12 even without nvcc). The home is a folder of links: the toolkit's
files first, then the wheels' for what it lacks. So Horovod is compiled against the very NCCL that torch loads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import util
from pathlib import Path

PARTS = {
    "bin/nvcc": {"13": "nvidia-cuda-nvcc"},
    "nvvm/bin/cicc": {"13": "nvidia-nvvm"},
    "include/crt/host_config.h": {"12": "nvidia-cuda-nvcc-cu12", "13": "nvidia-cuda-crt"},
    "include/nv/target": {"12": "nvidia-cuda-cccl-cu12", "13": "nvidia-cuda-cccl"},
    "include/cuda_runtime.h": {"12": "nvidia-cuda-runtime-cu12", "13": "nvidia-cuda-runtime"},
    "include/cublas_v2.h": {},
    "include/cusparse.h": {},
    "include/cusolverDn.h": {},
    "include/nccl.h": {},
    "lib64/libnccl.so": {},
    "lib64/libcudart.so": {},
}
"""What a build reads, and the wheel that brings it by CUDA's major version where torch does not require it already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaHome:
    """Where Horovod is compiled from."""

    path: Path
    release: str
    """The compiler's, for example `12.6`."""
    compiler: Path
    """The nvcc that the home links to."""

    def targets(self) -> set[int]:
        """The architectures that the compiler can generate code for."""
        listed = _output([str(self.path / "bin" / "nvcc"), "--list-gpu-code"])
        return {int(number) for number in re.findall(r"sm_(\d+)\b", listed)}


def torch_cuda() -> str:
    """CUDA's version that torch was built with, such as `12.6`, read from its files.

    Raises:
        SystemExit: torch is not installed, or was built without CUDA.
    """
    found = util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit("torch is not installed here; install requirements/default.txt or requirements/volta.txt first")
    version = re.search(r"^cuda\b.*= '([\d.]+)'", (Path(found.origin).parent / "version.py").read_text(), re.MULTILINE)
    if version is None:
        raise SystemExit("this torch was built without CUDA: Horovod for GPUs needs one with it (requirements/volta.txt)")
    return version[1]


def assemble(folder: Path, cuda: str, site_packages: Path) -> CudaHome:
    """Put the home together under a folder, for the CUDA that torch was built with.

    Raises:
        SystemExit: something is missing that no wheel brings; it is named, with the way out.
    """
    major = cuda.partition(".")[0]
    toolkit = _toolkit(major)
    roots = [*([toolkit] if toolkit else []), *_wheel_roots(site_packages)]
    home = folder / "cuda"
    _link_all(home, roots)
    _refuse([part for part in _missing(home) if major not in PARTS[part]], major)
    wheels = [PARTS[part][major] for part in _missing(home)]
    if wheels:
        release = _release(home / "bin" / "nvcc") if toolkit else cuda
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
        target = ["--target", str(folder / "wheels")]
        done = subprocess.run([*pip, *target, *(f"{wheel}=={release}.*" for wheel in wheels)], check=False)
        if done.returncode:
            raise SystemExit(f"pip brought no {', '.join(wheels)} {release}; name a full CUDA {major} toolkit by CUDA_HOME")
        _link_all(home, [*roots, *_wheel_roots(folder / "wheels")])
        _refuse(_missing(home), major)
    # nvcc and CMake name this library for every program; only kernels that launch kernels need more of it than that it is there.
    device_runtime = home / "lib64" / "libcudadevrt.a"
    if not device_runtime.exists():
        device_runtime.write_bytes(b"!<arch>\n")
    nvcc = home / "bin" / "nvcc"
    return CudaHome(path=home, release=_release(nvcc), compiler=nvcc.resolve())


def _missing(home: Path) -> list[str]:
    return [part for part in PARTS if not (home / part).exists()]


def _refuse(missing: list[str], major: str) -> None:
    """End with what to do when parts are missing."""
    if missing:
        raise SystemExit(
            f"no {', '.join(missing)} of CUDA {major}, which this torch was built with; load your site's CUDA {major} module, or "
            f"set CUDA_HOME to a toolkit (a V100 needs CUDA 12: CUDA 13 has no sm_70)"
        )


def _toolkit(major: str) -> Path | None:
    """The toolkit of that major version that the environment names: CUDA_HOME, CUDA_PATH, else the one of the nvcc on PATH."""
    named = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    on_path = shutil.which("nvcc")
    if on_path:
        named.append(_top(on_path))
    for root in named:
        nvcc = root / "bin" / "nvcc"
        if nvcc.is_file() and _release(nvcc).partition(".")[0] == major:
            return root
    return None


def _top(nvcc: str) -> Path:
    """The folder above the real nvcc's bin/; the one on PATH may be a script that calls it."""
    done = subprocess.run([nvcc, "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True, timeout=60, check=False)
    told = re.search(r"^#\$ TOP=(.+)$", done.stderr, re.MULTILINE)
    return Path(told[1]).resolve() if told else Path(nvcc).resolve().parent.parent


def _release(nvcc: Path) -> str:
    found = re.search(r"release (\d+\.\d+)", _output([str(nvcc), "--version"]))
    if found is None:
        raise SystemExit(f"{nvcc} --version names no release")
    return found[1]


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SystemExit(f"{command[0]} does not run: {error}") from error


def _wheel_roots(site_packages: Path) -> list[Path]:
    """Folders of NVIDIA's wheels that hold parts of a toolkit: `nvidia/cu13`, `nvidia/cuda_runtime`, `nvidia/nccl`, …"""
    return sorted(path for path in (site_packages / "nvidia").glob("*") if (path / "include").is_dir() or (path / "bin").is_dir())


def _link_all(home: Path, roots: list[Path]) -> None:
    """Link what the roots hold into one folder; the first that has a name wins."""
    for root in roots:
        _link(root / "bin", home / "bin")
        # CUDA 13 keeps cub, thrust and nv in a folder of their own, where only nvcc looks; g++ reads them too.
        for include in (root / "include", root / "include" / "cccl"):
            _link(include, home / "include")
        for libraries in (root / "lib64", root / "lib"):
            _link(libraries, home / "lib64")
        _link(root / "nvvm", home / "nvvm", deep=True)
    for library in list((home / "lib64").glob("*.so.*")):
        plain = home / "lib64" / f"{library.name.partition('.so.')[0]}.so"
        if not plain.exists():
            plain.symlink_to(library.resolve())
    target = home / "targets" / "x86_64-linux"
    target.mkdir(parents=True, exist_ok=True)
    for place, name in ((home / "lib", "lib64"), (target / "include", "../../include"), (target / "lib", "../../lib64")):
        if not place.is_symlink():
            place.symlink_to(name)


def _link(source: Path, place: Path, *, deep: bool = False) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir() if source.is_dir() else []:
        if deep and entry.is_dir():
            _link(entry, place / entry.name)
        elif not (place / entry.name).exists() and not entry.name.startswith("__"):
            (place / entry.name).symlink_to(entry.resolve())
