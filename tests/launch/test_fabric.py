"""`trainscale fabric`: what is asked, what is started, and real measurements on this host and on the emulated cluster."""

import json
import sys
from pathlib import Path

import pytest

from launch import fabric
from launch.emulation.cluster import Cluster
from launch.interconnect import load_interconnect
from launch.runner import Placement
from launch.site import SiteProfile
from results.fabric import Expectation, FabricResult
from results.yaml_file import ConfigurationError
from tests.launch.support import ROOT, trainscale

QUICK = ["--smallest", "4096", "--largest", "262144", "--seconds", "0.05"]


def test_an_expectation_is_a_share_of_the_configurations_rate() -> None:
    found = fabric.expectation("90%", None, load_interconnect("edr-2"))
    assert found == Expectation(share=0.9, line_rate_bits_per_s=1e11, rails=2)
    assert fabric.expectation("75 %", "25gbit", load_interconnect("ethernet")) == Expectation(
        share=0.75, line_rate_bits_per_s=2.5e10, rails=1
    )
    assert fabric.expectation(None, None, load_interconnect("edr-1")) is None


@pytest.mark.parametrize(
    ("share", "rate", "interconnect", "why"),
    [
        ("0.9", None, "edr-1", "write a percentage"),
        ("190%", None, "edr-1", "write a percentage"),
        ("most%", None, "edr-1", "write a percentage"),
        ("90%", None, "ethernet", "states no line rate"),
        ("90%", "fast", "edr-1", "not a rate"),
        (None, "100gbit", "edr-1", "does nothing without --expect"),
    ],
)
def test_a_wrong_expectation_is_refused_in_one_line(share: str | None, rate: str | None, interconnect: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        fabric.expectation(share, rate, load_interconnect(interconnect))
    assert "\n" not in str(raised.value)


def test_ranks_are_started_as_training_starts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    site = SiteProfile(devices={"infiniband": ["mlx5_7:1"]}, container=["apptainer", "exec", "x.sif"], python="python3")
    placement = Placement(hosts=["a:4", "b:4"], site=site)
    job = fabric.make_job(placement, placement.interconnect("edr-1"), 4, tmp_path)
    assert job.tokens == ["apptainer", "exec", "x.sif", "python3", "-m", "training.fabric", str(tmp_path)]
    assert (job.ranks, job.ranks_per_node, job.one_host) == (8, 4, False)
    assert job.environment["NCCL_IB_HCA"] == "=mlx5_7:1"
    assert job.environment["NCCL_DEBUG"] == "INFO"


def test_an_allocation_gives_the_number_of_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "8")
    job = fabric.make_job(Placement(launcher="srun"), load_interconnect("edr-1"), 4, tmp_path)
    assert (job.ranks, job.one_host) == (32, False)
    assert job.tokens[0] == sys.executable


