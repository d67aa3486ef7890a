"""Binding on nodes put together as sysfs shows them; expected cores are those of a published launch script, or counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.binding import bind_ranks, in_cuda_order
from results.topology import Topology, parse_cpu_list, read_topology, show_cpu_list


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


class Sysfs:
    """A node as the kernel shows it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def cores(self, node: int, count: int, first: int, sibling_offset: int | None = None) -> None:
        """`count` cores from cpu `first` on; their second threads are `sibling_offset` further."""
        system = self.root / "devices/system"
        firsts = range(first, first + count)
        lists = [f"{cpu}" if sibling_offset is None else f"{cpu},{cpu + sibling_offset}" for cpu in firsts]
        for text in lists:
            for cpu in text.split(","):
                write(system / f"cpu/cpu{cpu}/topology/thread_siblings_list", text)
        write(system / f"node/node{node}/cpulist", show_cpu_list(int(cpu) for text in lists for cpu in text.split(",")))

    def pci(self, *bridges: str, node: int, vendor: str, kind: str) -> Path:
        device = self.root / "devices" / "/".join(bridges)
        for name, text in (("vendor", vendor), ("class", kind), ("numa_node", str(node))):
            write(device / name, text)
        link = self.root / "bus/pci/devices" / bridges[-1]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
        return device

    def gpu(self, *bridges: str, node: int) -> None:
        self.pci(*bridges, node=node, vendor="0x10de", kind="0x030200")

    def hca(self, name: str, *bridges: str, node: int, state: str = "4: ACTIVE") -> None:
        device = self.pci(*bridges, node=node, vendor="0x15b3", kind="0x020700")
        write(self.root / f"class/infiniband/{name}/ports/1/state", state)
        (self.root / f"class/infiniband/{name}/device").symlink_to(device)

    def read(self, allowed: str) -> Topology:
        return read_topology(set(parse_cpu_list(allowed)), self.root)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path / "sys")


def dgx1(sysfs: Sysfs) -> Sysfs:
    """Two sockets of 20 cores with two threads; two GPUs and one HCA behind each of four PCIe switches."""
    sysfs.cores(0, 20, 0, 40)
    sysfs.cores(1, 20, 20, 40)
    places = (("00", "02", 0, "mlx5_0", "05", "06", "07"), ("00", "03", 0, "mlx5_1", "0c", "0a", "0b"),
              ("80", "02", 1, "mlx5_2", "84", "85", "86"), ("80", "03", 1, "mlx5_3", "8b", "89", "8a"))  # fmt: skip
    for complex_, port, node, hca, hca_bus, *gpu_buses in places:
        switch = (f"pci0000:{complex_}", f"0000:{complex_}:{port}.0", f"0000:{complex_}:{port}.1")
        sysfs.hca(hca, *switch, f"0000:{hca_bus}:00.0", node=node)
        for bus in gpu_buses:
            sysfs.gpu(*switch, f"0000:{bus}:00.0", node=node)
    return sysfs


def c4140(sysfs: Sysfs, gpu_nodes: tuple[int, ...]) -> Sysfs:
    """Two Xeon 6148 of 20 cores without hyper-threading, as the kernel numbers Dell's: even ones on socket 0, odd ones on 1."""
    system = sysfs.root / "devices/system"
    for cpu in range(40):
        write(system / f"cpu/cpu{cpu}/topology/thread_siblings_list", str(cpu))
    for node in (0, 1):
        write(system / f"node/node{node}/cpulist", ",".join(map(str, range(node, 40, 2))))
        sysfs.hca(f"mlx5_{node}", f"pci0000:{node}a", f"0000:{node}b:00.0", node=node)
    for number, node in enumerate(gpu_nodes):
        sysfs.gpu(f"pci0000:{node}c", f"0000:{node}c:0{number}.0", f"0000:{node}d:0{number}.0", node=node)
    return sysfs


def test_dgx1_as_nvidia_bound_it(sysfs: Sysfs) -> None:
    """MLPerf v0.6, NVIDIA/benchmarks/resnet/implementations/mxnet/ompi_bind_DGX1.sh: cores, memory node and HCA of each rank."""
    published = [
        ("0-4,40-44", 0, "mlx5_0"), ("5-9,45-49", 0, "mlx5_0"), ("10-14,50-54", 0, "mlx5_1"), ("15-19,55-59", 0, "mlx5_1"),
        ("20-24,60-64", 1, "mlx5_2"), ("25-29,65-69", 1, "mlx5_2"), ("30-34,70-74", 1, "mlx5_3"), ("35-39,75-79", 1, "mlx5_3"),
    ]  # fmt: skip
    bindings = bind_ranks(dgx1(sysfs).read("0-79"), 8)
    assert [(show_cpu_list(b.cpus), *b.numa_nodes, b.hca) for b in bindings] == published
    assert [b.gpu for b in bindings[:2]] == ["0000:06:00.0", "0000:07:00.0"]
    assert str(bindings[4]) == "GPU 0000:85:00.0, cores 20-24,60-64, NUMA node 1, nearest HCA mlx5_2"


