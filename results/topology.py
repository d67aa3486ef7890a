"""Cores, GPUs and InfiniBand devices of a node and what lies near what, from sysfs: no tool need be installed. Linux only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path

NVIDIA = "0x10de"
DISPLAY_CLASSES = ("0x0300", "0x0302")
"""PCI classes of GPUs: VGA controllers and 3D controllers."""

Core = tuple[int, ...]
"""A core's hardware threads, as the kernel numbers them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumaNode:
    """Cores that share a memory controller: a socket, or a part of one."""

    number: int
    cores: tuple[Core, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PciDevice:
    """A GPU or an InfiniBand device."""

    name: str
    """A GPU's PCI address; the name of an InfiniBand device, such as `mlx5_0`."""
    numa_node: int
    """-1 where the kernel does not know."""
    path: tuple[str, ...]
    """PCI bridges from the root complex to the device: the longer the common part of two, the nearer they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """One node, as far as a process may use it."""

    numa_nodes: tuple[NumaNode, ...]
    """Those with cores that the process may run on, and only these cores."""
    gpus: tuple[PciDevice, ...] = ()
    """In order of their PCI addresses: CUDA's order under CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    hcas: tuple[PciDevice, ...] = ()
    """InfiniBand devices with an active port, in order of their names."""


def read_topology(allowed: Set[int], sysfs: Path = Path("/sys")) -> Topology:
    """The topology of the node that this runs on; `allowed` are the hardware threads that the process may run on."""
    return Topology(
        numa_nodes=_numa_nodes(allowed, sysfs / "devices/system"),
        gpus=tuple(_gpus(sysfs / "bus/pci/devices")),
        hcas=tuple(_hcas(sysfs / "class/infiniband")),
    )


def parse_cpu_list(text: str) -> list[int]:
    """`0-3,8` as the kernel writes it: 0, 1, 2, 3, 8."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def show_cpu_list(cpus: Iterable[int]) -> str:
    """The same the other way round."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _numa_nodes(allowed: Set[int], system: Path) -> tuple[NumaNode, ...]:
    cores = {tuple(sorted(threads & allowed)) for threads in (_siblings(system, cpu) for cpu in allowed)}
    folders = sorted(system.glob("node/node[0-9]*"), key=lambda folder: int(folder.name[4:]))
    members = {int(folder.name[4:]): set(parse_cpu_list(_text(folder / "cpulist"))) for folder in folders}
    if not members:  # a kernel without NUMA
        members = {0: set(allowed)}
    nodes = []
    for number, cpus in members.items():
        own = tuple(sorted(core for core in cores if core[0] in cpus))
        if own:
            nodes.append(NumaNode(number=number, cores=own))
    return tuple(nodes)


def _siblings(system: Path, cpu: int) -> set[int]:
    return set(parse_cpu_list(_text(system / f"cpu/cpu{cpu}/topology/thread_siblings_list"))) or {cpu}


def _gpus(devices: Path) -> Iterable[PciDevice]:
    for device in sorted(devices.glob("*")):
        if _text(device / "vendor") == NVIDIA and _text(device / "class").startswith(DISPLAY_CLASSES):
            yield _device(device.name, device)


def _hcas(infiniband: Path) -> Iterable[PciDevice]:
    for device in sorted(infiniband.glob("*"), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)]):
        if any("ACTIVE" in _text(port / "state") for port in device.glob("ports/*")):
            yield _device(device.name, device / "device")


def _device(name: str, link: Path) -> PciDevice:
    path = link.resolve()
    bridges = tuple(part for part in path.parts[:-1] if part.startswith("pci") or re.fullmatch(r"[0-9a-f]+:[0-9a-f:.]+", part))
    numa_node = _text(path / "numa_node")
    return PciDevice(name=name, numa_node=int(numa_node) if numa_node else -1, path=bridges)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
