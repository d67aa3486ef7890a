"""Faults that Slurm does not see, for real on emulated nodes: no finished run is lost, and each ends with its cause."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from launch.emulation.cluster import Cluster
from tests.launch.test_slurm_for_real import SITE, experiment, happened, on_head, processes, queue, record_of, trainscale, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
ONE, TWO = (f"resnet50-digits-n{nodes}x1-emulated-1-r1" for nodes in (1, 2))
HOSTS = ["--host", "node01:1", "--host", "node02:1"]
CLI = (sys.executable, "-m", "launch.cli")


@contextmanager
def started(cluster: Cluster, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`trainscale` on the login node, which goes on beside the test and does not outlive it."""
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    command = cluster.command("head", [str(word) for word in (*CLI, *arguments)])
    process = subprocess.Popen(
        command, env=cluster.environment | {"PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def the_command_itself(process: subprocess.Popen[str]) -> psutil.Process:
    """Below whatever enters the node's namespaces."""
    own = psutil.Process(process.pid)
    return next(found for found in (own, *own.children(recursive=True)) if found.cmdline()[:3] == list(CLI))


def finished_at_ns(run_dir: Path) -> int:
    return (run_dir / "record.json").stat().st_mtime_ns


def test_a_sweep_killed_and_called_again_beside_another(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    """What was finished stays as it is, what was under way goes on, and two sweeps at once do nothing twice."""
    runs = tmp_path / "runs"
    path = experiment(tmp_path, few_digits_dir, nodes=[1, 2], epochs=4, target=0.01)
    words = ["sweep", path, "--runs", runs, *HOSTS]
    with started(cluster, *words) as process:
        until(lambda: (runs / ONE / "record.json").exists() and happened(runs / TWO, "run_start"))
        the_command_itself(process).kill()
        until(lambda: not processes(runs / TWO))
    kept_ns = finished_at_ns(runs / ONE)
    assert not (runs / TWO / "record.json").exists()
    with started(cluster, *words) as first, started(cluster, *words) as second:
        told = [process.communicate(timeout=240)[0] for process in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0], told
    assert sum("waiting for it" in text for text in told) == 1
    assert [sum(f"{left} left to do" in text for text in told) for left in (1, 0)] == [1, 1]
    assert finished_at_ns(runs / ONE) == kept_ns
    assert record_of(runs / TWO).status == "finished"
    assert happened(runs / TWO, "process_start") == 2
    assert not processes(runs)


def test_a_full_run_folder_loses_no_finished_run(
    new_cluster: Callable[[int], Cluster], few_digits_dir: Path, tmp_path: Path
) -> None:
    """The first run fits, the checkpoint of the second does not: nodes and this host see the same small file system."""
    runs = tmp_path / "small"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", str(runs)], check=True)
    try:
        small = new_cluster(2)
        without = tmp_path / "without"
        without.mkdir()
        path = experiment(without, few_digits_dir, nodes=[1])
        path.write_text(path.read_text().replace('"max_epochs"', '"checkpoints": false, "max_epochs"'))
        assert on_head(small, *CLI, "sweep", path, "--runs", runs, "--host", "node01:1").returncode == 0
        kept = (runs / ONE / "record.json").read_bytes()
        done = on_head(small, *CLI, "sweep", experiment(tmp_path, few_digits_dir, nodes=[2]), "--runs", runs, *HOSTS)
        assert done.returncode == 4
        failed = record_of(runs / TWO)
        assert failed.status == "failed"
        assert "a checkpoint could not be written" in failed.failure.message
        assert "free space, or --set checkpoints=false" in failed.failure.message
        assert failed.failure.message in done.stdout

        room = shutil.disk_usage(runs).free - 2**20
        with (runs / "ballast").open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, room)
        done = on_head(small, *CLI, "sweep", tmp_path / "experiment.yaml", "--runs", runs, *HOSTS)
        assert done.returncode == 2
        assert "a run needs 64; free space or choose another --runs folder" in done.stderr
        assert (runs / ONE / "record.json").read_bytes() == kept
        assert (runs / TWO / "record.json").exists() or list(runs.glob(f"{TWO}.attempt-1/record.json"))
        (runs / "ballast").unlink()
        assert on_head(small, *CLI, "report", runs).returncode == 0
    finally:
        subprocess.run(["umount", "--lazy", str(runs)], check=True)


def test_ssh_that_asks_for_a_password_is_one_line(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    """Even where a program stands ready that would ask the user in a window."""
    asked = tmp_path / "asked"
    window = tmp_path / "askpass"
    window.write_text(f"#!/bin/sh\ntouch {asked}\nsleep 600\n")
    window.chmod(0o755)
    password_only = ("PubkeyAuthentication=no", "PasswordAuthentication=yes", "PermitRootLogin=yes")
    with sshd_with(cluster, "node02", *(word for option in password_only for word in ("-o", option))):
        words = ["run", "resnet50", "--nodes", "2", "--interconnect", "emulated-1", "--data-dir", few_digits_dir]
        done = on_head(
            cluster, *CLI, *words, "--runs", tmp_path / "runs", *HOSTS,
            SSH_ASKPASS=str(window), DISPLAY=":0", SSH_ASKPASS_REQUIRE="force",
            PRTE_MCA_plm_ssh_args="-o BatchMode=no",  # the cluster's own settings would not ask anyhow
        )  # fmt: skip
    assert done.returncode == 4
    told = done.stdout.splitlines()[-1]
    assert "no rank could be started on node02: " in told
    assert "Permission denied" in told
    assert "`ssh node02 true` must work without a question" in told
    assert not asked.exists()


@contextmanager
def sshd_with(cluster: Cluster, host: str, *options: str) -> Iterator[None]:
    """Meanwhile sshd of that host has other options."""

    def restart(*options: str) -> None:
        running = on_host("cat", "/run/sshd/sshd.pid").stdout.strip()
        on_host("kill", running)
        until(lambda: on_host("kill", "-0", running).returncode != 0)
        done = on_host(str(shutil.which("sshd", path="/usr/sbin:/sbin")), "-f", str(cluster.state.etc / "sshd_config"), *options)
        assert done.returncode == 0, done.stderr

    def on_host(*command: str) -> subprocess.CompletedProcess[str]:
        return cluster.run(host, command)

    restart(*options)
    try:
        yield
    finally:
        restart()


def test_a_host_that_goes_down_under_mpirun_is_named(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    path = experiment(tmp_path, few_digits_dir, nodes=[2], epochs=200, target=1.0, batch=6)
    with started(cluster, "sweep", path, "--runs", runs, *HOSTS) as process:
        until(lambda: happened(runs / TWO, "checkpoint"))
        cluster.power_off("node02")
        try:
            told, _ = process.communicate(timeout=150)
        finally:
            cluster.power_on("node02")
    assert process.returncode in (4, 5)
    assert "node02" in record_of(runs / TWO).failure.message, told
    until(lambda: not processes(runs / TWO))


def test_a_rank_that_hangs_is_named_with_its_host(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    """It lives as far as its launcher knows, and answers nobody."""
    runs = tmp_path / "runs"
    path = experiment(tmp_path, few_digits_dir, nodes=[2], epochs=200, target=1.0, batch=6)
    trainscale(cluster, "submit", path, "--runs", runs, "--site", SITE)
    until(lambda: happened(runs / TWO, "progress"))
    victim = next(process for process in processes(runs / TWO) if process.environ()["SLURM_PROCID"] == "1")
    host = victim.environ()["SLURMD_NODENAME"]
    os.kill(victim.pid, signal.SIGSTOP)
    until(lambda: not queue(cluster), timeout_s=200)
    assert not processes(runs / TWO)
    record = record_of(runs / TWO)
    assert record.status == "failed"
    assert f"rank 1 on {host} is gone" in record.failure.message
    assert record.failure.rank == 1


def test_each_node_stages_the_data_to_its_own_scratch(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(SITE.read_text() + f"scratch: {cluster.state.scratch}\n")
    runs = tmp_path / "runs"
    path = experiment(tmp_path, few_digits_dir, nodes=[2])
    trainscale(cluster, "submit", path, "--runs", runs, "--site", site, "--wait")
    record = record_of(runs / TWO)
    assert record.status == "finished"
    assert len({copy.host for copy in record.staging}) == 2
    for copy in record.staging:
        assert copy.copied
        assert copy.path.is_relative_to(cluster.state.scratch)
        found = cluster.run(copy.host, ["find", "-L", str(copy.path), "-name", "*.jp*g"]).stdout.splitlines()
        assert len(found) == 83 + 31
    trainscale(cluster, "submit", path, "--runs", tmp_path / "again", "--site", site, "--wait")
    hosts = {copy.host for copy in record.staging}
    assert all(not copy.copied for copy in record_of(tmp_path / "again" / TWO).staging if copy.host in hosts)
