"""The doctor on this machine, and on ones whose parts do not fit together."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from launch.commands.doctor import command
from launch.doctor import Finding, Level, Question, on_this_node, stack, system
from launch.doctor.gpu import dotted
from launch.doctor.machine import Answer, Machine, Probed
from launch.mpi import find_mpi
from tests.launch.machines import FOUR_V100, HOROVOD, MPI4PY, TORCH, by_part, machine, write
from tests.launch.support import ROOT, trainscale

V100 = TORCH | {"gpus": [[7, 0]] * 4}


def test_this_machine_is_ready() -> None:
    done = trainscale("doctor", "--json")
    findings = {row["part"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert findings["horovod"]["level"] == "ok"
    assert "mpi" in findings["horovod"]["found"]
    assert "kernels for" in findings["torch"]["found"]
    assert all(row["remedy"] for row in findings.values() if row["level"] != "ok")


@pytest.mark.parametrize(("level", "status"), [("ok", 0), ("warning", 0), ("broken", 1)])
def test_the_exit_status(monkeypatch: pytest.MonkeyPatch, level: Level, status: int) -> None:
    found = [Finding(part="mpi", level="ok", found="5.0.11"), Finding(part="data", level=level, found="gone", remedy="mount it")]
    monkeypatch.setattr("launch.doctor.examine", lambda **asked: found)
    done = CliRunner().invoke(command, [])
    assert done.exit_code == status
    assert done.output == f"ok       mpi: 5.0.11\n{level:7}  data: gone\n         -> mount it\n"


@pytest.fixture
def four_v100(tmp_path: Path) -> Path:
    """A node of four V100 with a driver that runs CUDA 12."""
    write(tmp_path, {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01"})
    return tmp_path


def lines(root: Path, *, smi: str | Answer = FOUR_V100, **probes: Any) -> dict[str, Finding]:
    """What the doctor says of a node; mpi4py and Horovod use the MPI of this test's machine unless told otherwise."""
    library = str(find_mpi().prefix / "lib" / "libmpi.so.40")
    facts = {"torch": V100, "mpi4py": MPI4PY | {"library": library}, "horovod": HOROVOD | {"library": library}} | probes
    return by_part(on_this_node(machine(root, says={"nvidia-smi": smi}, **facts), Question(runs=root / "runs")))


def test_four_v100_and_the_volta_stack(four_v100: Path) -> None:
    found = lines(four_v100)
    assert {line.part for line in found.values() if line.level != "ok"} <= {"limits", "/dev/shm"}
    assert found["torch"].found == "2.7.1+cu126, 4 GPUs sm_70, kernels for sm_60 sm_70 sm_80"
    assert found["driver"].found == "535.183.01"
    assert found["gpus"].found == "4 Tesla V100-SXM2-16GB 16384 MiB"
    assert found["nccl"].found == "2.26.2 in torch and Horovod"
    assert "with mpi, gloo, nccl, cuda" in found["horovod"].found


def test_torch_without_kernels_for_the_gpu(four_v100: Path) -> None:
    torch = V100 | {"version": "2.14.1+cu130", "architectures": ["sm_75", "sm_80"]}
    found = lines(four_v100, torch=torch)["torch"]
    assert (found.level, found.found) == ("broken", "2.14.1+cu130 holds no kernels for sm_70")
    assert "requirements/volta.txt" in found.remedy


def test_torch_that_sees_no_gpu_though_the_driver_does(four_v100: Path) -> None:
    found = lines(four_v100, torch=V100 | {"gpus": []})["torch"]
    assert (found.level, found.found) == ("broken", "2.7.1+cu126 sees no GPU, though the driver lists 4")


def test_a_driver_that_is_too_old_for_the_cuda_of_torch(four_v100: Path) -> None:
    torch = V100 | {"cuda": "13.0", "architectures": ["sm_70"]}
    found = lines(four_v100, torch=torch)["driver"]
    assert (found.level, found.found) == ("broken", "535.183.01 is older than 580, which CUDA 13.0 of this torch needs")


def test_a_driver_that_does_not_answer(four_v100: Path) -> None:
    smi = Answer(status=18, output="Failed to initialize NVML: Driver/library version mismatch")
    found = lines(four_v100, smi=smi, torch=V100 | {"gpus": []})["driver"]
    assert (found.level, "Driver/library version mismatch" in found.found) == ("broken", True)


def test_no_driver_is_no_fault(tmp_path: Path) -> None:
    none = Answer(status=None, complaint="nvidia-smi is not installed")
    found = lines(tmp_path, smi=none, torch=TORCH)
    assert found["driver"] == Finding(part="driver", level="ok", found="no NVIDIA driver: training runs on the CPU")


@pytest.mark.parametrize(
    ("row", "told"),
    [("3, Tesla V100-SXM2-32GB, 535.183.01, 32768 MiB, Enabled", "different ones"),
     ("3, Tesla V100-SXM2-16GB, 535.183.01, 16384 MiB, Disabled", "without persistence mode")],
)  # fmt: skip
def test_gpus_that_are_not_alike_or_not_persistent(four_v100: Path, row: str, told: str) -> None:
    found = lines(four_v100, smi="\n".join([*FOUR_V100.splitlines()[:3], row]))["gpus"]
    assert (found.level, told in found.found) == ("warning", True)


