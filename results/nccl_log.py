"""What NCCL's own log (`NCCL_DEBUG=INFO`) says of the network it uses.

Formats seen from NCCL 2.3 to 2.27; sources of recorded logs stand beside the tests' data. Lines look like
`host:pid:tid [gpu] NCCL INFO message`, often with a prefix of the launcher before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_LINE = re.compile(r"(?P<host>[^\s:\[\]>|]+):(?P<pid>\d+):\d+ \[-?\d+\] NCCL INFO (?P<message>.*)$")
_PORT = re.compile(r"\[(\d+)\] ?([A-Za-z]\w*:\d+)/(?:IB|RoCE)")
_SOCKET = re.compile(r"\[(\d+)\] ?([^\s:]+):\S+<\d+>")
_VIRTUAL = re.compile(r"Made virtual device \[(\d+)\] name=(\S+)")
_NETWORK = re.compile(r"Using (?:internal )?[Nn]etwork (\S+)")
_PATH = re.compile(r" via NET/([^/\s]+)/(\d+)(/GDRDMA)?")
_TELLING = ("NET/IB : Using", "NET/Socket : Using", "NET/IB : No device", "etwork ", "GPU Direct RDMA", "Made virtual device")


@dataclass(slots=True)
class NcclNetwork:
    """The network that NCCL uses on one host."""

    host: str
    kind: str = ""
    """`IB` (InfiniBand or RoCE), `Socket`, the name of a plugin, or empty when the log does not say."""
    ports: dict[int, set[str]] = field(default_factory=dict)
    """InfiniBand ports by NCCL's index; a virtual device that NCCL merged has several."""
    interfaces: dict[int, set[str]] = field(default_factory=dict)
    """Interfaces of its sockets by NCCL's index. NCCL may name them although it then uses InfiniBand."""
    connections: dict[str, set[int]] = field(default_factory=dict)
    """Indices that connections between nodes go through, by kind."""
    gpu_direct: bool = False
    """Some connection goes from GPU memory to the HCA without the host's memory (GDRDMA)."""
    lines: list[str] = field(default_factory=list)
    """The telling messages, each once, with the host before them."""

    @property
    def devices(self) -> set[str]:
        """Devices that NCCL found for the network it uses."""
        by_index = {"IB": self.ports, "Socket": self.interfaces}.get(self.kind, {})
        return set().union(*by_index.values()) if by_index else set()

    @property
    def used_devices(self) -> set[str]:
        """Devices that connections between nodes go through; all found ones when the log lists no connections."""
        by_index = {"IB": self.ports, "Socket": self.interfaces}.get(self.kind, {})
        used = [by_index[index] for index in self.connections.get(self.kind, ()) if index in by_index]
        return set().union(*used) if used else self.devices


def read(lines: Iterable[str]) -> list[NcclNetwork]:
    """The network of each host that has NCCL lines in a log, in order of appearance."""
    found: dict[str, NcclNetwork] = {}
    for line in lines:
        matched = _LINE.search(line.rstrip())
        if matched:
            network = found.setdefault(matched["host"], NcclNetwork(matched["host"]))
            _take(network, matched["message"])
    for network in found.values():
        network.kind = network.kind or _guess(network)
    return list(found.values())


def _take(network: NcclNetwork, message: str) -> None:
    if message.startswith(("NET/IB : Using", "NET/IB: [")):
        # What follows the semicolon is the interface of the out-of-band exchange, not a rail.
        for index, port in _PORT.findall(message.split(";")[0]):
            network.ports.setdefault(int(index), set()).add(port)
    elif message.startswith("NET/Socket : Using"):
        for index, interface in _SOCKET.findall(message):
            network.interfaces.setdefault(int(index), set()).add(interface)
    elif (virtual := _VIRTUAL.search(message)) is not None:
        names = virtual[2].split("+")
        network.ports[int(virtual[1])] = {
            port for ports in network.ports.values() for port in ports if port.split(":")[0] in names
        }
    elif (named := _NETWORK.match(message)) is not None:
        network.kind = named[1]
    elif (path := _PATH.search(message)) is not None:
        kind = path[1]
        first = kind not in network.connections
        network.connections.setdefault(kind, set()).add(int(path[2]))
        network.gpu_direct = network.gpu_direct or path[3] is not None
        if first:
            network.lines.append(f"{network.host}: {message}")
    if any(word in message for word in _TELLING) and f"{network.host}: {message}" not in network.lines:
        network.lines.append(f"{network.host}: {message}")


def _guess(network: NcclNetwork) -> str:
    """The network where NCCL (before 2.8) does not name it: by its connections, else InfiniBand before sockets."""
    default = "IB" if network.ports else "Socket" if network.interfaces else ""
    return next(iter(network.connections), default)
