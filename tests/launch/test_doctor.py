"""The doctor on this machine, and on ones whose parts do not fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch import doctor
from launch.doctor import Finding
from tests.launch.support import trainscale


def by_part(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.part: finding for finding in findings}


def test_this_machine_is_ready() -> None:
    done = trainscale("doctor", "--json")
    findings = {row["part"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert findings["horovod"]["level"] == "ok"
    assert "mpi" in findings["horovod"]["found"]
    assert all(row["remedy"] for row in findings.values() if row["level"] != "ok")


def with_answers(monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[dict[str, Any] | None, str]]) -> dict[str, Finding]:
    """The findings when the probes' processes answer so."""
    codes = {
        "torch": doctor.TORCH_PROBE,
        "mpi4py": doctor.MPI4PY_PROBE,
        "horovod": doctor.HOROVOD_PROBE,
        "dali": doctor.DALI_PROBE,
    }
    told = {codes[name]: answer for name, answer in answers.items()}
    real = doctor._probe
    monkeypatch.setattr(doctor, "_probe", lambda code: told[code] if code in told else real(code))
    return by_part(doctor.examine())


def test_two_mpis_in_one_process_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    horovod = {"mpi": True, "gloo": True, "nccl": False, "library": "/opt/openmpi/lib/libmpi.so.40"}
    found = with_answers(monkeypatch, {"horovod": (horovod, "")})["horovod"]
    assert found.level == "broken"
    assert "uses /opt/openmpi/lib/libmpi.so.40, mpi4py uses" in found.found
    assert "launch.horovod_build" in found.remedy


def test_mpi4py_of_another_mpi_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    mpi4py = {"version": "Open MPI v4.1.4", "library": "/usr/lib/x86_64-linux-gnu/libmpi.so.40"}
    found = with_answers(monkeypatch, {"mpi4py": (mpi4py, "")})["mpi4py"]
    assert found.level == "broken"
    assert "TRAINSCALE_MPI" in found.remedy


def test_horovod_of_another_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = "ImportError: mpi_lib_v2.so: undefined symbol: _ZNK2at6Tensor"
    found = with_answers(monkeypatch, {"horovod": (None, complaint)})["horovod"]
    assert (found.level, found.found) == ("broken", f"does not load: {complaint}")


def test_torch_without_kernels_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    v100 = {"version": "2.14.1+cu130", "architectures": ["sm_75", "sm_80"], "gpus": [[7, 0]]}
    found = with_answers(monkeypatch, {"torch": (v100, "")})["torch"]
    assert found.level == "broken"
    assert "holds no kernels for sm_70" in found.found


def test_the_other_apex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index's `apex` is a toolkit for Pyramid."""
    info = tmp_path / "apex-0.9.10.dev0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: apex\nVersion: 0.9.10.dev0\n")
    (info / "RECORD").write_text("apex/__init__.py,,\napex/lib/libapex.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = doctor._apex()
    assert found is not None
    assert (found.level, "not NVIDIA's" in found.found) == ("warning", True)


def test_setup_asks_for_no_apex() -> None:
    import ast

    from tests.launch.support import ROOT

    strings = {node.value for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(node, ast.Constant)}
    pins = (ROOT / "requirements").glob("*.txt")
    asked = [word for word in strings if isinstance(word, str)] + [
        line for path in pins for line in path.read_text().splitlines()
    ]
    assert not [word for word in asked if word.lower().startswith("apex")]