def test_c4140_with_two_gpus_on_each_socket(sysfs: Sysfs) -> None:
    bindings = bind_ranks(c4140(sysfs, (0, 0, 1, 1)).read("0-39"), 4)
    assert [b.cpus for b in bindings] == [
        tuple(range(0, 20, 2)), tuple(range(20, 40, 2)), tuple(range(1, 20, 2)), tuple(range(21, 40, 2)),
    ]  # fmt: skip
    assert [b.hca for b in bindings] == ["mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"]


def test_c4140_with_all_gpus_behind_one_socket(sysfs: Sysfs) -> None:
    """Configuration K: one x16 from one CPU to a switch with four GPUs."""
    bindings = bind_ranks(c4140(sysfs, (0, 0, 0, 0)).read("0-39"), 4)
    assert [b.cpus for b in bindings] == [tuple(range(first, first + 10, 2)) for first in (0, 10, 20, 30)]
    assert {b.hca for b in bindings} == {"mlx5_0"}


def test_single_socket_without_numa_numbers(sysfs: Sysfs) -> None:
    """The kernel says -1 where the firmware tells no node."""
    sysfs.cores(0, 16, 0, 16)
    for number in range(4):
        sysfs.gpu("pci0000:00", f"0000:0{number + 1}:00.0", node=-1)
    sysfs.hca("mlx5_0", "pci0000:00", "0000:09:00.0", node=-1)
    bindings = bind_ranks(sysfs.read("0-31"), 4)
    assert [show_cpu_list(b.cpus) for b in bindings] == ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"]
    assert {b.hca for b in bindings} == {"mlx5_0"}


def test_only_what_the_job_was_given(sysfs: Sysfs) -> None:
    """A cpuset of socket 0 alone: the ranks of socket 1's GPUs cannot be near, all share what there is."""
    bindings = bind_ranks(dgx1(sysfs).read("0-15,40-55"), 8)
    assert [show_cpu_list(b.cpus) for b in bindings[:2]] == ["0-1,40-41", "2-3,42-43"]
    assert {b.numa_nodes for b in bindings} == {(0,)}
    assert len({cpu for b in bindings for cpu in b.cpus}) == 32
    # Half of the threads: every core counts once.
    assert show_cpu_list(bind_ranks(dgx1(Sysfs(sysfs.root / "b")).read("0-39"), 8)[7].cpus) == "35-39"


def test_ranks_without_gpus_share_all_cores(sysfs: Sysfs) -> None:
    topology = c4140(sysfs, ()).read("0-39")
    assert [b.cpus for b in bind_ranks(topology, 2)] == [tuple(range(0, 40, 2)), tuple(range(1, 40, 2))]
    assert len(bind_ranks(topology, 1)[0].cpus) == 40
    assert bind_ranks(topology, 41) == []


def test_hcas_that_are_down_are_left_out_and_equals_take_turns(sysfs: Sysfs) -> None:
    sysfs.cores(0, 8, 0)
    for number, state in enumerate(("4: ACTIVE", "1: DOWN", "4: ACTIVE")):
        sysfs.hca(f"mlx5_{number}", f"pci0000:0{number}", f"0000:0{number}:00.0", node=0, state=state)
    assert [b.hca for b in bind_ranks(sysfs.read("0-7"), 4)] == ["mlx5_0", "mlx5_2", "mlx5_0", "mlx5_2"]


def test_gpus_in_the_order_that_cuda_is_shown(sysfs: Sysfs) -> None:
    topology = dgx1(sysfs).read("0-79")
    turned = bind_ranks(in_cuda_order(topology, {"CUDA_VISIBLE_DEVICES": "4,5,0,1"}), 4)
    assert [b.gpu for b in turned] == ["0000:85:00.0", "0000:86:00.0", "0000:06:00.0", "0000:07:00.0"]
    assert show_cpu_list(turned[0].cpus) == "20-29,60-69"
    assert in_cuda_order(topology, {"CUDA_VISIBLE_DEVICES": "3"}) == topology
    assert in_cuda_order(topology, {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}) == topology


def test_lists_of_cpus() -> None:
    assert parse_cpu_list("0-2,8,10-11\n") == [0, 1, 2, 8, 10, 11]
    assert show_cpu_list([11, 8, 0, 1, 2, 10]) == "0-2,8,10-11"
    assert parse_cpu_list("") == []
