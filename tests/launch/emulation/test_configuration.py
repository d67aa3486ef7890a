"""Names, addresses and configuration files of an emulated cluster, without making one."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from launch.emulation import configuration, init, inside_emulated_node, packages, requirements
from launch.emulation.cluster import Cluster
from launch.emulation.plan import ClusterPlan, StateFolder
from results.yaml_file import ConfigurationError

PLAN = ClusterPlan(nodes=12, rails=2, rate="200mbit", cpus_per_node=4, memory_mb=2000)


def test_each_rail_is_a_network_of_its_own() -> None:
    assert PLAN.node_names[0] == "node01"
    assert PLAN.node_names[-1] == "node12"
    assert PLAN.interfaces("node12") == {"eth0": "10.10.0.12", "ib0": "10.10.1.12", "ib1": "10.10.2.12"}
    assert PLAN.interfaces("head") == {"eth0": "10.10.0.254"}


def test_hosts_file_names_management_and_rails() -> None:
    lines = configuration.hosts(PLAN).splitlines()
    assert "10.10.0.3 node03" in lines
    assert "10.10.2.3 node03-ib1" in lines
    assert len(lines) == 2 + 12 * 3


def test_slurm_knows_every_node_once(tmp_path: Path) -> None:
    text = configuration.slurm_conf(PLAN, StateFolder(tmp_path))
    node_lines = [line for line in text.splitlines() if line.startswith("NodeName=")]
    assert len(node_lines) == 1
    assert "NodeName=node[01-12] NodeAddr=10.10.0.[1-12] CPUs=4" in node_lines[0]
    assert "{" not in text


@pytest.mark.parametrize(
    ("line", "locked"), [("root:*:19000:0:::::", False), ("root:!:19000:0:::::", True), ("toor:!:1::::::", False)]
)
def test_a_locked_root_gets_in_by_way_of_pam(line: str, locked: bool, tmp_path: Path) -> None:
    assert configuration.is_locked("root", f"daemon:*:1::::::\n{line}\n") is locked
    text = configuration.sshd_conf(StateFolder(tmp_path), root_is_locked=locked)
    assert f"UsePAM {'yes' if locked else 'no'}" in text.splitlines()


def test_interface_names_fit_the_kernel() -> None:
    most = ClusterPlan(nodes=99, rails=8, rate="unshaped", cpus_per_node=1, memory_mb=100)
    assert max(len(f"{name}-{rail}") for name in most.node_names for rail in most.rail_names) <= 15


@pytest.mark.parametrize(("key", "value"), [("nodes", 0), ("nodes", 100), ("rails", 0)])
def test_sizes_that_cannot_be_are_refused(key: str, value: int) -> None:
    with pytest.raises(ValidationError):
        ClusterPlan.model_validate(PLAN.model_dump() | {key: value})


def test_without_root_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ConfigurationError, match=r"^[^\n]*needs root[^\n]*$"):
        Cluster(tmp_path).up(PLAN)
    with pytest.raises(ConfigurationError, match="needs root"):
        Cluster(tmp_path).down()
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named_with_their_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(packages, "search_path", lambda: "/nonexistent")
    why = requirements.missing()
    assert why is not None
    assert "\n" not in why
    named = why.split("apt-get install --no-install-recommends ")[1].split()
    assert {"slurm-wlm", "munge", "iproute2", "openssh-server"} <= set(named)


def test_missing_packages_are_installed_by_apt_get_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    for name, text in (("apt-get", f'echo "$@ RUNLEVEL=$RUNLEVEL" >> {calls}'), ("dpkg-query", "printf 'x not-installed'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(packages, "missing_packages", lambda: ["munge"])
    assert packages.main(["chromium"]) == 0
    assert calls.read_text().splitlines() == [
        "update --quiet RUNLEVEL=1",
        "install --yes --quiet --no-install-recommends munge chromium RUNLEVEL=1",
    ]
    calls.unlink()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert packages.main(["chromium"]) == 0
    assert not calls.exists()


def test_a_folder_with_other_files_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "check", lambda: None)
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ConfigurationError, match="holds other files"):
        Cluster(tmp_path).up(PLAN)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_wrong_rate_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(requirements, "check", lambda: None)
    with pytest.raises(ConfigurationError, match="200mbit or 100gbit"):
        Cluster(tmp_path).up(PLAN.model_copy(update={"rate": "fast"}))


def test_the_mark_of_a_node_is_not_on_the_host() -> None:
    assert init.NODE_MARK.startswith("/run/")
    assert not inside_emulated_node()
