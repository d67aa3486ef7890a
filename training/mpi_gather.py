"""Large objects from all ranks to rank 0 over MPI, one rank after the other."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def gather_to_first(value: T) -> list[T]:
    """Values of all ranks in rank order on rank 0, an empty list elsewhere; collective.

    One rank at a time, and arrays out of band (pickle protocol 5): rank 0 never holds more than one copy of what it gathers, and
    that may pass the 2 GiB that one MPI message can count.
    """
    from mpi4py import MPI
    from mpi4py.util import pkl5

    world = pkl5.Intracomm(MPI.COMM_WORLD)
    if world.Get_rank() != 0:
        world.send(value, dest=0)
        return []
    return [value, *(world.recv(source=rank) for rank in range(1, world.Get_size()))]
