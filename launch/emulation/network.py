"""Switches, links and shaping of the emulated cluster, all inside its own network namespaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from launch.emulation.node import EmulationError, Node
from launch.emulation.packages import search_path
from launch.emulation.plan import MANAGEMENT, ClusterPlan
from results.rates import parse_rate

UNSHAPED = "unshaped"
CUT = "cut"
# A queue of this size holds 10 ms at 200 Mbit/s. With 1 MB or more, TCP's throughput halved.
BURST = LIMIT = "256kb"


def check_rate(rate: str) -> None:
    """Raise ConfigurationError unless `rate` is a rate, `unshaped` or `cut`."""
    if rate not in (UNSHAPED, CUT):
        parse_rate(rate)


def make_switches(fabric: Node, plan: ClusterPlan) -> None:
    """One bridge for the management network and one for each rail."""
    lines = []
    for network in (MANAGEMENT, *plan.rail_names):
        lines += [f"link add br-{network} type bridge", f"link set br-{network} up"]
    _batch(fabric, "ip", lines)


def connect(fabric: Node, node: Node, plan: ClusterPlan, rate: str) -> None:
    """Link a node to every switch, and shape its rails."""
    interfaces = plan.interfaces(node.name)
    switch_side, node_side = [], []
    for interface, address in interfaces.items():
        port = switch_port(node.name, interface)
        switch_side.append(f"link add {port} type veth peer name {interface} netns {node.pid}")
        switch_side.append(f"link set {port} master br-{interface} up")
        node_side += [f"addr add {address}/24 dev {interface}", f"link set {interface} up"]
    _batch(fabric, "ip", switch_side)
    _batch(node, "ip", node_side)
    rails = [interface for interface in interfaces if interface != MANAGEMENT]
    set_rate(fabric, node, rails, rate)


def set_rate(fabric: Node, node: Node, rails: Sequence[str], rate: str) -> None:
    """Limit the named rails of one node to `rate` in each direction; `cut` takes them down, `unshaped` sets no limit.

    Raises:
        ConfigurationError: `rate` is not a rate.
        EmulationError: the kernel refused.
    """
    check_rate(rate)
    state = "down" if rate == CUT else "up"
    _batch(fabric, "ip", [f"link set {switch_port(node.name, rail)} {state}" for rail in rails])
    if rate == CUT:
        return
    for side, devices in ((fabric, [switch_port(node.name, rail) for rail in rails]), (node, rails)):
        if rate == UNSHAPED:
            shaped = [device for device in devices if "tbf" in _run(side, ["tc", "qdisc", "show", "dev", device])]
            _batch(side, "tc", [f"qdisc del dev {device} root" for device in shaped])
        else:
            limit = f"tbf rate {rate} burst {BURST} limit {LIMIT}"
            _batch(side, "tc", [f"qdisc replace dev {device} root {limit}" for device in devices])


def switch_port(name: str, interface: str) -> str:
    """Name of the switch's end of a link (at most 15 characters, as the kernel wants)."""
    return f"{name}-{interface}"


def shown_rate(fabric: Node, name: str, rail: str) -> str:
    """Present rate of one rail of one node as the kernel tells it: `200Mbit`, `unshaped` or `cut`."""
    port = switch_port(name, rail)
    flags = _run(fabric, ["ip", "-o", "link", "show", "dev", port]).split("<")[1].split(">")[0].split(",")
    if "UP" not in flags:
        return CUT
    words = _run(fabric, ["tc", "qdisc", "show", "dev", port]).split()
    return words[words.index("rate") + 1] if "tbf" in words else UNSHAPED


def _batch(node: Node, program: str, lines: Sequence[str]) -> None:
    """Run lines of ip(8) or tc(8) in a node's network with one process."""
    if lines:
        _run(node, [program, "-batch", "-"], given="\n".join(lines) + "\n")


def _run(node: Node, command: Sequence[str], given: str | None = None) -> str:
    environment = os.environ | {"PATH": search_path()}
    done = subprocess.run(node.inside_network(command), input=given, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        why = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[0]
        raise EmulationError(f"network of {node.name}: {command[0]}: {why}")
    return done.stdout
