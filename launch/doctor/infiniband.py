"""HCAs and the links of their ports, as the kernel shows them under /sys/class/infiniband."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from launch.doctor.machine import Finding, Level, Machine
from launch.interconnect import Interconnect

LANES = 4
"""Of a port of HDR and before; fewer mean a bad cable, connector or switch port."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Port:
    """One port of one HCA."""

    name: str
    """As NCCL and UCX write it: `mlx5_0:1`."""
    state: str
    """ACTIVE, INIT, DOWN, …"""
    physical: str
    """LinkUp, Polling, Disabled, …"""
    rate: str
    """The kernel's words: `100 Gb/sec (4X EDR)`."""
    link_layer: str
    """InfiniBand or Ethernet (RoCE)."""

    @property
    def gbit_per_s(self) -> float:
        found = re.match(r"[\d.]+", self.rate)
        return float(found[0]) if found else 0.0

    @property
    def lanes(self) -> int | None:
        found = re.search(r"\((\d+)X", self.rate)
        return int(found[1]) if found else None


def ports(machine: Machine) -> list[Port]:
    """Every port of every HCA."""
    found = []
    for hca in machine.folders("/sys/class/infiniband"):
        for port in machine.folders(f"/sys/class/infiniband/{hca.name}/ports"):
            words = {name: _word(machine, port, name) for name in ("state", "phys_state", "rate", "link_layer")}
            found.append(
                Port(
                    name=f"{hca.name}:{port.name}", state=words["state"], physical=words["phys_state"], rate=words["rate"],
                    link_layer=words["link_layer"],
                )
            )  # fmt: skip
    return found


def _word(machine: Machine, port: Path, name: str) -> str:
    """A port's attribute without the number before it: `4: ACTIVE` is ACTIVE."""
    text = machine.text(str(port.relative_to(machine.root) / name)) or "unknown"
    return text.partition(": ")[2] or text


def findings(machine: Machine, asked: Interconnect | None) -> list[Finding]:
    """A line for each port that matters: those that the interconnect asks for, else all that there are."""
    there = {port.name: port for port in ports(machine)}
    wanted = asked.devices if asked and asked.kind in ("infiniband", "roce") else []
    missing = [name for name in wanted if name not in there]
    lines = [
        Finding(
            part=f"hca {name}", level="broken", found=f"{asked.name if asked else ''} asks for it, but there is no such port",
            remedy=f"name yours in the site profile, devices: {{infiniband: [{', '.join(there) or '…'}]}}",
        )
        for name in missing
    ]  # fmt: skip
    if not there and not wanted:
        return [Finding(part="hca", level="ok", found="no InfiniBand here")]
    fastest = max((port.gbit_per_s for port in there.values() if port.state == "ACTIVE"), default=0.0)
    for port in there.values():
        if not wanted or port.name in wanted:
            rate = asked.rate_gbit_per_s if asked and wanted else None
            lines.append(_judge(port, expected_gbit_per_s=rate or fastest, needed=bool(wanted)))
            lines += _slot(machine, port)
    return lines


def _judge(port: Port, *, expected_gbit_per_s: float, needed: bool) -> Finding:
    part = f"hca {port.name}"
    if port.state != "ACTIVE":
        remedy = {
            "INIT": "start a subnet manager: systemctl start opensm on one node, or the switch's own (ibstat, sminfo)",
            "ARMED": "start a subnet manager: systemctl start opensm on one node, or the switch's own (ibstat, sminfo)",
        }.get(
            port.state, "plug in its cable or enable the switch port (iblinkinfo), or leave it out of the site profile's devices"
        )
        level: Level = "broken" if needed else "warning"
        return Finding(part=part, level=level, found=f"{port.state}, {port.physical}", remedy=remedy)
    told = f"ACTIVE, {port.rate}, {port.link_layer}"
    slow = port.gbit_per_s < expected_gbit_per_s
    narrow = port.lanes is not None and port.lanes < LANES and port.link_layer == "InfiniBand"
    if slow or narrow:
        found = f"{told}: degraded" + (f", {expected_gbit_per_s:g} Gb/sec expected" if slow else f", {LANES} lanes expected")
        remedy = "seat or change the cable, then ibportstate -D 0 PORT reset; iblinkinfo shows what both ends can do"
        return Finding(part=part, level="broken" if needed else "warning", found=found, remedy=remedy)
    return Finding(part=part, level="ok", found=told)


def _slot(machine: Machine, port: Port) -> list[Finding]:
    """A warning when the HCA's PCIe slot gives it fewer lanes or a lower speed than it can use."""
    hca = port.name.partition(":")[0]
    words = {
        name: machine.text(f"/sys/class/infiniband/{hca}/device/{name}")
        for name in ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")
    }
    width, most, speed, fastest = (words[name] for name in words)
    if None in (width, most, speed, fastest) or (width == most and _number(speed) >= _number(fastest)):
        return []
    found = f"its slot runs at {speed} x{width} of {fastest} x{most}"
    return [Finding(part=f"pcie {hca}", level="warning", found=found, remedy="another slot, or the BIOS's setting of this one")]


def _number(text: str | None) -> float:
    found = re.match(r"[\d.]+", text or "")
    return float(found[0]) if found else 0.0