@pytest.mark.parametrize(
    ("horovod", "level", "told"),
    [
        ({"nccl": 21805}, "warning", "torch has 2.26.2, Horovod was built for 2.18.5"),
        ({"nccl_loaded": 21805}, "broken", "and 2.18.5 is loaded (/env/nvidia/nccl/lib/libnccl.so.2)"),
        ({"nccl_libraries": ["/env/libnccl.so.2", "/usr/lib/libnccl.so.2"]}, "broken", "two in one process"),
    ],
)
def test_nccl_of_torch_and_of_horovod(four_v100: Path, horovod: dict[str, Any], level: str, told: str) -> None:
    library = str(find_mpi().prefix / "lib" / "libmpi.so.40")
    found = lines(four_v100, horovod=HOROVOD | {"library": library} | horovod)["nccl"]
    assert (found.level, told in found.found) == (level, True), found
    assert "--gpu" in found.remedy


def test_versions_of_nccl_in_words() -> None:
    # nccl.h: NCCL_VERSION(X,Y,Z) is X*1000+Y*100+Z up to 2.8, X*10000+Y*100+Z after it.
    assert [dotted(code) for code in (2708, 21903, 22602, 23007)] == ["2.7.8", "2.19.3", "2.26.2", "2.30.7"]


def test_horovod_without_nccl_on_gpus(four_v100: Path) -> None:
    library = str(find_mpi().prefix / "lib" / "libmpi.so.40")
    found = lines(four_v100, horovod=HOROVOD | {"library": library, "nccl": 0})["horovod"]
    assert (found.level, "without NCCL" in found.found, "--gpu" in found.remedy) == ("broken", True, True)


def test_two_mpis_in_one_process_are_named(tmp_path: Path) -> None:
    found = lines(tmp_path, horovod=HOROVOD | {"library": "/opt/openmpi/lib/libmpi.so.40"})["horovod"]
    assert found.level == "broken"
    assert "uses /opt/openmpi/lib/libmpi.so.40, mpi4py uses" in found.found
    assert "launch.horovod_build" in found.remedy


def test_mpi4py_of_another_mpi_is_named(tmp_path: Path) -> None:
    mpi4py = {"version": "Open MPI v4.1.4", "library": "/usr/lib/x86_64-linux-gnu/libmpi.so.40"}
    found = lines(tmp_path, mpi4py=mpi4py)["mpi4py"]
    assert found.level == "broken"
    assert "TRAINSCALE_MPI" in found.remedy


def test_horovod_of_another_torch(tmp_path: Path) -> None:
    complaint = "ImportError: mpi_lib_v2.so: undefined symbol: _ZNK2at6Tensor"
    found = lines(tmp_path, horovod=complaint)["horovod"]
    assert (found.level, found.found) == ("broken", f"does not load: {complaint}")


def test_dali_without_kernels_for_the_gpu() -> None:
    """The installed DALI, read as it is: today's has none for sm_70, the volta stack's none for a made-up sm_110."""
    real = Machine().probe(stack.DALI)
    if real.facts is None:
        pytest.skip(f"DALI: {real.complaint}")
    absent, present = (110, 70) if "cuda120" in dali_package() else (70, 80)
    found = stack.dali(real, [absent] * 4)
    assert (found.level, f"holds no kernels for sm_{absent}" in found.found) == ("broken", True), found
    assert stack.dali(real, [present]).level == "ok"


def dali_package() -> str:
    from importlib import metadata

    return next(name for name in metadata.packages_distributions()["nvidia"] if name.startswith("nvidia-dali"))


def distribution(folder: Path, name: str, version: str, files: list[str]) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_the_other_apex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index's `apex` is a toolkit for Pyramid."""
    distribution(tmp_path, "apex", "0.9.10.dev0", ["apex/__init__.py", "apex/lib/libapex.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    found = stack.apex(Machine())
    assert (found.level, "not NVIDIA's" in found.found) == ("warning", True)


@pytest.mark.parametrize(("complaint", "level"), [("", "ok"), ("ModuleNotFoundError: No module named 'amp_C'", "warning")])
def test_nvidias_apex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: str, level: str) -> None:
    distribution(tmp_path, "apex", "0.1", ["apex/__init__.py", "apex/optimizers/fused_sgd.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    probed = Probed(facts=None, complaint=complaint) if complaint else Probed(facts={})
    found = stack.apex(Machine(probe=lambda code: probed))
    assert (found.level, complaint in found.found) == (level, True)


def test_no_apex() -> None:
    assert (stack.apex(Machine()).level, "torch's fused" in stack.apex(Machine()).found) == ("ok", True)


def test_setup_asks_for_no_apex() -> None:
    import ast

    strings = {node.value for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(node, ast.Constant)}
    pins = (ROOT / "requirements").glob("*.txt")
    asked = [word for word in strings if isinstance(word, str)] + [
        line for path in pins for line in path.read_text().splitlines()
    ]
    assert not [word for word in asked if word.lower().startswith("apex")]


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    found = by_part(system.folders(tmp_path / "runs", None, tmp_path / "data"))
    assert found["scratch"].found.endswith(str(system.temporary()))
    missing = by_part(system.folders(tmp_path / "runs", tmp_path / "nvme", tmp_path / "data"))["scratch"]
    assert (missing.level, missing.found) == ("broken", f"{tmp_path}/nvme is missing")
    assert (found["runs"].level, found["data"].found) == ("ok", f"{tmp_path}/data is empty")
    (tmp_path / "data" / "train").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 2**40, 2**20))
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    found = by_part(system.folders(tmp_path / "mine" / "runs", tmp_path, tmp_path / "data"))
    assert (found["runs"].level, found["scratch"].level, found["data"].level) == ("broken", "warning", "ok")


@pytest.mark.parametrize(("says", "level"), [("yes\n", "ok"), ("no\n", "warning")])
def test_the_clock_of_this_machine(tmp_path: Path, says: str, level: str) -> None:
    found = system.clock(machine(tmp_path, says={"timedatectl show": says}))
    assert found is not None
    assert found.level == level
    assert system.clock(machine(tmp_path)) is None
