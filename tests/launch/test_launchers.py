"""A launcher is a pure function from a job to tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.job import Host, Job
from launch.launchers import get_launcher
from launch.launchers.horovodrun import Horovodrun
from launch.launchers.local import Local
from launch.launchers.mpirun import Mpirun
from launch.launchers.srun import Srun
from launch.mpi import MpiInstallation
from results.yaml_file import ConfigurationError

MPI = MpiInstallation(prefix=Path("/opt/openmpi"), version="mpirun (Open MPI) 4.1.4", origin="PATH")
RANK = ["python", "-m", "training", "/runs/a b"]
TWO_HOSTS = [Host("n1", 4), Host("n2", 4)]


def job(**changes: object) -> Job:
    fields = {
        "tokens": RANK, "ranks": 8, "ranks_per_node": 4, "hosts": TWO_HOSTS, "environment": {"OMP_NUM_THREADS": "2", "A": "1"},
        "cores_per_rank": 2, "available_cores": 16,
    }  # fmt: skip
    return Job(**fields | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("launcher", "given", "tokens"),
    [
        (
            Mpirun(MPI, as_root=False), job(),
            "/opt/openmpi/bin/mpirun -np 8 --host n1:4,n2:4 --map-by ppr:4:node --bind-to none -x A -x OMP_NUM_THREADS",
        ),
        (
            Mpirun(MPI, as_root=True), job(hosts=[], ranks=2, ranks_per_node=1, one_host=True),
            "/opt/openmpi/bin/mpirun -np 2 --allow-run-as-root --host localhost:2 --map-by :OVERSUBSCRIBE --bind-to none "
            "-x A -x OMP_NUM_THREADS",
        ),
        (
            Srun(), job(),
            "srun --mpi=pmix --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=2 --cpu-bind=none --kill-on-bad-exit=1 "
            "--nodelist=n1,n2 --export=ALL",
        ),
        (Srun(), job(hosts=[], ranks=4), "srun --mpi=pmix --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=2 "
         "--cpu-bind=none --kill-on-bad-exit=1 --export=ALL"),
        (
            Srun(mpi_plugin="pmix_v4", options=["--container-image=/a b.sqsh"]), job(bind=False),
            ["srun", "--mpi=pmix_v4", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=2", "--cpu-bind=none",
             "--kill-on-bad-exit=1", "--nodelist=n1,n2", "--export=ALL", "--container-image=/a b.sqsh"],
        ),
        (
            Mpirun(MPI, as_root=False), job(bind=False),
            "/opt/openmpi/bin/mpirun -np 8 --host n1:4,n2:4 --map-by ppr:4:node:OVERSUBSCRIBE --bind-to none "
            "-x A -x OMP_NUM_THREADS",
        ),
        (Horovodrun(program="horovodrun"), job(), "horovodrun --gloo -np 8 -H n1:4,n2:4"),
        (
            Horovodrun(program="horovodrun"),
            job(environment={"A": "1", "OMP_NUM_THREADS": "2", "OMPI_MCA_btl_tcp_if_include": "ib0,ib1"}),
            ["horovodrun", "--mpi", "--network-interfaces", "ib0,ib1", "--binding-args", "--bind-to none --map-by slot",
             "-np", "8", "-H", "n1:4,n2:4"],
        ),
        (Local(), job(ranks=1, hosts=[]), ""),
    ],
)  # fmt: skip
def test_tokens(launcher: Mpirun | Srun | Horovodrun | Local, given: Job, tokens: str | list[str]) -> None:
    assert launcher.command(given) == [*(tokens.split() if isinstance(tokens, str) else tokens), *RANK]
    assert launcher.environment(given).items() >= {"OMP_NUM_THREADS": "2", "A": "1"}.items()


def test_more_ranks_than_slots_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigurationError, match="9 ranks do not fit into 8 slots on 2 hosts"):
        job(ranks=9).check()
    with pytest.raises(ConfigurationError, match="9 ranks on this host's 2 cores"):
        job(ranks=9, hosts=[], one_host=True, available_cores=2).check()


def test_ranks_that_share_cores_yield() -> None:
    busy = job(hosts=[], ranks=2, one_host=True, available_cores=2)
    assert Mpirun(MPI).environment(busy)["OMPI_MCA_mpi_yield_when_idle"] == "1"
    assert "OMPI_MCA_mpi_yield_when_idle" not in Mpirun(MPI).environment(job())


def test_unknown_launcher_and_malformed_host() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown launcher mpiru; did you mean mpirun\?"):
        get_launcher("mpiru")
    with pytest.raises(ConfigurationError, match="host n1:x: expected NAME or NAME:SLOTS"):
        Host.parse("n1:x", 1)
    with pytest.raises(ConfigurationError, match="launcher local starts one rank, not 2"):
        Local().command(job(ranks=2))
