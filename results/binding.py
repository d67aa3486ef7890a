"""Which cores each rank of a node runs on, by the topology of the node: near its GPU, an equal share of what is there.

Every rank works this out for itself from its own node's sysfs when it starts, and binds itself before anything heavy is imported;
launchers are told to bind nothing. So it is the same under mpirun, srun, horovodrun and without a launcher, on nodes that differ
from the one that launches, and whatever the MPI. Memory follows by first touch. NCCL and UCX choose the nearest InfiniBand device
from the GPU and the cores on their own, which is why the nearest is shown and recorded, but forced on neither.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from results.topology import Core, NumaNode, PciDevice, Topology, read_topology, show_cpu_list

VARIABLE = "TRAINSCALE_BIND"
"""Number of ranks on the node; set by `launch` where ranks are to bind themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Binding:
    """One local rank's place on its node."""

    local_rank: int
    cpus: tuple[int, ...]
    """Hardware threads that it runs on."""
    numa_nodes: tuple[int, ...]
    """Of these cores."""
    gpu: str | None = None
    hca: str | None = None
    """The nearest InfiniBand device."""

    def __str__(self) -> str:
        gpu = f"GPU {self.gpu}, " if self.gpu else ""
        hca = f", nearest HCA {self.hca}" if self.hca else ""
        node = ", ".join(map(str, self.numa_nodes))
        return f"{gpu}cores {show_cpu_list(self.cpus)}, NUMA node {node}{hca}"


def bind_ranks(topology: Topology, local_ranks: int) -> list[Binding]:
    """The binding of each local rank; empty where there are fewer cores than ranks, so that binding would pile them up.

    Rank i drives GPU i and shares the cores of its NUMA node with the ranks of the other GPUs there. Where there are fewer GPUs
    than ranks, or where near is out of reach (the kernel does not know the node, or the process may use too few of its cores),
    all cores are dealt in their order.
    """
    cores = [core for node in topology.numa_nodes for core in node.cores]
    if len(cores) < local_ranks:
        return []
    gpus = topology.gpus[:local_ranks] if len(topology.gpus) >= local_ranks else ()
    shares = _near(topology.numa_nodes, gpus)
    if not shares or not all(shares):
        shares = [_share(cores, local_ranks, rank) for rank in range(local_ranks)]
    found = []
    for rank, share in enumerate(shares):
        gpu = gpus[rank] if gpus else None
        own = tuple(node.number for node in topology.numa_nodes if set(node.cores) & set(share))
        binding = Binding(
            local_rank=rank,
            cpus=tuple(sorted(cpu for core in share for cpu in core)),
            numa_nodes=own,
            gpu=gpu.name if gpu else None,
            hca=_nearest(topology.hcas, gpu, own, rank),
        )
        found.append(binding)
    return found


def _near(nodes: Sequence[NumaNode], gpus: Sequence[PciDevice]) -> list[list[Core]]:
    """Each rank's cores on the node of its GPU."""
    cores = {node.number: node.cores for node in nodes}
    homes = [gpu.numa_node for gpu in gpus]
    return [_share(cores.get(home, ()), homes.count(home), homes[:rank].count(home)) for rank, home in enumerate(homes)]


def _share(cores: Sequence[Core], ranks: int, place: int) -> list[Core]:
    """The cores of one of `ranks` that share `cores`: blocks of equal size, which leave over what cannot be dealt equally."""
    size = len(cores) // ranks
    return list(cores[place * size : (place + 1) * size])


def _nearest(hcas: Sequence[PciDevice], gpu: PciDevice | None, numa_nodes: tuple[int, ...], rank: int) -> str | None:
    """By bridges in common with the GPU, then by NUMA node; ranks take turns where several are as near."""

    def distance(hca: PciDevice) -> tuple[int, bool]:
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(hca.path, gpu.path, strict=False))) if gpu else 0
        return -common, hca.numa_node not in numa_nodes

    best = min(map(distance, hcas), default=None)
    equal = [hca for hca in hcas if distance(hca) == best]
    return equal[rank % len(equal)].name if equal else None


def own_binding(local_rank: int, environ: Mapping[str, str]) -> Binding | None:
    """What the rank that calls this is to be bound to; None where nobody asked, or where there are too few cores.

    What a launcher may have bound this process to is undone first: its share of the node is worked out here.
    """
    if VARIABLE not in environ:
        return None
    os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))  # the kernel keeps to the cpuset of the job
    topology = in_cuda_order(read_topology(os.sched_getaffinity(0)), environ)
    found = bind_ranks(topology, int(environ[VARIABLE]))
    return found[local_rank] if local_rank < len(found) else None


def in_cuda_order(topology: Topology, environ: Mapping[str, str]) -> Topology:
    """The same with the GPUs as CUDA numbers them where CUDA_VISIBLE_DEVICES picks several by number.

    One alone is a launcher's way to show each rank its own, and says nothing of the others'.
    """
    picked = [word.strip() for word in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if len(picked) < 2 or not all(word.isdigit() and int(word) < len(topology.gpus) for word in picked):
        return topology
    return replace(topology, gpus=tuple(topology.gpus[int(word)] for word in picked))
