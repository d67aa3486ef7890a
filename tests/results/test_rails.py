"""Device counters and the verdict on rails."""

from pathlib import Path

import pytest

from results import nccl_log, rails
from results.rails import AskedRails, DeviceCounter, NodeCounters, RailSample

# Counters of a ConnectX-7 port in use, in words of 4 bytes: https://github.com/leptonai/gpud/pull/943
PORT_RCV_DATA, PORT_XMIT_DATA = 205128687774249, 205143497464492
STEP = 102_400_000  # the gradients of ResNet-50 in fp32: what one exchange brings to each node at least
IB_ONE = AskedRails(source="infiniband-port-counters", devices=["mlx5_0:1"])
IB_TWO = AskedRails(source="infiniband-port-counters", devices=["mlx5_0:1", "mlx5_1:1"])
NET_ONE = AskedRails(source="interface-counters", devices=["ib0"])
NET_TWO = AskedRails(source="interface-counters", devices=["ib0", "ib1"])


def port(sys_class: Path, name: str, received: int, transmitted: int) -> None:
    counters = sys_class / "infiniband" / name / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (counters / "port_rcv_data").write_text(f"{received}\n")
    (counters / "port_xmit_data").write_text(f"{transmitted}\n")


def interface(sys_class: Path, name: str, received: int, transmitted: int, links: tuple[str, ...] = ()) -> None:
    statistics = sys_class / "net" / name / "statistics"
    statistics.mkdir(parents=True)
    (statistics / "rx_bytes").write_text(f"{received}\n")
    (statistics / "tx_bytes").write_text(f"{transmitted}\n")
    for link in links:
        (sys_class / "net" / name / link).symlink_to("elsewhere")


def sample(carried: dict[str, dict[str, tuple[int, int]]]) -> tuple[RailSample, RailSample]:
    """Samples before and after, from what each device of each host carried: (received, transmitted)."""

    def at(scale: int) -> RailSample:
        nodes = []
        for host, devices in carried.items():
            counters = [
                DeviceCounter(
                    device=name,
                    source="infiniband-port-counters" if ":" in name else "interface-counters",
                    received_bytes=7_000_000 + scale * received,
                    transmitted_bytes=9_000_000 + scale * transmitted,
                )
                for name, (received, transmitted) in devices.items()
            ]
            nodes.append(NodeCounters(host=host, time_s=scale, devices=counters))
        return RailSample(nodes=nodes)

    return at(0), at(1)


def verdict(
    asked: AskedRails, carried: dict[str, dict[str, tuple[int, int]]], *, steps: int | None = 10, log: str = ""
) -> tuple[str, str]:
    before, after = sample(carried)
    least = None if steps is None else steps * STEP
    nccl = nccl_log.read(log.splitlines())
    found = rails.judge(asked=asked, before=before, after=after, least_exchange_bytes=least, nccl=nccl)
    return found.verdict, found.reason


def both(devices: dict[str, tuple[int, int]]) -> dict[str, dict[str, tuple[int, int]]]:
    return {"node01": devices, "node02": devices}


