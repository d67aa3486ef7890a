"""Byte counters of network devices before and after the timed part of a run, and what they say about the rails it used."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from results.model import Document, write_atomically
from results.nccl_log import NcclNetwork
from results.record import RailBytes, RailEvidence

CounterSource = Literal["infiniband-port-counters", "interface-counters"]

IN_VAIN = 0.1
"""An asked rail that exchanged less than this share of its even part was there in vain."""
ELSEWHERE = 0.1
"""A device that was not asked for may exchange up to this share of what the training must have exchanged on its node."""
TOO_LITTLE = 0.5
"""Asked rails that together exchanged less than this share of the least possible were not the way that the training took."""
NOISE_BYTES = 2**20
"""ssh, Slurm, DNS and the like: less than this proves nothing, for or against."""

_STUCK = 2**32 - 1  # counters of old InfiniBand firmware have 32 bits and stay at the end


class DeviceCounter(Document):
    """What one network device has carried since it came up."""

    device: str
    """`mlx5_0:1` for an InfiniBand (or RoCE) port, `ib0` for an interface."""
    source: CounterSource
    received_bytes: int
    transmitted_bytes: int
    linked: list[str] = []
    """Interfaces that count the same bytes: members of a bond, VLANs, bridges."""


class NodeCounters(Document):
    """The counters of one node at one moment."""

    host: str
    time_s: float
    devices: list[DeviceCounter]


class RailSample(Document):
    """`rails-before.json` and `rails-after.json`: the counters of every node."""

    nodes: list[NodeCounters]


class AskedRails(Document):
    """The devices that an interconnect configuration names."""

    source: CounterSource
    """Which kind of device, and so which counters tell about it."""
    devices: list[str]
    """Device names; an InfiniBand device without a port means any port of it. Empty: the configuration leaves the choice open."""


def read_counters(sys_class: Path = Path("/sys/class")) -> list[DeviceCounter]:
    """Counters of every InfiniBand port and every interface but `lo`.

    The data counters of InfiniBand ports count in words of 4 bytes
    (kernel documentation, ABI/stable/sysfs-class-infiniband); those of interfaces count in bytes.
    """
    return [*_port_counters(sys_class), *_interface_counters(sys_class)]


def node_counters(sys_class: Path = Path("/sys/class")) -> NodeCounters:
    """The counters of this node now; one rank per node calls this right before run_start and right after run_stop."""
    return NodeCounters(host=platform.node(), time_s=time.time(), devices=read_counters(sys_class))


def write_sample(path: Path, nodes: Iterable[NodeCounters]) -> None:
    """Write the counters of all nodes, each node once."""
    unique = {node.host: node for node in nodes}
    write_atomically(path, RailSample(nodes=[unique[host] for host in sorted(unique)]).model_dump_json(indent=1) + "\n")


def read_sample(path: Path) -> RailSample | None:
    """The counters in a file, or None when there is no such file or it is cut."""
    try:
        return RailSample.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def carried(before: RailSample, after: RailSample) -> list[RailBytes]:
    """Bytes that each device carried between two samples.

    A device is left out when it is in one sample only, when a counter ran backwards (its driver was loaded again),
    or when a 32-bit counter is stuck at its end.
    """
    earlier = {(node.host, device.device): device for node in before.nodes for device in node.devices}
    found = []
    for node in after.nodes:
        for device in node.devices:
            start = earlier.get((node.host, device.device))
            if start is None or _STUCK * 4 in (device.received_bytes, device.transmitted_bytes):
                continue
            received = device.received_bytes - start.received_bytes
            transmitted = device.transmitted_bytes - start.transmitted_bytes
            if received >= 0 and transmitted >= 0:
                found.append(
                    RailBytes(
                        host=node.host,
                        device=device.device,
                        received_bytes=received,
                        transmitted_bytes=transmitted,
                        source=device.source,
                    )
                )
    return found


def judge(
    *,
    asked: AskedRails,
    before: RailSample | None,
    after: RailSample | None,
    least_exchange_bytes: int | None,
    nccl: Sequence[NcclNetwork] = (),
) -> RailEvidence:
    """Whether the asked rails, and no others, carried the gradients.

    What a device *exchanged* is the smaller of its received and transmitted bytes. An allreduce sends about as much as it
    receives on every node, while reading data or writing checkpoints over the network goes one way; so storage traffic,
    which can be far more than the gradients, does not count.

    Args:
        asked: what the interconnect configuration names.
        before, after: samples around the timed part; None when they are missing.
        least_exchange_bytes: what any allreduce must at least send from, and bring to, each node over the whole timed part:
            the size of the gradients times the number of exchanges (a leaf of a tree sends its sum once and gets the result
            once; a ring exchanges up to twice that). None when unknown: then shares are of what the node exchanged.
        nccl: what NCCL's own log says, where it ran.
    """
    rails = carried(before, after) if before and after else []
    lines = [line for network in nccl for line in network.lines][:40]

    def verdict(value: Literal["as-asked", "rails-differ", "not-checked"], reason: str) -> RailEvidence:
        return RailEvidence(verdict=value, reason=reason, rails=rails, nccl_lines=lines)

    if not asked.devices:
        return verdict("not-checked", "the interconnect configuration names no devices")
    if after is not None and len({node.host for node in after.nodes}) == 1:
        return verdict("as-asked", "one node: no gradients had to leave it")
    if (contradiction := _nccl_contradiction(asked, nccl)) is not None:
        return verdict("rails-differ", contradiction)
    if before is None or after is None:
        return verdict("not-checked", "no device counters were taken")
    linked = _linked(after, asked)
    faults = [
        _node_fault(node.host, [rail for rail in rails if rail.host == node.host], asked, linked[node.host], least_exchange_bytes)
        for node in after.nodes
    ]
    found = sorted((fault for fault in faults if fault is not None), key=lambda fault: not fault.proved)
    if found:
        return verdict("rails-differ" if found[0].proved else "not-checked", found[0].reason)
    return verdict("as-asked", _shares(rails, asked))


def exchanged_bytes(rail: RailBytes) -> int:
    """The smaller of received and transmitted bytes: see `judge`."""
    return min(rail.received_bytes, rail.transmitted_bytes)


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why one node is not as asked: proved, or only impossible to check."""

    proved: bool
    reason: str


