"""The network interfaces that an interconnect configuration names, as the kernel shows them under /sys/class/net."""

from __future__ import annotations

from launch.doctor.machine import Finding, Machine
from launch.interconnect import Interconnect


def findings(machine: Machine, asked: Interconnect | None) -> list[Finding]:
    """A line for each interface that gradients or start-up shall take; none where no configuration names any."""
    if asked is None:
        return []
    rails = asked.devices if asked.kind == "ethernet" else []
    names = dict.fromkeys([*rails, *asked.management_interfaces])
    return [_judge(machine, name, asked.rate_gbit_per_s if name in rails else None) for name in names]


def _judge(machine: Machine, name: str, expected_gbit_per_s: float | None) -> Finding:
    part = f"interface {name}"
    state = machine.text(f"/sys/class/net/{name}/operstate")
    if state is None:
        there = ", ".join(entry.name for entry in machine.folders("/sys/class/net"))
        remedy = f"name yours in the site profile (devices, management_interfaces): {there}"
        return Finding(part=part, level="broken", found="there is no such interface", remedy=remedy)
    if state not in ("up", "unknown"):  # a driver that does not tell says `unknown`
        return Finding(part=part, level="broken", found=state, remedy=f"ip link set {name} up; ethtool {name} tells of the cable")
    speed = machine.text(f"/sys/class/net/{name}/speed") or ""
    gbit_per_s = int(speed) / 1000 if speed.isdigit() else None
    told = f"{state}, {gbit_per_s:g} Gb/sec" if gbit_per_s else state
    if gbit_per_s and expected_gbit_per_s and gbit_per_s < expected_gbit_per_s:
        remedy = f"ethtool {name}: what both ends offer, and the cable"
        return Finding(part=part, level="broken", found=f"{told}: {expected_gbit_per_s:g} Gb/sec expected", remedy=remedy)
    return Finding(part=part, level="ok", found=told)
