"""What `--dry-run` shows of the binding: every rank works its own out on its node; here it is worked out on this host."""

from __future__ import annotations

import os

from launch.job import Job
from results.binding import Binding, bind_ranks, in_cuda_order
from results.topology import read_topology


def bindings_here(job: Job) -> list[Binding]:
    """The binding of each local rank if its node is like this host; empty where ranks are not bound."""
    if not job.bind or job.one_host:
        return []
    topology = in_cuda_order(read_topology(os.sched_getaffinity(0)), os.environ)
    return bind_ranks(topology, min(job.ranks, job.ranks_per_node))


def binding_lines(job: Job, bindings: list[Binding]) -> list[str]:
    """The same for people."""
    if not job.bind or job.one_host:
        return ["binding        none: ranks share the cores"]
    if not bindings:
        return [f"binding        none on a node like this host: it has fewer cores than ranks ({job.ranks_per_node})"]
    lines = [f"  local rank {binding.local_rank}: {binding}" for binding in bindings]
    return ["binding        on a node like this host; every rank reads the topology of its own", *lines]