def _node_fault(
    host: str, here: list[RailBytes], asked: AskedRails, linked: set[str], least_exchange_bytes: int | None
) -> _Fault | None:
    """The fault of one node, by what each of its devices carried; None when it is as asked."""
    own = {name: sum(exchanged_bytes(rail) for rail in here if _is(rail.device, name)) for name in asked.devices}
    others = {
        rail.device: exchanged_bytes(rail)
        for rail in here
        if not any(_is(rail.device, name) for name in asked.devices)
        and rail.device not in linked
        # A port of an HCA also counts what its own interface carries as sockets (IP over InfiniBand).
        and not (asked.source == "interface-counters" and rail.source == "infiniband-port-counters")
    }
    total = sum(own.values())
    least = least_exchange_bytes if least_exchange_bytes is not None else total + sum(others.values())
    if least < NOISE_BYTES:
        return _Fault(False, f"{host} exchanged too little to tell which rail did it")
    for name, size in others.items():
        if size > max(ELSEWHERE * least, NOISE_BYTES):
            return _Fault(True, f"on {host}, {name} exchanged {_size(size)}, and {_names(asked)} was asked for")
    for name, size in own.items():
        if not any(_is(rail.device, name) for rail in here):
            return _Fault(False, f"{host} has no readable counters of {name}")
        if size < IN_VAIN * least / len(own):
            return _Fault(True, f"on {host}, {name} was asked for and exchanged only {_size(size)} of {_size(least)} at least")
    if total < TOO_LITTLE * least:
        return _Fault(True, f"on {host}, {_names(asked)} exchanged {_size(total)}, and training needs at least {_size(least)}")
    return None


def _nccl_contradiction(asked: AskedRails, nccl: Sequence[NcclNetwork]) -> str | None:
    """How NCCL's own log contradicts what was asked for."""
    for network in nccl:
        if network.kind not in ("IB", "Socket") or not network.devices:
            continue  # a plugin, or no word of the network: the counters must tell
        used = sorted(network.used_devices)
        if network.kind == "Socket" and asked.source == "infiniband-port-counters":
            return f"on {network.host}, NCCL fell back to sockets over {', '.join(used)}"
        if network.kind == "IB" and asked.source == "interface-counters":
            return f"on {network.host}, NCCL used InfiniBand ({', '.join(used)}), and {_names(asked)} was asked for"
        other = [device for device in used if not any(_is(device, name) for name in asked.devices)]
        if other:
            return f"on {network.host}, NCCL used {', '.join(other)}, and {_names(asked)} was asked for"
        idle = [name for name in asked.devices if not any(_is(device, name) for device in used)]
        if idle:
            return f"on {network.host}, NCCL used {', '.join(used)} and not {', '.join(idle)}"
    return None


def _linked(sample: RailSample, asked: AskedRails) -> dict[str, set[str]]:
    """Per host, the interfaces that count the same bytes as an asked one."""
    found: dict[str, set[str]] = {}
    for node in sample.nodes:
        own = {device.device for device in node.devices if any(_is(device.device, name) for name in asked.devices)}
        near = {name for device in node.devices if device.device in own for name in device.linked}
        found[node.host] = near | {device.device for device in node.devices if own & set(device.linked)}
    return found


def _is(device: str, name: str) -> bool:
    """True when a device is the one that a configuration names; a name without a port means any port."""
    return device == name or (":" not in name and device.split(":")[0] == name)


def _shares(rails: list[RailBytes], asked: AskedRails) -> str:
    """One line: what each asked rail carried over all nodes."""
    sizes = {name: sum(exchanged_bytes(rail) for rail in rails if _is(rail.device, name)) for name in asked.devices}
    total = sum(sizes.values())
    return "exchanged over all nodes: " + ", ".join(f"{name} {_size(size)} ({size / total:.0%})" for name, size in sizes.items())


def _names(asked: AskedRails) -> str:
    return " + ".join(asked.devices)


def _size(size_bytes: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes} bytes"


def _port_counters(sys_class: Path) -> list[DeviceCounter]:
    found = []
    for port in sorted(sys_class.glob("infiniband/*/ports/*")):
        received, transmitted = (_number(port / "counters" / name) for name in ("port_rcv_data", "port_xmit_data"))
        if received is not None and transmitted is not None:
            name = f"{port.parent.parent.name}:{port.name}"
            found.append(
                DeviceCounter(
                    device=name,
                    source="infiniband-port-counters",
                    received_bytes=4 * received,
                    transmitted_bytes=4 * transmitted,
                )
            )
    return found


def _interface_counters(sys_class: Path) -> list[DeviceCounter]:
    found = []
    for device in sorted(sys_class.glob("net/*")):
        received, transmitted = (_number(device / "statistics" / name) for name in ("rx_bytes", "tx_bytes"))
        if device.name != "lo" and received is not None and transmitted is not None:
            linked = [entry.name.split("_", 1)[1] for side in ("lower_*", "upper_*") for entry in sorted(device.glob(side))]
            found.append(
                DeviceCounter(
                    device=device.name,
                    source="interface-counters",
                    received_bytes=received,
                    transmitted_bytes=transmitted,
                    linked=linked,
                )
            )
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
