"""An interconnect configuration: one object that sets NCCL, UCX, Open MPI and gloo together.

They must agree: UCX takes two rails on its own, and NCCL falls back to sockets in silence (facts: NCCL environment variables,
docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; UCX docs/source/faq.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat

from results.model import Document
from results.yaml_file import ConfigurationError, load_document, nearest

FOLDER = Path(__file__).parent / "interconnects"


class Interconnect(Document):
    """One way in which the nodes are joined."""

    name: str
    description: str
    kind: Literal["infiniband", "roce", "ethernet", "loopback"]
    rails: NonNegativeInt
    """Network devices that carry the gradients, per node."""
    rate_gbit_per_s: PositiveFloat | None = None
    """Line rate of one rail."""
    devices: list[str] = []
    """InfiniBand or RoCE ports (`mlx5_0:1`) or interfaces (`eth0`), one for each rail; a site profile may rename them."""
    management_interfaces: list[str] = []
    """Interfaces for start-up and control traffic; empty: all but loopback."""
    roce_gid_index: NonNegativeInt | None = None

    def environment(self) -> dict[str, str]:
        """Environment variables for every rank: NCCL, UCX, Open MPI (as `OMPI_MCA_…`) and gloo."""
        if self.kind in ("infiniband", "roce"):
            return self._rdma()
        interfaces = ",".join(self.devices)
        found = {"NCCL_IB_DISABLE": "1", "OMPI_MCA_pml": "ob1"}
        if self.kind == "ethernet":
            # With the default (put), the go-ahead for one direction waits behind the bulk of the other on the same connection,
            # and an exchange of two nodes takes twice as long. `btl_tcp_links=2` mends that on one interface and hangs on two.
            found["OMPI_MCA_btl_tcp_flags"] = "send"
        if interfaces:
            found |= {
                "NCCL_SOCKET_IFNAME": f"={interfaces}",
                "GLOO_SOCKET_IFNAME": self.devices[0],
                "OMPI_MCA_btl_tcp_if_include": interfaces,
                "UCX_NET_DEVICES": interfaces,
            }
        return found

    def _rdma(self) -> dict[str, str]:
        found = {
            # `=` is an exact match: without it mlx5_1 would take mlx5_10 as well.
            "NCCL_IB_HCA": f"={','.join(self.devices)}",
            "NCCL_IB_DISABLE": "0",
            "UCX_NET_DEVICES": ",".join(self.devices),
            # UCX stripes over its two best devices unless it is held back.
            "UCX_MAX_RNDV_RAILS": str(self.rails),
            "UCX_MAX_EAGER_RAILS": "1",
            "OMPI_MCA_pml": "ucx",
            "OMPI_MCA_osc": "ucx",
            # No sockets beside UCX: a fall back to them must fail, not be timed.
            "OMPI_MCA_btl": "^openib,tcp",
        }
        if self.rails > 1:
            # Rails of one node reach the same rails of the others, as in a rail-optimised fabric.
            found["NCCL_CROSS_NIC"] = "0"
        if self.management_interfaces:
            found["NCCL_SOCKET_IFNAME"] = f"={','.join(self.management_interfaces)}"
            found["GLOO_SOCKET_IFNAME"] = self.management_interfaces[0]
        if self.roce_gid_index is not None:
            found |= {"NCCL_IB_GID_INDEX": str(self.roce_gid_index), "UCX_IB_GID_INDEX": str(self.roce_gid_index)}
        return found


def names() -> list[str]:
    """Names of the configurations that come with this project."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_interconnect(name: str) -> Interconnect:
    """A configuration by name, or from the user's own YAML file.

    Raises:
        ConfigurationError: there is none.
    """
    if name.endswith((".yaml", ".yml")):
        return load_document(Path(name), Interconnect)
    if name not in names():
        raise ConfigurationError(f"unknown interconnect {name}{nearest(name, names())}")
    return load_document(FOLDER / f"{name}.yaml", Interconnect)
