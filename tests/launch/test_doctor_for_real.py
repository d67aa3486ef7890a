"""The doctor on all nodes of an emulated cluster: through srun in an allocation, and through mpirun over ssh."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.emulation.cluster import Cluster
from tests.launch.support import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
SITE = ROOT / "slurm" / "sites" / "emulated.yaml"


def on_head(cluster: Cluster, *command: str | Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    return cluster.run("head", [str(word) for word in command], timeout_s=500, environment={"PATH": path})


def rows(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of the table by part."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in document["nodes"]:
        parts.setdefault(row["part"], []).append(row)
    return parts


def test_all_nodes_of_an_allocation(cluster: Cluster, tmp_path: Path) -> None:
    """The data lie on one node only, and a rail of the other is cut: these lines tell of it, and the rest is the same on both."""
    data = cluster.state.scratch / "data"
    for name in ("node01", "node02"):
        assert on_head(cluster, "ssh", name, "rm", "-rf", data).returncode == 0
    assert on_head(cluster, "ssh", "node01", "mkdir", "-p", data / "train").returncode == 0
    doctor = [sys.executable, "-m", "launch.cli", "doctor", "--all-nodes", "--site", SITE, "--runs", tmp_path, "--json"]
    doctor += ["--data-dir", data, "--interconnect", "emulated-2"]
    cluster.set_rate("cut", ["node02"], ["ib1"])
    try:
        done = on_head(cluster, "salloc", "--nodes=2", "--nodelist=node01,node02", *doctor)
    finally:
        cluster.set_rate("200mbit", ["node02"], ["ib1"])
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(done.stdout)
    found = rows(document)
    told = {(row["level"], tuple(row["nodes"])) for row in found["data"]}
    assert told == {("warning", ("node01",)), ("broken", ("node02",))}
    told = {(row["level"], row["found"], tuple(row["nodes"])) for row in found["interface ib1"]}
    assert ("broken", "down", ("node02",)) in told, told
    assert [(row["level"], row["nodes"]) for row in found["interface ib0"]] == [("ok", ["node01", "node02"])]
    assert [row["level"] for row in found["horovod"]] == ["ok"]
    assert [row["nodes"] for row in found["torch"]] == [["node01", "node02"]]
    here = {line["part"]: line for line in document["here"]}
    assert (here["ssh"]["level"], here["clocks"]["level"]) == ("ok", "ok")
    assert (here["slurm"]["level"], "main" in here["slurm"]["found"]) == ("ok", True)
    assert (here["srun"]["level"], "pmix" in here["srun"]["found"]) == ("ok", True)


def test_nodes_over_ssh_and_one_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    doctor = [sys.executable, "-m", "launch.cli", "doctor", "--all-nodes", "--runs", tmp_path]
    done = on_head(cluster, *doctor, "--host", "node01", "--host", "node02")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 nodes" in done.stdout
    assert "ssh: 2 nodes without a question" in done.stdout
    done = on_head(cluster, *doctor, "--host", "node01", "--host", "node77")
    assert done.returncode == 2
    assert "node77" in done.stderr
