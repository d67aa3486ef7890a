"""The CUDA home that Horovod is compiled from: of made-up parts, and of those that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import cuda_home, fatbin, horovod_build
from launch.cuda_home import CudaHome
from launch.mpi import MpiInstallation

HEADERS = ("cublas_v2.h", "cusparse.h", "cusolverDn.h")
Toolkit = Callable[..., Path]


def put(root: Path, *names: str, text: str = "") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or name)


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolkit:
    """Makes a toolkit whose nvcc says that it is of a release and names its architectures; CUDA_HOME names it."""

    def make(release: str = "12.6", codes: str = "sm_60 sm_70 sm_80") -> Path:
        root = tmp_path / "toolkit"
        put(root, "nvvm/bin/cicc", "include/crt/host_config.h", "include/cccl/nv/target", "include/cuda_runtime.h")
        answer = f'case "$1" in --version) echo "release {release}, V{release}.1";; --list-gpu-code) echo {codes};; esac'
        put(root, "bin/nvcc", text=f"#!/bin/sh\n{answer}\n")
        (root / "bin" / "nvcc").chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", str(root))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        return root

    return make


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The wheels that torch requires, as they lie in site-packages."""
    root = tmp_path / "site-packages"
    put(root / "nvidia" / "cuda_runtime", "include/cuda_runtime.h", "lib/libcudart.so.12", text="of the wheel")
    put(root / "nvidia" / "cublas", *(f"include/{name}" for name in HEADERS))
    put(root / "nvidia" / "nccl", "lib/libnccl.so.2", "include/__init__.py")
    version = '#define NCCL_MAJOR 2\n#define NCCL_MINOR 26\n#define NCCL_PATCH 2\n#define NCCL_SUFFIX ""\n'
    put(root / "nvidia" / "nccl", "include/nccl.h", text=version)
    return root


def test_the_toolkit_first_and_the_wheels_for_what_it_lacks(tmp_path: Path, toolkit: Toolkit, packages: Path) -> None:
    root = toolkit()
    home = cuda_home.assemble(tmp_path / "build", "12.6", packages)
    assert (home.release, home.compiler) == ("12.6", root / "bin" / "nvcc")
    assert home.targets() == {60, 70, 80}
    assert not (tmp_path / "build" / "wheels").exists(), "pip was asked for what the toolkit has"
    assert (home.path / "include" / "cuda_runtime.h").resolve() == root / "include" / "cuda_runtime.h"
    assert (home.path / "lib64" / "libnccl.so").resolve() == packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    assert (home.path / "targets" / "x86_64-linux" / "lib" / "libcudart.so").exists()
    assert all((home.path / "include" / name).exists() for name in HEADERS)
    assert not (home.path / "include" / "__init__.py").exists()


def test_a_toolkit_of_another_major_version_is_not_taken(tmp_path: Path, toolkit: Toolkit, packages: Path) -> None:
    """CUDA 13 cannot generate code for sm_70, and no wheel of CUDA 12 brings an nvcc."""
    toolkit("13.0")
    with pytest.raises(SystemExit, match=r"no bin/nvcc, nvvm/bin/cicc of CUDA 12, .* or set CUDA_HOME to a toolkit"):
        cuda_home.assemble(tmp_path / "build", "12.6", packages)