def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path) -> None:
    for arguments, why in (
        ([], "at least two ranks"),
        (["--ranks-per-node", "2", "--expect", "90%", "--line-rate", "1gbit"], "name at least two hosts"),
        (["--ranks-per-node", "2", "--smallest", "8192", "--largest", "4096"], "must be below"),
        (["--interconnect", "edr3", "--ranks-per-node", "2"], "unknown interconnect edr3"),
    ):
        done = trainscale("fabric", *arguments, "--runs", tmp_path)
        assert done.returncode == 2
        assert why in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_two_ranks_on_this_host(tmp_path: Path) -> None:
    done = trainscale("fabric", "--ranks-per-node", "2", *QUICK, "--runs", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    found = FabricResult.model_validate_json(done.stdout)
    assert [point.size_bytes for point in found.measurement.allreduce] == [4096, 16384, 65536, 262144]
    assert all(point.fastest_s <= point.seconds_s for point in found.measurement.allreduce)
    assert [point.size_bytes for point in found.measurement.point_to_point] == [8, 4096, 16384, 65536, 262144]
    assert all(point.inside_node for point in found.measurement.point_to_point)
    assert found.measurement.ranks == 2
    folder = next((tmp_path / "fabric").iterdir())
    assert FabricResult.model_validate_json((folder / "fabric.json").read_text()) == found
    assert json.loads((folder / "command.json").read_text())["tokens"] == found.command
    assert (folder / "fabric.svg").stat().st_size > 0


def test_ranks_that_fail_give_one_line_with_the_cause(tmp_path: Path) -> None:
    done = trainscale("fabric", "--ranks-per-node", "2", *QUICK, "--runs", tmp_path, OMPI_MCA_coll="nothing")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "log: " in done.stderr


def on_cluster(cluster: Cluster, node: str, *arguments: str, timeout_s: float = 120) -> tuple[int, str, str]:
    done = cluster.run(node, [sys.executable, "-m", "launch.cli", "fabric", *arguments], timeout_s=timeout_s)
    return done.returncode, done.stdout, done.stderr


HOSTS = [word for number in (1, 2, 3, 4) for word in ("--host", f"node0{number}")]


@pytest.mark.cluster
@pytest.mark.parametrize("interconnect", ["emulated-1", "emulated-2"])
def test_rails_of_the_emulated_cluster(cluster: Cluster, tmp_path: Path, interconnect: str) -> None:
    assert Path.cwd() == ROOT
    sizes = ["--smallest", "65536", "--largest", str(2**20), "--seconds", "0.2"]
    status, printed, errors = on_cluster(
        cluster, "head", "--interconnect", interconnect, *HOSTS, *sizes, "--expect", "10%", "--runs", str(tmp_path), "--json"
    )
    assert status == 0, printed + errors
    found = FabricResult.model_validate_json(printed)
    assert found.emulated_nodes
    assert found.evidence.verdict == "as-asked"
    # Nothing passes a shaped rail faster than its rate, but for 256 kB after a pause.
    assert found.measurement.allreduce[-1].busbw_bits_per_s(4) < 200e6 * len(found.asked.devices) * 1.2
    pairs = {point.hosts for point in found.measurement.point_to_point}
    assert pairs == {("node01", "node02"), ("node02", "node03"), ("node03", "node04"), ("node04", "node01")}


@pytest.mark.cluster
def test_a_fabric_below_its_class_fails_the_check(cluster: Cluster, tmp_path: Path) -> None:
    sizes = ["--smallest", "65536", "--largest", str(2**20), "--seconds", "0.1"]
    status, printed, _ = on_cluster(
        cluster,
        "head",
        "--interconnect",
        "emulated-1",
        *HOSTS[:4],
        *sizes,
        "--expect",
        "90%",
        "--line-rate",
        "1gbit",
        "--runs",
        str(tmp_path),
    )
    assert status == 1
    assert "Failed: busbw" in printed


@pytest.mark.cluster
def test_a_rail_that_is_cut_ends_the_measurement(cluster: Cluster, tmp_path: Path) -> None:
    try:
        cluster.set_rate("cut", ["node02"], ["ib0"])
        status, _, errors = on_cluster(
            cluster, "head", "--interconnect", "emulated-1", *HOSTS[:4], *QUICK, "--runs", str(tmp_path)
        )
    finally:
        cluster.set_rate("200mbit")
    assert status == 1
    assert len(errors.strip().splitlines()) == 1
    assert "log: " in errors


@pytest.mark.cluster
def test_a_setting_that_moves_traffic_to_another_rail_is_found_out(cluster: Cluster, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("launcher: mpirun\nranks_per_node: 1\nenvironment: {OMPI_MCA_btl_tcp_if_include: ib1}\n")
    sizes = ["--smallest", "65536", "--largest", str(2**20), "--seconds", "0.1"]
    launch = ["--site", str(site), "--interconnect", "emulated-1", *HOSTS[:4], "--expect", "10%"]
    status, printed, errors = on_cluster(cluster, "head", *launch, *sizes, "--runs", str(tmp_path))
    assert status == 1, errors
    assert "Failed: the rails differ: on node01, ib1 exchanged" in printed
