"""NCCL's log, against lines in the formats of public reports of seven versions (sources in the files)."""

from pathlib import Path

import pytest

from results import nccl_log

DATA = Path(__file__).parent / "data" / "nccl"


def networks(name: str) -> dict[str, nccl_log.NcclNetwork]:
    return {network.host: network for network in nccl_log.read((DATA / name).read_text().splitlines())}


@pytest.mark.parametrize(
    ("name", "host", "kind", "used"),
    [
        ("v2.3-c4140-ib.log", "nodeb", "IB", {"mlx5_0:1"}),
        ("v2.3-dgx1-four-ports.log", "nodea", "IB", {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"}),
        ("v2.4-both-named-ib-used.log", "master", "IB", {"mlx5_0:1"}),
        ("v2.5-five-ports-listed.log", "node-19", "IB", {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1", "mlx5_4:1"}),
        ("v2.4-sockets.log", "node-b", "Socket", {"ens3"}),
        ("v2.19-two-roce-ports.log", "dgx-4", "IB", {"mlx5_10:1", "mlx5_11:1"}),
        ("one-rail-used-of-two.log", "srv1", "IB", {"mlx5_0:1"}),
        ("v2.27-sockets-over-one-of-many.log", "linux-b", "Socket", {"enp1s0"}),
    ],
)
def test_names_the_network_and_the_devices_in_use(name: str, host: str, kind: str, used: set[str]) -> None:
    network = networks(name)[host]
    assert network.kind == kind
    assert network.used_devices == used


def test_every_host_has_its_own_network() -> None:
    assert list(networks("v2.3-c4140-ib.log")) == ["nodea", "nodeb"]


def test_found_devices_are_kept_beside_used_ones() -> None:
    assert networks("one-rail-used-of-two.log")["srv1"].devices == {"mlx5_0:1", "mlx5_1:1"}


def test_gpu_direct_shows_in_the_connections() -> None:
    assert networks("v2.19-two-roce-ports.log")["dgx-4"].gpu_direct
    assert not networks("one-rail-used-of-two.log")["srv1"].gpu_direct


def test_a_merged_device_stands_for_its_ports() -> None:
    lines = [
        "n:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [RO]; OOB eth0:192.0.2.1<0>",
        "n:1:2 [0] NCCL INFO NET/IB : Made virtual device [3] name=mlx5_0+mlx5_1 speed=200000 ndevs=2",
        "n:1:2 [0] NCCL INFO Using network IB",
        "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/3/GDRDMA",
    ]
    assert nccl_log.read(lines)[0].used_devices == {"mlx5_0:1", "mlx5_1:1"}


def test_a_plugin_is_named_and_nothing_claimed_of_its_devices() -> None:
    network = nccl_log.read(
        ["n:1:2 [0] NCCL INFO NET/OFI Selected provider is efa", "n:1:2 [0] NCCL INFO Using network Libfabric"]
    )[0]
    assert (network.kind, network.used_devices) == ("Libfabric", set())


def test_telling_lines_are_kept_once() -> None:
    lines = networks("v2.19-two-roce-ports.log")["dgx-4"].lines
    assert [line.split("NCCL")[0].split(" ", 1)[1][:20] for line in lines] == [
        "NET/IB : Using [0]ml",
        "Using network IB",
        "Channel 00/0 : 0[0] ",
    ]


def test_a_log_without_nccl_says_nothing() -> None:
    assert nccl_log.read(["epoch 1: loss 2.3", "NCCL version 2.4.7+cuda10.0", ""]) == []
