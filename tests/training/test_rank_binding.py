"""Ranks that bind themselves: as a launcher leaves them, in real runs, and what the record tells where it went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from results.binding import VARIABLE, Binding, bind_ranks
from results.record import RankBinding
from results.topology import parse_cpu_list, read_topology, show_cpu_list
from tests.launch.support import ROOT, TINY, overrides, trainscale
from training.binding import binding_notes, rank_binding
from training.process import RankPlace, bind, rank_place

CPU = torch.device("cpu")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_process_binds_itself_before_torch_whatever_its_launcher_did() -> None:
    """As a rank does: both ranks of a node, each started on the first core alone, as a launcher may leave them."""
    code = (
        "import os, sys\n"
        "from training.process import bind, rank_place\n"
        "place = bind(rank_place())\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert sorted(os.sched_getaffinity(0)) == list(place.binding.cpus)\n"
        "print(place.binding.cpus)\n"
    )
    cpus = sorted(os.sched_getaffinity(0))
    said = []
    for rank in range(2):
        variables = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}
        done = subprocess.run(
            ["taskset", "-c", str(cpus[0]), sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240,
            env=os.environ | variables | {VARIABLE: "2"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said == [f"{binding.cpus}\n" for binding in bind_ranks(read_topology(set(cpus)), 2)]
    assert said[0] != said[1]


def test_nothing_is_bound_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("bound"))
    assert bind(rank_place({}), {}).binding is None


def test_what_ran_elsewhere_is_told() -> None:
    asked = Binding(local_rank=0, cpus=(9000,), numa_nodes=(0,))  # no such core: what is found differs
    moved = rank_binding(RankPlace(rank=3, size=4, local_rank=0, binding=asked), CPU)
    assert (moved.asked_cpus, moved.found_cpus) == ("9000", show_cpu_list(os.sched_getaffinity(0)))
    stayed = RankBinding(rank=0, host="n1", asked_cpus="0-1", found_cpus="0-1")
    free = RankBinding(rank=1, host="n1", asked_cpus="", found_cpus="0-1")
    (note,) = binding_notes([stayed, free, moved])
    assert note.startswith("1 of 3 ranks did not stay where they were bound: rank 3 on")
    assert binding_notes([stayed, free]) == []


def test_a_gpu_other_than_the_one_near_by_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x86, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    near = Binding(local_rank=0, cpus=tuple(sorted(os.sched_getaffinity(0))), numa_nodes=(0,), gpu="0000:85:00.0")
    place = RankPlace(rank=0, size=1, local_rank=0, binding=near)
    (note,) = binding_notes([rank_binding(place, torch.device("cuda", 0))])
    assert "rank 0 on" in note
    assert "drives GPU 0000:86:00.0, but its cores are near 0000:85:00.0" in note
    facts.pci_bus_id = 0x85
    assert binding_notes([rank_binding(place, torch.device("cuda", 0))]) == []


@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun"])
def test_ranks_of_a_run_stay_on_cores_of_their_own(launcher: str, few_digits_dir: Path, tmp_path: Path) -> None:
    done = trainscale(
        "run", "resnet50", "--ranks-per-node", "2", "--launcher", launcher, "--input", "torch", "--data-dir", few_digits_dir,
        "--runs", tmp_path, "--run-id", "bound", "--json", *overrides(*TINY),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    first, second = record["bindings"]
    allowed = read_topology(os.sched_getaffinity(0))
    assert [first["asked_cpus"], second["asked_cpus"]] == [show_cpu_list(one.cpus) for one in bind_ranks(allowed, 2)]
    assert [first["found_cpus"], second["found_cpus"]] == [first["asked_cpus"], second["asked_cpus"]]
    assert not set(parse_cpu_list(first["found_cpus"])) & set(parse_cpu_list(second["found_cpus"]))
    assert not [note for note in record["notes"] if "bound" in note]
