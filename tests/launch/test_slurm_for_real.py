"""Every way to launch, and what goes wrong on clusters, for real: Slurm, ssh and training on emulated nodes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from launch.emulation.cluster import Cluster
from results import events
from results.record import RunRecord
from tests.launch.support import ROOT, TINY, overrides

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
STEPS = 7
"""In an epoch of `a_long_run`: 83 images, 6 on each of two ranks."""
SITE = ROOT / "slurm" / "sites" / "emulated.yaml"


def until(condition: Callable[[], object], timeout_s: float = 240.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition was never met"
        time.sleep(0.2)


def on_head(cluster: Cluster, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the login node, with this environment's `trainscale` first on PATH."""
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    return cluster.run("head", [str(word) for word in command], timeout_s=300, environment={"PATH": path, **environment})


def trainscale(cluster: Cluster, *arguments: str | Path) -> str:
    done = on_head(cluster, sys.executable, "-m", "launch.cli", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def experiment(
    folder: Path, data: Path, *, nodes: list[int], epochs: int = 2, target: float = 0.01, rails: int = 1, batch: int = 16,
    **keys: str,
) -> Path:  # fmt: skip
    path = folder / "experiment.yaml"
    settings = {
        "image_size": 32, "local_batch_size": batch, "max_epochs": epochs, "evaluation.local_batch_size": 31, "precision": "fp32",
        "quality_target": {"accuracy": target}, "schedule.warmup_epochs": 0,
    }  # fmt: skip
    document = {
        "name": "small", "system": "emulated cluster", "nodes": nodes, "ranks_per_node": 1,
        "interconnects": [f"emulated-{rails}"], "repeats": 1,
        "workloads": [{"name": "resnet50", "preset": "digits", "data_dir": str(data), "settings": settings}], **keys,
    }  # fmt: skip
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


def rows(cluster: Cluster, runs: Path) -> list[dict[str, object]]:
    return json.loads(trainscale(cluster, "status", runs, "--json"))


def queue(cluster: Cluster) -> list[str]:
    return on_head(cluster, "squeue", "--noheader", "--format=%A").stdout.split()


def record_of(run_dir: Path) -> RunRecord:
    return RunRecord.model_validate_json((run_dir / "record.json").read_text())


def happened(run_dir: Path, name: str) -> int:
    return sum(event["event"] == name for event in events.read(run_dir))


def within_an_epoch(run_dir: Path) -> bool:
    """The last that was heard of a run is one of the first steps of an epoch."""
    last = list(events.read(run_dir))[-1]
    return last["event"] == "progress" and last["step"] in (1, 2)


def kept_at_the_signal(run_dir: Path) -> tuple[int, int]:
    """Epoch and step of the checkpoint with which an interrupted run ended, within an epoch."""
    told = list(events.read(run_dir))
    place = next(number for number, event in enumerate(told) if event["event"] == "interrupted")
    kept = told[place - 1]
    assert kept["event"] == "checkpoint"
    assert 0 < kept["step"] < STEPS
    return kept["epoch"], kept["step"]


def processes(run_dir: Path) -> list[psutil.Process]:
    """Every process of that run, on whichever node."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "training" in process.cmdline() and str(run_dir) in process.cmdline():
                found.append(process)
    return found


@pytest.fixture
def a_long_run(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> Path:
    """Run directory of a run on two nodes that goes on and on, with a checkpoint behind it; its job ends with the test."""
    runs = tmp_path / "runs"
    path = experiment(tmp_path, few_digits_dir, nodes=[2], epochs=200, target=1.0, batch=6)
    trainscale(cluster, "submit", path, "--runs", runs, "--site", SITE)
    run_dir = runs / "resnet50-digits-n2x1-emulated-1-r1"
    until(lambda: happened(run_dir, "checkpoint"))
    yield run_dir
    on_head(cluster, "scancel", "--user=root")
    until(lambda: not queue(cluster))


def test_an_experiment_through_slurm(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    runs = tmp_path / "my runs"  # a space, as in homes on shared drives
    path = experiment(tmp_path, few_digits_dir, nodes=[1, 2])
    assert "to start at" in trainscale(cluster, "submit", path, "--runs", runs, "--site", SITE, "--test-only")
    assert not runs.exists()
    assert "2 jobs submitted" in trainscale(cluster, "submit", path, "--runs", runs, "--site", SITE)
    assert "0 jobs submitted" in trainscale(cluster, "submit", path, "--runs", runs, "--site", SITE)
    assert {row["status"] for row in rows(cluster, runs)} <= {"queued", "starting", "running", "planned", "finished"}
    waited = trainscale(cluster, "submit", path, "--runs", runs, "--site", SITE, "--wait", "--report")
    assert not queue(cluster)
    assert "resnet50-digits-n2x1-emulated-1-r1: target reached in" in waited
    assert "EMULATED" in waited
    assert "Bytes by rail" in waited
    records = [record_of(runs / str(row["run"])) for row in rows(cluster, runs)]
    assert [record.status for record in records] == ["finished", "finished"]
    assert all(record.spec.emulated_nodes for record in records)
    two = records[1]
    assert [len(record.hosts) for record in records] == [1, 2]
    assert two.rails.verdict == "as-asked"
    carried = {(rail.host, rail.device): rail.transmitted_bytes for rail in two.rails.rails}
    least_bytes = two.model_parameters * 4 * two.epochs[0].steps
    assert all(carried[host.hostname, "ib0"] >= least_bytes for host in two.hosts)
    assert all(carried[host.hostname, "ib1"] < least_bytes / 100 for host in two.hosts)


@pytest.mark.parametrize("way", ["mpirun over ssh", "horovodrun over ssh", "mpirun in a job", "srun in a job"])
def test_every_way_to_launch(cluster: Cluster, few_digits_dir: Path, tmp_path: Path, way: str) -> None:
    program, _, where = way.partition(" ")
    words = [
        "resnet50",
        "--launcher",
        program,
        "--interconnect",
        "emulated-1",
        "--data-dir",
        str(few_digits_dir),
        *overrides(*TINY),
    ]
    if where == "over ssh":
        hosts = tmp_path / "hosts"
        hosts.write_text("node01 slots=1\nnode02 slots=1\n")
        given = ["--nodes", "2", "--hostfile", str(hosts), "--runs", str(tmp_path / "runs"), "--run-id", "here"]
        trainscale(cluster, "run", *words, *given)
    else:
        script = ROOT / "slurm" / "train.sbatch"
        options = ["--nodes=2", "--ntasks-per-node=1", f"--chdir={tmp_path}"]
        submitted = on_head(cluster, "sbatch", *options, script, *words)
        assert submitted.returncode == 0, submitted.stderr
        until(lambda: not queue(cluster))
    (run_dir,) = (tmp_path / "runs").iterdir()
    record = record_of(run_dir)
    assert record.status == "finished"
    assert program in record.command[0]
    assert sorted(host.hostname for host in record.hosts) == ["node01", "node02"]
    assert (record.epochs[0].samples, record.evaluations[0].samples) == (83, 31)
    assert record.rails.verdict == "as-asked", record.rails.reason


def test_scancel_leaves_an_interrupted_run_and_no_process(cluster: Cluster, a_long_run: Path) -> None:
    """And a checkpoint of that step, from which the run goes on when it is submitted again."""
    (row,) = rows(cluster, a_long_run.parent)
    until(lambda: within_an_epoch(a_long_run))
    on_head(cluster, "scancel", str(row["job"]))
    until(lambda: not queue(cluster), timeout_s=60)
    until(lambda: not processes(a_long_run), timeout_s=10)
    (row,) = rows(cluster, a_long_run.parent)
    assert row["status"] == "interrupted"
    epoch, step = kept_at_the_signal(a_long_run)
    assert f"interrupted after step {step} of {STEPS} of epoch {epoch + 1}" in str(row["detail"])

    trainscale(cluster, "submit", a_long_run.parent.parent / "experiment.yaml", "--runs", a_long_run.parent, "--site", SITE)
    until(lambda: happened(a_long_run, "resumed"))
    resumed = next(event for event in events.read(a_long_run) if event["event"] == "resumed")
    assert (resumed["epoch"], resumed["step"]) == (epoch, step)


def test_a_killed_rank_is_named_with_its_host(cluster: Cluster, a_long_run: Path) -> None:
    victim = next(process for process in processes(a_long_run) if process.environ()["SLURM_PROCID"] == "1")
    host = victim.environ()["SLURMD_NODENAME"]
    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: not queue(cluster), timeout_s=60)
    assert not processes(a_long_run)
    (row,) = rows(cluster, a_long_run.parent)
    assert (row["status"], row["detail"]) == ("failed", f"rank 1 on {host} was ended by the system: Killed")


def test_a_lost_node_costs_no_run(cluster: Cluster, a_long_run: Path) -> None:
    """Its job is queued again, takes another node and goes on from the checkpoint."""
    job_before = rows(cluster, a_long_run.parent)[0]["job"]
    host = next(p for p in processes(a_long_run) if p.environ()["SLURM_PROCID"] == "1").environ()["SLURMD_NODENAME"]
    cluster.power_off(host)
    try:
        until(lambda: happened(a_long_run, "resumed"))
        (row,) = rows(cluster, a_long_run.parent)
        assert (row["status"], row["job"]) == ("running", job_before)
        resumed = next(event for event in events.read(a_long_run) if event["event"] == "resumed")
        assert resumed["epoch"] >= 1
        assert host not in {p.environ()["SLURMD_NODENAME"] for p in processes(a_long_run)}
    finally:
        cluster.power_on(host)


def test_the_signal_before_the_time_limit_queues_the_job_again(cluster: Cluster, a_long_run: Path) -> None:
    """It goes on from the step at which the signal came."""
    (row,) = rows(cluster, a_long_run.parent)
    until(lambda: within_an_epoch(a_long_run))
    on_head(cluster, "scancel", "--signal=USR1", "--batch", str(row["job"]))  # as Slurm does by --signal=B:USR1@120
    until(lambda: happened(a_long_run, "resumed"))
    resumed = next(event for event in events.read(a_long_run) if event["event"] == "resumed")
    assert (resumed["epoch"], resumed["step"]) == kept_at_the_signal(a_long_run)
    (row,) = rows(cluster, a_long_run.parent)
    assert row["status"] == "running"
    assert (a_long_run / "record.interrupted.json").exists()


def test_a_restart_of_slurmctld_disturbs_no_run(cluster: Cluster, a_long_run: Path) -> None:
    before = happened(a_long_run, "checkpoint")
    on_head(cluster, "scontrol", "shutdown", "slurmctld")
    until(lambda: on_head(cluster, "scontrol", "ping").returncode != 0)
    assert "slurm" in str(rows(cluster, a_long_run.parent)[0]["detail"]).lower()
    on_head(cluster, "/usr/sbin/slurmctld")
    until(lambda: on_head(cluster, "scontrol", "ping").returncode == 0)
    until(lambda: happened(a_long_run, "checkpoint") > before)
    (row,) = rows(cluster, a_long_run.parent)
    assert row["status"] == "running"
    assert queue(cluster) == [str(row["job"])]


def test_a_job_killed_for_memory_says_so(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("ranks_per_node: 1\nsbatch_options: [--mem=150M]\n")
    path = experiment(tmp_path, few_digits_dir, nodes=[1])
    trainscale(cluster, "submit", path, "--runs", tmp_path / "runs", "--site", site)
    until(lambda: not queue(cluster))
    (row,) = rows(cluster, tmp_path / "runs")
    assert row["status"] == "failed"
    assert "memory" in str(row["detail"])


def test_an_experiment_within_one_job(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    path = experiment(tmp_path, few_digits_dir, nodes=[1, 2], rails=2)
    runs, script = tmp_path / "runs", ROOT / "slurm" / "experiment.sbatch"
    options = ["--nodes=2", "--ntasks-per-node=1", f"--chdir={tmp_path}"]
    done = on_head(cluster, "sbatch", *options, script, path, "--runs", runs, TRAINSCALE_SITE=str(SITE))
    assert done.returncode == 0, done.stderr
    until(lambda: not queue(cluster))
    assert [(row["status"], row["epochs"]) for row in rows(cluster, runs)] == [("finished", 1), ("finished", 1)]
    two = record_of(runs / "resnet50-digits-n2x1-emulated-2-r1")
    assert two.rails.verdict == "as-asked", two.rails.reason
    assert two.command[0] == "srun"


def test_a_fabric_below_its_class_stops_a_submission(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    path = experiment(tmp_path, few_digits_dir, nodes=[1, 2], fabric_check="80%")
    cluster.set_rate("100mbit", rails=["ib0"])  # and emulated-1 states 200 Mbit/s
    try:
        submitted = json.loads(trainscale(cluster, "submit", path, "--runs", runs, "--site", SITE, "--json"))["submitted"]
        assert len(submitted) == 3
        until(lambda: not queue(cluster))
    finally:
        cluster.set_rate("200mbit", rails=["ib0"])
    for row in rows(cluster, runs):
        assert row["status"] == "planned"
        assert "the fabric check of emulated-1 failed: busbw" in str(row["detail"])
        assert "80% was expected" in str(row["detail"])
    assert not list(runs.rglob("events.jsonl"))


def test_a_sweep_checks_the_fabric_and_refuses_or_goes_on(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    runs, hosts = tmp_path / "runs", ["--host", "node01:1", "--host", "node02:1"]
    path = experiment(tmp_path, few_digits_dir, nodes=[2], fabric_check="60%")  # other work on the cores costs some
    words = ["sweep", path, "--runs", runs, *hosts]
    cluster.set_rate("100mbit", rails=["ib0"])
    try:
        done = on_head(cluster, sys.executable, "-m", "launch.cli", *words)
    finally:
        cluster.set_rate("200mbit", rails=["ib0"])
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "the fabric check of emulated-1 failed: busbw" in done.stderr
    assert "no run was started" in done.stderr
    assert not list(runs.rglob("events.jsonl"))
    assert "60% was expected" in trainscale(cluster, *words, "--report")
    assert record_of(runs / "resnet50-digits-n2x1-emulated-1-r1").status == "finished"
    assert len(list(runs.glob("fabric/emulated-1-*/fabric.json"))) == 2  # both stay, as evidence


def test_a_cut_rail_ends_the_run_within_two_minutes(cluster: Cluster, a_long_run: Path) -> None:
    host = next(p for p in processes(a_long_run) if p.environ()["SLURM_PROCID"] == "1").environ()["SLURMD_NODENAME"]
    cluster.set_rate("cut", [host], ["ib0"])
    try:
        until(lambda: not processes(a_long_run))
        until(lambda: not queue(cluster))
    finally:
        cluster.set_rate("200mbit", [host], ["ib0"])
    (row,) = rows(cluster, a_long_run.parent)
    assert row["status"] == "failed"
    told = re.search(r"nothing was done for (\d+) s .* ranks? .* live, so the network between them is gone", str(row["detail"]))
    assert told is not None, row["detail"]
    assert int(told[1]) <= 120


def test_an_unreachable_host_and_a_wrong_partition_are_one_line(cluster: Cluster, few_digits_dir: Path, tmp_path: Path) -> None:
    words = ["run", "resnet50", "--nodes", "2", "--interconnect", "emulated-1", "--data-dir", few_digits_dir, "--runs", tmp_path]
    done = on_head(cluster, sys.executable, "-m", "launch.cli", *words, "--host", "node01:1", "--host", "node77:1")
    assert done.returncode == 4
    assert "node77" in done.stdout.splitlines()[-1]
    site = tmp_path / "site.yaml"
    site.write_text("partition: mian\n")
    path = experiment(tmp_path, few_digits_dir, nodes=[1])
    done = on_head(cluster, sys.executable, "-m", "launch.cli", "submit", path, "--runs", tmp_path / "r", "--site", site)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert "there is no partition mian; did you mean main?" in done.stderr
