"""The way to the other nodes: ssh, clocks, Slurm; and one table of all nodes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from launch.doctor import Finding, allocation, nodes, slurm
from launch.doctor.machine import Answer
from launch.site import SiteProfile
from results.yaml_file import ConfigurationError
from tests.launch.machines import by_part, machine
from tests.launch.support import trainscale

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"
UP = "Slurmctld(primary) at head is UP\n"
PLUGINS = "MPI plugin types are...\n\tcray_shasta\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n"
"""Of Slurm 22.05."""


def test_ssh_and_clocks(tmp_path: Path) -> None:
    """Asked at second 100 and answered at 102, so that a node's clock of 101 is right, and nothing below 1 s can be told."""
    ticks = itertools.chain.from_iterable(itertools.repeat((100.0, 102.0)))
    answers = {f"{SSH} node01 date": "101.000000000\n", f"{SSH} node02 date": "102.500000000\n"}
    found = by_part(nodes.findings(machine(tmp_path, says=answers), ["node01"], needed=True, now=lambda: next(ticks)))
    assert (found["ssh"].level, found["ssh"].found) == ("ok", "1 nodes without a question")
    assert (found["clocks"].level, found["clocks"].found) == ("ok", "1 nodes within 1.00 s of this one")
    found = by_part(nodes.findings(machine(tmp_path, says=answers), ["node02"], needed=True, now=lambda: next(ticks)))
    assert found["clocks"].level == "ok"  # 1.5 s ahead, of which a whole second may be the way


def test_a_clock_that_is_off(tmp_path: Path) -> None:
    answers = {f"{SSH} node01 date": "100.0\n", f"{SSH} node02 date": "161.0\n"}
    found = by_part(nodes.findings(machine(tmp_path, says=answers), ["node01", "node02"], needed=True, now=lambda: 100.0))
    assert (found["clocks"].level, found["clocks"].found) == ("warning", "differ from this node's: node02 +61.0 s")


@pytest.mark.parametrize(("needed", "level"), [(True, "broken"), (False, "warning")])
def test_a_node_that_asks_for_a_password(tmp_path: Path, needed: bool, level: str) -> None:
    refused = Answer(status=255, complaint="root@node02: Permission denied (publickey,password).")
    answers = {f"{SSH} node01 date": "100.0\n", f"{SSH} node02 date": refused}
    found = by_part(nodes.findings(machine(tmp_path, says=answers), ["node01", "node02"], needed=needed, now=lambda: 100.0))
    assert found["ssh"].level == level
    assert found["ssh"].found == "1 of 2 not reached: node02: root@node02: Permission denied (publickey,password)."
    assert "ssh-copy-id node02" in found["ssh"].remedy
    assert found["clocks"].level == "ok"


def test_the_nodes_of_an_allocation(tmp_path: Path) -> None:
    told = machine(
        tmp_path, says={"scontrol show hostnames node[01-02]": "node01\nnode02\n"}, environ={"SLURM_JOB_NODELIST": "node[01-02]"}
    )
    assert nodes.names(told, []) == ["node01", "node02"]
    assert nodes.names(told, ["node07:4"]) == ["node07"]
    assert nodes.names(machine(tmp_path), []) == []


def test_slurm_with_its_plugins(tmp_path: Path) -> None:
    says = {"scontrol ping": UP, "sinfo": "gpu|8|up\nshort|2|down\n", "srun --mpi=list": PLUGINS}
    found = by_part(slurm.findings(machine(tmp_path, says=says), SiteProfile(partition="gpu")))
    assert (found["slurm"].found, found["srun"].found) == (
        "gpu: 8 nodes, up; short: 2 nodes, down",
        "MPI plug-ins cray_shasta, none, pmi2, pmix, pmix_v4",
    )


@pytest.mark.parametrize(("launcher", "level"), [("srun", "broken"), ("mpirun", "warning")])
def test_srun_without_pmix(tmp_path: Path, launcher: str, level: str) -> None:
    says = {"scontrol ping": UP, "sinfo": "gpu|8|up\n", "srun --mpi=list": "MPI plugin types are...\n\tnone\n\tpmi2\n"}
    site = SiteProfile(launcher=launcher, partition="main")  # type: ignore[arg-type]
    found = by_part(slurm.findings(machine(tmp_path, says=says), site))
    assert (found["srun"].level, found["srun"].found) == (level, "has no MPI plug-in pmix, only none, pmi2")
    assert (found["slurm"].level, found["slurm"].found) == ("broken", "no partition main")
    assert "gpu" in found["slurm"].remedy


def test_slurm_that_does_not_answer_and_none_at_all(tmp_path: Path) -> None:
    down = machine(tmp_path, says={"scontrol ping": Answer(status=1, output="Slurmctld(primary) at head is DOWN\n")})
    (found,) = slurm.findings(down, SiteProfile())
    assert (found.level, found.found) == ("warning", "installed, but no controller answers: Slurmctld(primary) at head is DOWN")
    (found,) = slurm.findings(machine(tmp_path), SiteProfile())
    assert found.level == "ok"


def test_all_nodes_in_one_table(tmp_path: Path) -> None:
    """What is the same everywhere is one row; what differs is a row for each answer, and the rare one is marked."""

    def node(driver: str, free: str, *more: Finding) -> list[Finding]:
        lines = [Finding(part="driver", level="ok", found=driver), Finding(part="runs", level="ok", found=free)]
        return [*lines, *more]

    broken = Finding(part="limits", level="broken", found="locked memory 8 MiB", remedy="ulimit -l unlimited")
    fine = Finding(part="limits", level="ok", found="locked memory unlimited")
    found = {"n1": node("535", "7 MiB", fine), "n2": node("535", "8 MiB", fine), "n3": node("470", "9 MiB", broken)}
    rows = [(row.part, row.level, row.found, row.nodes) for row in allocation.compare(found)]
    assert rows == [
        ("driver", "warning", "470", ["n3"]), ("driver", "ok", "535", ["n1", "n2"]),
        ("runs", "ok", "7 MiB", ["n1", "n2", "n3"]),
        ("limits", "broken", "locked memory 8 MiB", ["n3"]), ("limits", "ok", "locked memory unlimited", ["n1", "n2"]),
    ]  # fmt: skip
    assert all(row.remedy for row in allocation.compare(found) if row.level != "ok")
    del found["n3"][-1]
    assert ("limits", "warning", "nothing, unlike on other nodes", ["n3"]) in [
        (row.part, row.level, row.found, row.nodes) for row in allocation.compare(found)
    ]
    (line,) = allocation.missing(["n1", "n2", "n3", "n4"], found, tmp_path)
    assert (line.level, line.found) == ("broken", "no answer of n4")


def test_what_nodes_leave_is_collected(tmp_path: Path) -> None:
    lines = [Finding(part="torch", level="broken", found="nothing", remedy="pip")]
    allocation.leave(tmp_path, lines)
    assert list(allocation.collect(tmp_path).values()) == [lines]


def test_all_nodes_needs_to_know_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    with pytest.raises(ConfigurationError, match=r"Name them with --host"):
        allocation.expected_nodes([])
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "8")
    assert (allocation.expected_nodes([]), allocation.expected_nodes(["a", "b"])) == (8, 2)


@pytest.mark.slow
def test_the_doctor_on_this_host_through_mpirun(tmp_path: Path) -> None:
    done = trainscale("doctor", "--all-nodes", "--host", "localhost", "--runs", tmp_path)
    assert "1 node" in done.stdout, done.stderr
    assert list((tmp_path / "doctor").glob("*/*.json"))
    assert "broken" not in done.stdout.split("slurm")[0], done.stdout