def test_port_counters_count_words_of_four_bytes(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_1", PORT_RCV_DATA, PORT_XMIT_DATA)
    interface(tmp_path, "eth0", 1000, 2000)
    interface(tmp_path, "lo", 5, 5)
    found = {counter.device: counter for counter in rails.read_counters(tmp_path)}
    assert set(found) == {"mlx5_1:1", "eth0"}
    assert found["mlx5_1:1"].received_bytes == 820_514_751_096_996
    assert found["mlx5_1:1"].transmitted_bytes == 820_573_989_857_968
    assert (found["eth0"].received_bytes, found["eth0"].transmitted_bytes) == (1000, 2000)


def test_this_machine_has_counters() -> None:
    names = {path.name for path in Path("/sys/class/net").iterdir()} - {"lo"}
    assert names <= {counter.device for counter in rails.read_counters()}


def test_samples_survive_the_disk_and_name_each_node_once(tmp_path: Path) -> None:
    node = rails.node_counters()
    rails.write_sample(tmp_path / "s.json", [node, node])
    assert rails.read_sample(tmp_path / "s.json") == RailSample(nodes=[node])
    (tmp_path / "s.json").write_text("{")
    assert rails.read_sample(tmp_path / "s.json") is None


def test_one_rail_as_asked() -> None:
    found = verdict(NET_ONE, both({"ib0": (10 * STEP, 10 * STEP), "ib1": (0, 0), "eth0": (90_000, 80_000)}))
    assert found[0] == "as-asked"
    assert "ib0 2.05 GB (100%)" in found[1]


def test_two_rails_as_asked() -> None:
    found = verdict(NET_TWO, both({"ib0": (6 * STEP, 6 * STEP), "ib1": (5 * STEP, 5 * STEP), "eth0": (90_000, 80_000)}))
    assert found[0] == "as-asked"


def test_the_other_rail_carried_it() -> None:
    found = verdict(NET_ONE, both({"ib0": (0, 0), "ib1": (10 * STEP, 10 * STEP)}))
    assert found == ("rails-differ", "on node01, ib1 exchanged 1.02 GB, and ib0 was asked for")


def test_a_second_rail_helped_unasked() -> None:
    # UCX takes the two best devices unless told otherwise.
    assert verdict(IB_ONE, both({"mlx5_0:1": (6 * STEP, 6 * STEP), "mlx5_1:1": (5 * STEP, 5 * STEP)}))[0] == "rails-differ"


def test_a_rail_in_vain() -> None:
    found = verdict(IB_TWO, both({"mlx5_0:1": (10 * STEP, 10 * STEP), "mlx5_1:1": (40_000, 40_000)}))
    assert found[0] == "rails-differ"
    assert "mlx5_1:1 was asked for and exchanged only 40 kB" in found[1]


def test_one_bad_node_is_enough_and_is_named() -> None:
    carried = both({"ib0": (10 * STEP, 10 * STEP), "ib1": (0, 0)})
    carried["node03"] = {"ib0": (10_000, 10_000), "ib1": (10 * STEP, 10 * STEP)}
    found = verdict(NET_ONE, carried)
    assert found[0] == "rails-differ"
    assert "node03" in found[1]


def test_reading_data_over_another_network_is_no_exchange() -> None:
    # ImageNet over NFS: far more bytes than the gradients, and all one way but for acknowledgements.
    assert verdict(NET_ONE, both({"ib0": (10 * STEP, 10 * STEP), "eth0": (80 * STEP, STEP // 2)}))[0] == "as-asked"


def test_writing_checkpoints_over_another_network_is_no_exchange() -> None:
    assert verdict(NET_ONE, both({"ib0": (10 * STEP, 10 * STEP), "eth0": (STEP // 4, 30 * STEP)}))[0] == "as-asked"


def test_noise_does_not_flip_a_tiny_run() -> None:
    before, after = sample(both({"ib0": (3_000_000, 3_000_000), "eth0": (900_000, 900_000)}))
    found = rails.judge(asked=NET_ONE, before=before, after=after, least_exchange_bytes=2_000_000)
    assert found.verdict == "as-asked"


def test_sockets_over_the_infiniband_rail_are_not_infiniband() -> None:
    # IP over InfiniBand: the port counts the same bytes, so only the interface's counter tells.
    found = verdict(IB_ONE, both({"mlx5_0:1": (11 * STEP, 11 * STEP), "ib0": (10 * STEP, 10 * STEP)}))
    assert found[0] == "rails-differ"
    assert "ib0" in found[1]


def test_ports_below_an_asked_interface_do_not_count_against_it() -> None:
    assert verdict(NET_ONE, both({"mlx5_0:1": (11 * STEP, 11 * STEP), "ib0": (10 * STEP, 10 * STEP)}))[0] == "as-asked"


def test_members_of_an_asked_bond_count_the_same_bytes(tmp_path: Path) -> None:
    interface(tmp_path, "bond0", 0, 0, links=("lower_eth0", "lower_eth1"))
    interface(tmp_path, "eth0", 0, 0, links=("upper_bond0",))
    interface(tmp_path, "eth1", 0, 0, links=("upper_bond0",))
    devices = rails.read_counters(tmp_path)
    later = [device.model_copy(update={"received_bytes": 10 * STEP, "transmitted_bytes": 10 * STEP}) for device in devices]
    before = RailSample(nodes=[NodeCounters(host=host, time_s=0, devices=devices) for host in ("a", "b")])
    after = RailSample(nodes=[NodeCounters(host=host, time_s=1, devices=later) for host in ("a", "b")])
    asked = AskedRails(source="interface-counters", devices=["bond0"])
    assert rails.judge(asked=asked, before=before, after=after, least_exchange_bytes=10 * STEP).verdict == "as-asked"


def test_the_rails_carried_less_than_training_needs() -> None:
    found = verdict(NET_ONE, both({"ib0": (2 * STEP, 2 * STEP), "eth0": (10_000, 10_000)}))
    assert found[0] == "rails-differ"
    assert "needs at least 1.02 GB" in found[1]


def test_shares_alone_decide_when_the_least_exchange_is_unknown() -> None:
    assert verdict(NET_ONE, both({"ib0": (3 * STEP, 3 * STEP), "ib1": (100, 100)}), steps=None)[0] == "as-asked"
    assert verdict(NET_ONE, both({"ib0": (3 * STEP, 3 * STEP), "ib1": (STEP, STEP)}), steps=None)[0] == "rails-differ"


def test_nothing_is_said_without_traffic_devices_or_samples() -> None:
    assert verdict(NET_ONE, both({"ib0": (100, 100)}), steps=None)[0] == "not-checked"
    assert verdict(AskedRails(source="interface-counters", devices=[]), both({"ib0": (STEP, STEP)}))[0] == "not-checked"
    found = rails.judge(asked=NET_ONE, before=None, after=None, least_exchange_bytes=STEP)
    assert found.verdict == "not-checked"


def test_a_device_without_counters_is_not_called_unused() -> None:
    found = verdict(IB_TWO, both({"mlx5_0:1": (10 * STEP, 10 * STEP)}))
    assert found == ("not-checked", "node01 has no readable counters of mlx5_1:1")


def test_counters_that_ran_backwards_or_are_stuck_prove_nothing() -> None:
    before, after = sample(both({"mlx5_0:1": (-6_000_000, 10 * STEP)}))
    assert rails.carried(before, after) == []
    stuck = DeviceCounter(
        device="mlx5_0:1", source="infiniband-port-counters", received_bytes=4 * 4294967295, transmitted_bytes=8
    )
    same = RailSample(nodes=[NodeCounters(host=host, time_s=0, devices=[stuck]) for host in ("a", "b")])
    assert rails.judge(asked=IB_ONE, before=same, after=same, least_exchange_bytes=STEP).verdict == "not-checked"


def test_one_node_needs_no_rail() -> None:
    assert verdict(IB_TWO, {"node01": {"mlx5_0:1": (0, 0)}})[0] == "as-asked"


@pytest.mark.parametrize(
    ("asked", "message", "expected"),
    [
        (IB_ONE, "NET/Socket : Using [0]eth0:192.0.2.1<0>", "NCCL fell back to sockets over eth0"),
        (IB_ONE, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>", "NCCL used mlx5_1:1"),
        (IB_TWO, "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>", "and not mlx5_1:1"),
        (NET_ONE, "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>", "NCCL used InfiniBand"),
    ],
)
def test_what_nccl_says_of_itself_overrules_good_counters(asked: AskedRails, message: str, expected: str) -> None:
    good = {name: (10 * STEP // len(asked.devices),) * 2 for name in asked.devices}
    found = verdict(asked, both(good), log=f"node02:1:2 [0] NCCL INFO {message}")
    assert found[0] == "rails-differ"
    assert expected in found[1]
    assert "node02" in found[1]


def test_nccl_on_the_asked_rail_agrees() -> None:
    log = "node01:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>"
    before, after = sample(both({"mlx5_0:1": (10 * STEP, 10 * STEP)}))
    found = rails.judge(
        asked=IB_ONE, before=before, after=after, least_exchange_bytes=10 * STEP, nccl=nccl_log.read(log.splitlines())
    )
    assert found.verdict == "as-asked"
    assert found.nccl_lines == ["node01: NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>"]
    assert {(rail.host, rail.device, rail.received_bytes) for rail in found.rails} == {
        ("node01", "mlx5_0:1", 10 * STEP),
        ("node02", "mlx5_0:1", 10 * STEP),
    }
