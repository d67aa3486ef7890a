"""The mission's largest size, 8 nodes of 4 ranks, through Slurm on one machine: a short job, each rank as lean as it can be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest

from launch.emulation import requirements
from launch.emulation.cluster import Cluster, ClusterPlan
from results import events
from results.record import RunRecord
from tests.launch.test_slurm_for_real import SITE, on_head, queue, record_of, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NODES, RANKS_PER_NODE = 8, 4
GIB = 2**30
NODE_MEMORY_MB = 6000
"""What Slurm lets the ranks of a node have: it counts the pages that they share once for each."""
LEAST_FREE_BYTES = 20 * GIB
LEAN = {
    "image_size": 32, "local_batch_size": 3, "max_epochs": 1, "evaluation.local_batch_size": 2, "precision": "fp32",
    "quality_target": {"accuracy": 0.0}, "schedule.warmup_epochs": 0, "optimizer.momentum": 0.0, "checkpoints": False,
    "input.source": "synthetic", "communication.fusion_threshold_bytes": 2**23,
}  # fmt: skip
"""No momentum, a small buffer for the exchange, and no input pipeline: the torch source's workers alone outgrew 24 GB."""


def an_experiment(folder: Path, data: Path) -> Path:
    path = folder / "experiment.yaml"
    workload = {"name": "resnet50", "preset": "digits", "data_dir": str(data), "settings": LEAN}
    document = {
        "name": "thirty-two", "system": "emulated cluster", "nodes": [NODES], "ranks_per_node": RANKS_PER_NODE,
        "interconnects": ["emulated-1"], "repeats": 1, "workloads": [workload],
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def ranks_memory_bytes() -> int:
    """Of all ranks; what they share is counted once."""
    total = 0
    for process in psutil.process_iter(["cmdline"]):
        if "training" in (process.info["cmdline"] or []):
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue
    return total


def test_thirty_two_ranks_through_slurm(digits_dir: Path, tmp_path: Path) -> None:
    if (why := requirements.missing()) is not None:
        pytest.skip(why)
    if psutil.virtual_memory().available < LEAST_FREE_BYTES:
        pytest.skip("32 ranks want 20 GiB of free memory")
    cluster = Cluster(tmp_path / "cluster")
    cluster.up(
        ClusterPlan(nodes=NODES, rails=2, rate="unshaped", cpus_per_node=RANKS_PER_NODE, memory_mb=NODE_MEMORY_MB), stay=False
    )
    try:
        record, peak_bytes = _run(cluster, an_experiment(tmp_path, digits_dir), tmp_path / "runs")
    finally:
        cluster.down()
    print(f"32 ranks: {peak_bytes / GIB:.1f} GiB in all, {peak_bytes / GIB / 32 * 1024:.0f} MiB each")
    assert (record.status, record.spec.ranks, len(record.hosts)) == ("finished", 32, NODES)
    assert (record.epochs[0].samples, record.evaluations[0].samples) == (1437, 360)
    assert record.rails.verdict == "as-asked"


def _run(cluster: Cluster, experiment: Path, runs: Path) -> tuple[RunRecord, int]:
    words = ["submit", experiment, "--runs", runs, "--site", SITE]
    submitted = on_head(cluster, sys.executable, "-m", "launch.cli", *words)
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    (run_dir,) = (path for path in runs.iterdir() if path.is_dir())
    peaks = [0]

    def over() -> bool:
        peaks.append(ranks_memory_bytes())
        return (run_dir / "record.json").exists()

    until(over, timeout_s=900)
    until(lambda: not queue(cluster))  # the launcher adds what the rails carried when the ranks have gone
    if record_of(run_dir).status == "finished":
        assert any(event["event"] == "run_stop" for event in events.read(run_dir))
    return record_of(run_dir), max(peaks)