def test_a_missing_library_is_named(tmp_path: Path, toolkit: Toolkit, packages: Path) -> None:
    toolkit()
    (packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2").unlink()
    with pytest.raises(SystemExit, match=r"no lib64/libnccl\.so of CUDA 12"):
        cuda_home.assemble(tmp_path / "build", "12.6", packages)


@pytest.fixture
def of_volta(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Today's environment passes for the volta stack."""
    monkeypatch.setattr(cuda_home, "torch_cuda", lambda: "12.6")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(packages))
    monkeypatch.setattr(fatbin, "read", lambda path: fatbin.Architectures(frozenset({50, 60, 70, 90}), frozenset()))


@pytest.mark.usefixtures("of_volta")
def test_architectures(tmp_path: Path, toolkit: Toolkit) -> None:
    toolkit()
    build = horovod_build.plan_gpu_build(tmp_path / "build")
    assert (build.architectures, build.nccl, build.cuda) == ((60, 70), "2.26.2", "12.6")
    assert horovod_build.plan_gpu_build(tmp_path / "build", (70,)).architectures == (70,)
    with pytest.raises(SystemExit, match=r"CUDA 12\.6 generates no code for sm_90; it does for sm_60, sm_70, sm_80"):
        horovod_build.plan_gpu_build(tmp_path / "build", (70, 90))


@pytest.mark.usefixtures("of_volta")
def test_what_the_build_is_told(tmp_path: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit()
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "MPI")
    build = horovod_build.plan_gpu_build(tmp_path / "build", (70,))
    mpi = MpiInstallation(prefix=Path("/opt/mpi"), version="Open MPI 5.0.11", origin="PATH")
    told = horovod_build.build_environment(mpi, build)
    assert told["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert (told["HOROVOD_BUILD_CUDA_CC_LIST"], told["CUDAARCHS"]) == ("70", "70")
    assert told["HOROVOD_CUDA_HOME"] == told["HOROVOD_NCCL_HOME"] == str(build.home.path)
    assert "HOROVOD_GPU_OPERATIONS" not in horovod_build.build_environment(mpi)
    keys = {horovod_build.cache_key(mpi, "2.7.1", gpu) for gpu in (None, build)}
    assert len(keys) == 2
    assert any(key.endswith("-cuda12.6-nccl2.26.2-sm70") for key in keys)


def test_sources_of_a_gpu_build_are_patched(tmp_path: Path) -> None:
    # The lines of Horovod 0.28.1.
    put(tmp_path, "CMakeLists.txt", text='set(CMAKE_CXX_STANDARD 14)\nset(CMAKE_CUDA_RUNTIME_LIBRARY "Static")  # Set to')
    put(tmp_path, "horovod/torch/CMakeLists.txt", text="set(CMAKE_CXX_STANDARD 14)")
    put(
        tmp_path,
        "horovod/common/ops/cuda/CMakeLists.txt",
        text="set(CMAKE_CUDA_STANDARD 11)\nset(CMAKE_CUDA_STANDARD_REQUIRED ON)",
    )
    horovod_build.patch_sources(tmp_path, "17", gpu=True)
    assert 'set(CMAKE_CUDA_RUNTIME_LIBRARY "Shared")' in (tmp_path / "CMakeLists.txt").read_text()
    assert "set(CMAKE_CUDA_STANDARD 17)" in (tmp_path / "horovod/common/ops/cuda/CMakeLists.txt").read_text()


def test_run_path_leaves_the_home_out() -> None:
    home = CudaHome(path=Path("/tmp/x/cuda"), release="12.6", compiler=Path("/usr/bin/nvcc"))
    build = horovod_build.GpuBuild(home=home, cuda="12.6", nccl="2.26.2", architectures=(70,))
    assert horovod_build._outside("/opt/mpi/lib:/tmp/x/cuda/lib64:", build) == ["/opt/mpi/lib"]
    assert horovod_build._outside("/opt/mpi/lib", None) == ["/opt/mpi/lib"]


def test_the_compiler_that_is_here(tmp_path: Path) -> None:
    """Compile one kernel against NCCL from a home of real parts; the file holds code for the architecture that was asked for."""
    if shutil.which("nvcc") is None and "CUDA_HOME" not in os.environ:
        pytest.skip("no nvcc here")
    try:
        home = cuda_home.assemble(tmp_path, cuda_home.torch_cuda(), Path(sysconfig.get_path("purelib")))
    except SystemExit as error:
        pytest.skip(str(error))
    number = max(number for number in home.targets() if number < 100)
    source = tmp_path / "kernel.cu"
    source.write_text("#include <cuda_fp16.h>\n#include <nccl.h>\n__global__ void twice(float *x) { *x *= 2.f; }\nvoid go() {\n"
                      "  twice<<<1, 1>>>(nullptr);\n  ncclUniqueId id;\n  ncclGetUniqueId(&id);\n}\n")  # fmt: skip
    options = [f"-gencode=arch=compute_{number},code=sm_{number}", "--cudart=shared", "-shared", "-Xcompiler=-fPIC", "-lnccl"]
    done = subprocess.run(
        [home.path / "bin" / "nvcc", *options, "-o", tmp_path / "kernel.so", source], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert fatbin.read(tmp_path / "kernel.so").machine_code == {number}
