"""What `--dry-run` shows of the binding, and what ranks are told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from results.binding import VARIABLE, bind_ranks
from results.topology import parse_cpu_list, read_topology
from tests.launch.support import trainscale


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_local_rank_is_shown_with_its_cores() -> None:
    expected = bind_ranks(read_topology(os.sched_getaffinity(0)), 2)
    said = trainscale("run", "resnet50", "--ranks-per-node", "2", "--dry-run").stdout
    assert [line.strip() for line in said.splitlines() if "local rank" in line] == [
        f"local rank {binding.local_rank}: {binding}" for binding in expected
    ]
    document = json.loads(trainscale("run", "resnet50", "--ranks-per-node", "2", "--dry-run", "--json").stdout)
    assert [tuple(binding["cpus"]) for binding in document["bindings"]] == [binding.cpus for binding in expected]
    assert document["environment"][VARIABLE] == "2"
    assert document["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_emulated_nodes_are_not_bound() -> None:
    document = json.loads(trainscale("run", "resnet50", "--nodes", "2", "--dry-run", "--json").stdout)
    assert document["bindings"] == []
    assert VARIABLE not in document["environment"]
    assert "binding        none: ranks share the cores" in trainscale("run", "resnet50", "--nodes", "2", "--dry-run").stdout


def test_more_ranks_than_cores_are_not_bound() -> None:
    ranks = len(parse_cpu_list(Path("/sys/devices/system/cpu/online").read_text())) + 1
    said = trainscale("run", "resnet50", "--ranks-per-node", str(ranks), "--dry-run").stdout
    assert f"it has fewer cores than ranks ({ranks})" in said
