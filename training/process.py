"""Where this process stands among the ranks, told by the launcher's environment, before anything heavy is imported."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace

import psutil

from results.binding import Binding, own_binding

# (rank, size, local rank) as each launcher names them. The order matters: under mpirun inside a Slurm allocation
# SLURM_LOCALID is always 0, so Open MPI's own variables come first.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


PR_SET_PDEATHSIG = 1


def die_with_launcher() -> None:
    """Let the kernel end this rank when the launcher's daemon that started it is gone, even by kill -9."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def created_s() -> float:
    """When the kernel created this process, before Python was there to take the time; seconds since 1970."""
    return float(psutil.Process().create_time())


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """One rank's place in the job."""

    rank: int
    size: int
    local_rank: int
    binding: Binding | None = None
    """What this process is bound to; None: nothing was asked, or there are fewer cores than ranks."""


def rank_place(environ: Mapping[str, str] | None = None) -> RankPlace:
    """Rank, size and local rank; a process that no launcher started is rank 0 of 1."""
    environ = os.environ if environ is None else environ
    for names in LAUNCHERS:
        if all(name in environ for name in names):
            rank, size, local_rank = (int(environ[name]) for name in names)
            return RankPlace(rank=rank, size=size, local_rank=local_rank)
    return RankPlace(rank=0, size=1, local_rank=0)


def bind(place: RankPlace, environ: Mapping[str, str] | None = None) -> RankPlace:
    """Bind this process to its share of the node where the launch asks for it; every thread from here on inherits that.

    To be called before torch is imported: its thread pools count the cores that they find.
    """
    binding = own_binding(place.local_rank, os.environ if environ is None else environ)
    if binding is not None:
        os.sched_setaffinity(0, binding.cpus)
    return replace(place, binding=binding)
