"""HCAs, links, GPUDirect: recorded trees of /sys and /proc of a node with two EDR rails, and what goes wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.doctor import infiniband, interfaces
from launch.doctor.gpu import gpudirect
from launch.interconnect import load_interconnect
from tests.launch.machines import by_part, hca, machine, write

EDR_2 = load_interconnect("edr-2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two active EDR ports, as edr-2 asks for them."""
    hca(tmp_path, "mlx5_0")
    hca(tmp_path, "mlx5_1")
    return tmp_path


def test_two_active_edr_ports(root: Path) -> None:
    found = by_part(infiniband.findings(machine(root), EDR_2))
    assert {part: finding.level for part, finding in found.items()} == {"hca mlx5_0:1": "ok", "hca mlx5_1:1": "ok"}
    assert found["hca mlx5_0:1"].found == "ACTIVE, 100 Gb/sec (4X EDR), InfiniBand"


@pytest.mark.parametrize(
    ("port", "found", "remedy"),
    [
        ({"state": "1: DOWN", "physical": "2: Polling"}, "DOWN, Polling", "cable"),
        ({"state": "2: INIT"}, "INIT, LinkUp", "opensm"),
        ({"rate": "56 Gb/sec (4X FDR)"}, "degraded, 100 Gb/sec expected", "cable"),
        ({"rate": "25 Gb/sec (1X EDR)"}, "degraded, 100 Gb/sec expected", "cable"),
    ],
)
def test_a_port_that_is_asked_for_and_not_as_it_should_be(root: Path, port: dict[str, str], found: str, remedy: str) -> None:
    hca(root, "mlx5_1", **port)
    lines = by_part(infiniband.findings(machine(root), EDR_2))
    assert lines["hca mlx5_0:1"].level == "ok"
    bad = lines["hca mlx5_1:1"]
    assert (bad.level, found in bad.found, remedy in bad.remedy) == ("broken", True, True)


def test_one_lane_of_four_is_told_without_knowing_the_rate(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", rate="25 Gb/sec (1X EDR)")
    found = by_part(infiniband.findings(machine(tmp_path), None))["hca mlx5_0:1"]
    assert (found.level, found.found) == ("warning", "ACTIVE, 25 Gb/sec (1X EDR), InfiniBand: degraded, 4 lanes expected")


def test_a_slower_port_than_its_neighbour_is_told(root: Path) -> None:
    hca(root, "mlx5_1", rate="40 Gb/sec (4X QDR)")
    found = by_part(infiniband.findings(machine(root), None))
    assert [finding.level for finding in found.values()] == ["ok", "warning"]


def test_a_device_of_another_name_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    hca(tmp_path, "ib0_hca")
    found = by_part(infiniband.findings(machine(tmp_path), EDR_2))
    assert found["hca mlx5_0:1"].level == "broken"
    assert "infiniband: [ib0_hca:1]" in found["hca mlx5_0:1"].remedy


def test_a_rail_that_is_not_asked_for_may_be_down(root: Path) -> None:
    hca(root, "mlx5_1", state="1: DOWN", physical="3: Disabled")
    found = infiniband.findings(machine(root), load_interconnect("edr-1"))
    assert [finding.part for finding in found] == ["hca mlx5_0:1"]


def test_a_slot_of_half_the_lanes(root: Path) -> None:
    hca(root, "mlx5_1", slot="8")
    found = by_part(infiniband.findings(machine(root), EDR_2))
    assert found["pcie mlx5_1"].found == "its slot runs at 8.0 GT/s PCIe x8 of 8.0 GT/s PCIe x16"


def test_roce_of_fewer_lanes_is_no_fault(tmp_path: Path) -> None:
    hca(tmp_path, "mlx5_0", rate="25 Gb/sec (1X EDR)", layer="Ethernet")
    assert by_part(infiniband.findings(machine(tmp_path), None))["hca mlx5_0:1"].level == "ok"


def test_interfaces(tmp_path: Path) -> None:
    """eth0 of 25 Gbit/s as asked, eth1 of 10 only, eth2 down, eth3 not there; a virtual one tells no speed and has no state."""
    for name, state, speed in (("eth0", "up", "25000"), ("eth1", "up", "10000"), ("eth2", "down", "-1"), ("ib0", "unknown", "")):
        write(tmp_path, {f"/sys/class/net/{name}/operstate": state, f"/sys/class/net/{name}/speed": speed})
    asked = load_interconnect("ethernet").model_copy(
        update={"devices": ["eth0", "eth1", "eth2", "eth3"], "rate_gbit_per_s": 25.0, "management_interfaces": ["ib0", "eth0"]}
    )
    found = by_part(interfaces.findings(machine(tmp_path), asked))
    assert {part.removeprefix("interface "): (line.level, line.found) for part, line in found.items()} == {
        "eth0": ("ok", "up, 25 Gb/sec"),
        "eth1": ("broken", "up, 10 Gb/sec: 25 Gb/sec expected"),
        "eth2": ("broken", "down"),
        "eth3": ("broken", "there is no such interface"),
        "ib0": ("ok", "unknown"),
    }
    assert "eth0, eth1, eth2, ib0" in found["interface eth3"].remedy
    assert not interfaces.findings(machine(tmp_path), EDR_2)
    assert not interfaces.findings(machine(tmp_path), None)


def test_no_infiniband(tmp_path: Path) -> None:
    assert [finding.level for finding in infiniband.findings(machine(tmp_path), None)] == ["ok"]


@pytest.mark.parametrize("module", ["nvidia_peermem", "nv_peer_mem"])
def test_gpudirect(root: Path, module: str) -> None:
    # As /proc/modules of a node with a driver of 535 has it.
    write(root, {"/proc/modules": f"{module} 16384 0 - Live 0x0000000000000000 (POE)\nib_core 434176 9 mlx5_ib, Live 0x0"})
    found = gpudirect(machine(root), gpus=4, hcas=2)
    assert found is not None
    assert (found.level, found.found) == ("ok", f"{module} is loaded")


def test_gpudirect_is_missing(root: Path) -> None:
    write(root, {"/proc/modules": "ib_core 434176 9 mlx5_ib, Live 0x0\nnvidia 56000000 100 nvidia_uvm, Live 0x0"})
    found = gpudirect(machine(root), gpus=4, hcas=2)
    assert found is not None
    assert (found.level, "modprobe nvidia_peermem" in found.remedy) == ("warning", True)
    assert gpudirect(machine(root), gpus=0, hcas=2) is None
