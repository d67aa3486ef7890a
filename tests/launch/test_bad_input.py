"""What a user gets wrong is answered in one clear line, at once, with a non-zero exit status."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launch.runner import prepare_folder
from results.rundir import RunDirectory
from results.yaml_file import ConfigurationError
from tests.launch.support import ROOT, trainscale


def one_line(*arguments: str | Path, **environment: str) -> str:
    done = trainscale(*arguments, timeout_s=60, **environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "resnet"], "unknown workload resnet; did you mean resnet50?"),
        (["run", "resnet50", "--preset", "digit"], "unknown preset digit of resnet50; did you mean digits?"),
        (["run", "resnet50", "--set", "local_batchsize=3"], "unknown key local_batchsize; did you mean local_batch_size?"),
        (["run", "resnet50", "--set", "local_batch_size"], "expected KEY=VALUE"),
        (["run", "resnet50", "--interconnect", "edr-3"], "unknown interconnect edr-3; did you mean edr-"),
        (["run", "resnet50", "--nodes", "2", "--interconnect", "edr-1"], "name them with --host"),
        (["run", "resnet50", "--nodes", "4", "--host", "a:1", "--host", "b:1"], "4 ranks do not fit into 2 slots on 2 hosts"),
        (["sweep", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (["resume", "nowhere"], "nowhere holds no run"),
        (["data", "prepare", "digit"], "unknown data set digit; did you mean digits?"),
        (["status", "nowhere"], "nowhere is no folder"),
    ],
)
def test_one_clear_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    if arguments[0] == "run":
        arguments = [*arguments, "--runs", str(tmp_path)]
    assert words in one_line(*arguments)


def test_no_mpirun(tmp_path: Path) -> None:
    line = one_line("run", "resnet50", "--runs", tmp_path, "--dry-run", TRAINSCALE_MPI=str(tmp_path))
    assert "has no bin/mpirun" in line


def test_unknown_command() -> None:
    done = trainscale("swep")
    assert done.returncode == 2
    assert "no command swep; did you mean sweep?" in done.stderr


def test_a_read_only_run_folder_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"run folder /proc/runs/a cannot be written: .*--runs"):
        prepare_folder(RunDirectory(Path("/proc/runs/a")))


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small file system needs root")
def test_a_full_run_folder_is_named(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        with pytest.raises(ConfigurationError, match=r"has [01] MiB left, a run needs 64.*--runs"):
            prepare_folder(RunDirectory(tmp_path / "a"))
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_dry_run_prints_the_command_and_writes_nothing(tmp_path: Path) -> None:
    done = trainscale("run", "resnet50", "--nodes", "2", "--runs", tmp_path / "runs", "--dry-run")
    assert done.returncode == 0
    assert "-m training" in done.stdout
    assert "OMP_NUM_THREADS=1" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_help_and_planning_import_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['trainscale', 'sweep', 'experiments/demo.yaml', '--dry-run']\n"
        "from launch.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'horovod', 'nvidia.dali', 'training'} & set(sys.modules), 'heavy import'\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
