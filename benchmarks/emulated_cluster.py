"""On four emulated nodes: Horovod's allreduce beside the shaped line rate, two rails beside one, and what a launch costs.

Ratios of one run, so that the machine's own speed matters little; but the nodes share its cores, and other work on them lowers
the first two. Goals: at least 90% of the line rate on one rail, and two rails at least 1.7 times one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from launch.emulation import requirements
from launch.emulation.cluster import Cluster
from launch.emulation.plan import ClusterPlan
from results.fabric import FabricResult
from results.rates import show_rate
from results.record import LaunchTimes, RunRecord

PLAN = ClusterPlan(nodes=4, rails=2, rate="200mbit", cpus_per_node=4, memory_mb=4000)
LINE_RATE_BITS_PER_S = 200e6
SIZE_BYTES = 25_000_000
ROUNDS = 3
ROOT = Path(__file__).parents[1]
SITE = ROOT / "slurm" / "sites" / "emulated.yaml"
STRETCHES = {
    "queue": "queue_s", "start of ranks": "start_of_ranks_s", "imports": "imports_s", "initialization": "initialization_s",
    "opening data": "opening_data_s",
}  # fmt: skip


def main() -> None:
    """Print busbw on one rail and on two, their ratios, and the stretches of a launch; one line where there can be no cluster."""
    if (why := requirements.missing()) is not None:
        print(f"  skipped: {why}")
        return
    with tempfile.TemporaryDirectory(prefix="trainscale-bench-") as folder:
        cluster = Cluster(Path(folder) / "cluster")
        cluster.up(PLAN, stay=False)
        try:
            measure_rails(cluster, Path(folder))
            measure_launch(cluster, Path(folder))
        finally:
            cluster.down()


def measure_rails(cluster: Cluster, folder: Path) -> None:
    """Alternate between both interconnects, so that other work on the machine favours neither."""
    rounds = [[busbw_bits_per_s(cluster, name, folder) for name in ("emulated-1", "emulated-2")] for _ in range(ROUNDS)]
    one, two = (statistics.median(values) for values in zip(*rounds, strict=True))
    print(f"  Horovod allreduce of {SIZE_BYTES / 1e6:.0f} MB, 4 nodes x 1 rank, median of {ROUNDS}: one rail {show_rate(one)}")
    print(f"    {one / LINE_RATE_BITS_PER_S:.1%} of the line rate (goal: 90%); two rails {two / one:.2f} times one (goal: 1.7)")


def busbw_bits_per_s(cluster: Cluster, interconnect: str, folder: Path) -> float:
    """Bus bandwidth of one allreduce size, whose bytes went over the rails that were asked for."""
    hosts = [word for name in PLAN.node_names for word in ("--host", name)]
    sizes = ["--smallest", str(SIZE_BYTES // 4), "--largest", str(SIZE_BYTES)]
    result = FabricResult.model_validate_json(
        trainscale(cluster, "fabric", "--interconnect", interconnect, *hosts, *sizes, "--runs", folder, "--json")
    )
    if result.evidence.verdict != "as-asked":
        raise SystemExit(f"{interconnect}: {result.evidence.reason}")
    return result.measurement.allreduce[-1].busbw_bits_per_s(result.measurement.ranks)


def measure_launch(cluster: Cluster, folder: Path) -> None:
    """Submit one short run on all nodes and print where the time before its first step went."""
    cluster.set_rate("unshaped")  # the first exchange is part of initialization, and not what is asked here
    data, runs = folder / "digits", folder / "runs"
    trainscale(cluster, "data", "prepare", "digits", "--root", data)
    experiment = folder / "launch.yaml"
    settings = {"image_size": 32, "max_epochs": 1, "quality_target": {"accuracy": 0.01}, "schedule.warmup_epochs": 0}
    document = {
        "name": "launch", "system": "emulated cluster", "nodes": [PLAN.nodes], "ranks_per_node": 1, "repeats": 1,
        "interconnects": ["emulated-1"], "workloads": [{"name": "resnet50", "data_dir": str(data), "settings": settings}],
    }  # fmt: skip
    experiment.write_text(json.dumps(document))  # JSON is YAML
    trainscale(cluster, "submit", experiment, "--runs", runs, "--site", SITE, "--wait")
    (path,) = runs.glob("*/record.json")
    launch = RunRecord.model_validate_json(path.read_text()).launch or LaunchTimes()
    seconds_s = {words: getattr(launch, name) or 0.0 for words, name in STRETCHES.items()}
    parts = ", ".join(f"{words} {value:.1f} s" for words, value in seconds_s.items())
    print(f"  From sbatch to the first step, 4 nodes x 1 rank through srun: {parts}; together {sum(seconds_s.values()):.1f} s")


def trainscale(cluster: Cluster, *arguments: str | Path) -> str:
    """Output of `trainscale` on the login node."""
    command = [sys.executable, "-m", "launch.cli", *map(str, arguments)]
    inside = cluster.command("head", command)
    done = subprocess.run(inside, env=cluster.environment, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


if __name__ == "__main__":
    main()
