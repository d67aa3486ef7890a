"""Rails evidence from a run directory into its record."""

import sys
from pathlib import Path

import pytest

from launch.emulation.cluster import Cluster
from launch.interconnect import load_interconnect
from launch.rails import add_evidence, asked_rails, least_exchange_bytes
from results import rails
from results.rails import AskedRails, DeviceCounter, NodeCounters
from results.record import RunRecord
from results.rundir import RunDirectory
from tests.launch.support import TINY, overrides
from tests.results.records import a_record

PARAMETERS = 25_600_000


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDirectory:
    """A finished run of two nodes with 10 steps of a ResNet-50's gradients, in fp32."""
    record = a_record(nodes=2, epochs=1, minutes=1)
    epoch = record.epochs[0].model_copy(update={"steps": 10})
    record = record.model_copy(update={"epochs": [epoch], "model_parameters": PARAMETERS})
    found = RunDirectory(tmp_path)
    (tmp_path / "logs").mkdir()
    found.record.write_text(record.model_dump_json())
    return found


def counted(run_dir: RunDirectory, device: str, exchanged_bytes: int) -> None:
    """Leave the samples of two nodes where `device` carried that much in each direction."""
    for path, scale in ((run_dir.rails_before, 0), (run_dir.rails_after, 1)):
        counter = DeviceCounter(
            device=device,
            source="infiniband-port-counters",
            received_bytes=5 + scale * exchanged_bytes,
            transmitted_bytes=7 + scale * exchanged_bytes,
        )
        rails.write_sample(path, [NodeCounters(host=host, time_s=scale, devices=[counter]) for host in ("node01", "node02")])


def test_evidence_goes_into_the_record_and_leaves_the_rest(run_dir: RunDirectory) -> None:
    before = RunRecord.model_validate_json(run_dir.record.read_text())
    counted(run_dir, "mlx5_0:1", 11 * 4 * PARAMETERS)
    found = add_evidence(run_dir, asked_rails(load_interconnect("edr-1")))
    after = RunRecord.model_validate_json(run_dir.record.read_text())
    assert found.verdict == "as-asked"
    assert after.rails == found
    assert after.model_copy(update={"rails": before.rails}) == before


def test_the_wrong_rail_marks_the_record(run_dir: RunDirectory) -> None:
    counted(run_dir, "mlx5_1:1", 11 * 4 * PARAMETERS)
    assert add_evidence(run_dir, asked_rails(load_interconnect("edr-1"))).verdict == "rails-differ"


def test_nccl_in_any_rank_log_counts(run_dir: RunDirectory) -> None:
    counted(run_dir, "mlx5_0:1", 11 * 4 * PARAMETERS)
    line = "node02:7:9 [1] NCCL INFO NET/Socket : Using [0]eno1:192.0.2.2<0>\n"
    run_dir.rank_log(5).write_text("epoch 1\n" + line)
    found = add_evidence(run_dir, asked_rails(load_interconnect("edr-1")))
    assert found.verdict == "rails-differ"
    assert "sockets over eno1" in found.reason
    assert found.nccl_lines == ["node02: NET/Socket : Using [0]eno1:192.0.2.2<0>"]


def test_a_run_without_samples_is_not_checked(run_dir: RunDirectory) -> None:
    assert add_evidence(run_dir, asked_rails(load_interconnect("edr-1"))).verdict == "not-checked"


def test_least_exchange_is_the_gradients_of_every_step(run_dir: RunDirectory) -> None:
    record = RunRecord.model_validate_json(run_dir.record.read_text())
    assert least_exchange_bytes(record) == 10 * 4 * PARAMETERS
    communication = record.spec.settings.communication.model_copy(update={"compression": "fp16"})
    settings = record.spec.settings.model_copy(update={"communication": communication})
    compressed = record.model_copy(update={"spec": record.spec.model_copy(update={"settings": settings})})
    assert least_exchange_bytes(compressed) == 10 * 2 * PARAMETERS
    assert least_exchange_bytes(record.model_copy(update={"restarts": 1})) is None
    assert least_exchange_bytes(record.model_copy(update={"epochs": []})) is None


@pytest.mark.parametrize(
    ("name", "source", "devices"),
    [
        ("edr-2", "infiniband-port-counters", ["mlx5_0:1", "mlx5_1:1"]),
        ("roce-1", "infiniband-port-counters", ["mlx5_0:1"]),
        ("emulated-2", "interface-counters", ["ib0", "ib1"]),
        ("loopback", "interface-counters", []),
    ],
)
def test_a_configuration_says_which_counters_tell(name: str, source: str, devices: list[str]) -> None:
    assert asked_rails(load_interconnect(name)) == AskedRails.model_validate({"source": source, "devices": devices})


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("interconnect", ["emulated-1", "emulated-2"])
def test_a_real_run_proves_its_rails(cluster: Cluster, tmp_path: Path, interconnect: str) -> None:
    words = ["--nodes", "2", "--host", "node01", "--host", "node02", "--interconnect", interconnect, "--runs", str(tmp_path)]
    done = cluster.run(
        "head",
        [sys.executable, "-m", "launch.cli", "run", "resnet50", *words, *overrides(*TINY, "local_batch_size=240"), "--json"],
        timeout_s=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = RunRecord.model_validate_json(done.stdout)
    assert record.spec.emulated_nodes
    assert record.rails.verdict == "as-asked", record.rails.reason
    devices = asked_rails(load_interconnect(interconnect)).devices
    carried = [rail for rail in record.rails.rails if rail.host == "node01" and rail.device in devices]
    # A ring of two ranks sends every gradient once: 2(n-1)/n = 1.
    gradients_bytes = 4 * record.model_parameters * sum(epoch.steps for epoch in record.epochs)
    assert sum(rail.transmitted_bytes for rail in carried) == pytest.approx(gradients_bytes, rel=0.1)
