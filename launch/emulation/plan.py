"""What an emulated cluster consists of: names, addresses, rails, and where its files lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt

from results.model import Document

HEAD = "head"
"""The login node; it also runs slurmctld."""
FABRIC = "fabric"
"""Not a node: a network namespace that holds the switches."""
MANAGEMENT = "eth0"


class ClusterPlan(Document):
    """Size and shape of an emulated cluster; `cluster.json` in the state folder."""

    nodes: Annotated[int, Field(ge=1, le=99)]
    rails: Annotated[int, Field(ge=1, le=8)]
    rate: str
    """Rate of each rail in each direction when the cluster came up, for example `200mbit`, or `unshaped`."""
    cpus_per_node: PositiveInt
    """Processors that Slurm believes each node to have."""
    memory_mb: PositiveInt
    """Memory that Slurm believes each node to have, in MiB; all nodes really share the memory of one machine."""

    @property
    def node_names(self) -> list[str]:
        return [f"node{number:02d}" for number in range(1, self.nodes + 1)]

    @property
    def rail_names(self) -> list[str]:
        return [f"ib{rail}" for rail in range(self.rails)]

    @property
    def node_list(self) -> str:
        """All nodes in Slurm's own notation."""
        return f"node[01-{self.nodes:02d}]"

    def management_address(self, name: str) -> str:
        """IPv4 address of a node, or of the head, in the unshaped management network."""
        return "10.10.0.254" if name == HEAD else f"10.10.0.{self._number(name)}"

    def rail_address(self, name: str, rail: str) -> str:
        """IPv4 address of a node on a rail; each rail is a network of its own, as on a cluster with separate switches."""
        return f"10.10.{self.rail_names.index(rail) + 1}.{self._number(name)}"

    def interfaces(self, name: str) -> dict[str, str]:
        """Interface names of a node and their addresses; the head has no rails."""
        rails = {} if name == HEAD else {rail: self.rail_address(name, rail) for rail in self.rail_names}
        return {MANAGEMENT: self.management_address(name), **rails}

    def _number(self, name: str) -> int:
        return self.node_names.index(name) + 1


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Names within the folder that holds all state of one cluster."""

    path: Path

    @property
    def plan(self) -> Path:
        """The `ClusterPlan`; its presence says that this folder is ours."""
        return self.path / "cluster.json"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def etc(self) -> Path:
        """Configuration files that the nodes see."""
        return self.path / "etc"

    @property
    def log(self) -> Path:
        """One log per daemon and node."""
        return self.path / "log"

    @property
    def slurm_state(self) -> Path:
        """Where slurmctld keeps its jobs; kept on disk so that a restarted slurmctld knows them."""
        return self.path / "slurmctld"

    @property
    def scratch(self) -> Path:
        """Node-local scratch: the same path on every node, another folder behind it."""
        return self.path / "scratch"

    def node_scratch(self, name: str) -> Path:
        """The folder behind `scratch` on one node."""
        return self.path / "nodes" / name

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def ssh_key(self) -> Path:
        return self.etc / "ssh_user_key"

    @property
    def ssh_host_key(self) -> Path:
        return self.etc / "ssh_host_key"

    @property
    def munge_key(self) -> Path:
        return self.etc / "munge.key"
