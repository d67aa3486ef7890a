"""A site profile names devices, binding and containers once, and every launch follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.experiment import load_experiment, plan
from launch.interconnect import load_interconnect
from launch.job import read_hostfile
from launch.runner import Placement, make_job
from launch.site import SiteProfile, load_site
from results.spec import RunSpec
from results.yaml_file import ConfigurationError
from tests.launch.support import ROOT

SITES = ROOT / "slurm" / "sites"


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    experiment = load_experiment(ROOT / "experiments" / "demo.yaml").model_copy(
        update={"emulate_nodes": False, "nodes": [2], "ranks_per_node": 4, "interconnects": ["edr-2"]}
    )
    return plan(experiment, tmp_path, keep_seeds=False)[0]


def test_an_interconnect_takes_the_sites_first_rails_at_every_layer() -> None:
    site = load_site(SITES / "edr-v100.yaml")
    one, two = (site.fit(load_interconnect(name)).environment() for name in ("edr-1", "edr-2"))
    assert (one["NCCL_IB_HCA"], one["UCX_NET_DEVICES"], one["UCX_MAX_RNDV_RAILS"]) == ("=mlx5_0:1", "mlx5_0:1", "1")
    assert (two["NCCL_IB_HCA"], two["UCX_NET_DEVICES"]) == ("=mlx5_0:1,mlx5_2:1", "mlx5_0:1,mlx5_2:1")
    assert two["UCX_MAX_RNDV_RAILS"] == "2"
    assert {one["NCCL_SOCKET_IFNAME"], two["NCCL_SOCKET_IFNAME"]} == {"=eno1"}
    ethernet = site.fit(load_interconnect("ethernet")).environment()
    assert ethernet["OMPI_MCA_btl_tcp_if_include"] == ethernet["UCX_NET_DEVICES"] == "eno1"
    assert ethernet["OMPI_MCA_btl_tcp_flags"] == "send"  # two nodes exchange in both directions at once
    assert site.fit(load_interconnect("loopback")).devices == []
    assert "OMPI_MCA_btl_tcp_flags" not in load_interconnect("loopback").environment()


def test_more_rails_than_the_site_has() -> None:
    site = SiteProfile(name="small", devices={"infiniband": ["mlx5_0:1"]})
    with pytest.raises(ConfigurationError, match="edr-2 has 2 rails, but site small names 1 infiniband devices: mlx5_0:1"):
        site.fit(load_interconnect("edr-2"))


def test_a_job_follows_the_site(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    site = SiteProfile(
        container=["apptainer", "exec", "/i m.sif"], python="python3", cpus_per_rank=8, bind_ranks=False,
        devices={"infiniband": ["a:1", "b:1"]}, scratch=Path("/nvme"),
        environment={"NCCL_NET_GDR_LEVEL": "3", "UCX_MAX_RNDV_RAILS": "1"},
    )  # fmt: skip
    job = make_job(spec, Placement(site=site), Path("/runs/x"))
    assert job.tokens == ["apptainer", "exec", "/i m.sif", "python3", "-m", "training", "/runs/x"]
    assert (job.ranks, job.cores_per_rank, job.bind, job.one_host) == (8, 8, False, False)
    assert job.environment["NCCL_IB_HCA"] == "=a:1,b:1"
    assert job.environment["TRAINSCALE_SCRATCH"] == "/nvme"
    assert "TRAINSCALE_SCRATCH" not in make_job(spec, Placement(), Path("/runs/x")).environment
    assert (job.environment["NCCL_NET_GDR_LEVEL"], job.environment["UCX_MAX_RNDV_RAILS"]) == ("3", "1")


def test_more_nodes_than_the_allocation(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    with pytest.raises(ConfigurationError, match="2 nodes do not fit into an allocation of 1"):
        make_job(spec, Placement(), Path("/runs/x"))
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert make_job(spec, Placement(), Path("/runs/x")).ranks == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partion: gpu\n", r"site.yaml:1: unknown key partion; did you mean partition\?"),
        ('name: a\npartition: "gpu\\n#SBATCH --wrap=x"\n', r"site.yaml:2: partition: .*must be one line"),
        ("sbatch_options: [constraint=edr]\n", r"site.yaml:1: sbatch_options.0: .*--name=value"),
        ("name: a\nscratch: nvme/data\n", r"site.yaml:2: scratch: .*absolute path"),
        ("devices: {infinband: [a]}\n", r"site.yaml:1: devices"),
    ],
)
def test_faults_are_named_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_site(path)


def test_hostfile(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# the rack\nnode01 slots=4\n\nnode02 slots=4  # second\nnode03\n")
    assert read_hostfile(path) == ["node01:4", "node02:4", "node03"]
    path.write_text("node01 slots=4\nnode02 slot=4\n")
    with pytest.raises(ConfigurationError, match=r"hosts:2: expected NAME or NAME slots=N, found: node02 slot=4"):
        read_hostfile(path)
    path.write_text("# nobody\n")
    with pytest.raises(ConfigurationError, match="names no host"):
        read_hostfile(path)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_hostfile(tmp_path / "none")
