"""MPI ranks that average an array of argv[1] bytes; the first rank of each node counts what its devices carried, into argv[2]."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from results import rails
from training.process import rank_place

world = MPI.COMM_WORLD
size_bytes, folder = int(sys.argv[1]), Path(sys.argv[2])
data = np.full(size_bytes // 4, world.rank, dtype=np.float32)
world.Barrier()
before = world.gather(rails.node_counters() if rank_place().local_rank == 0 else None)
world.Allreduce(MPI.IN_PLACE, data)
world.Barrier()
after = world.gather(rails.node_counters() if rank_place().local_rank == 0 else None)
assert data[0] == data[-1] == sum(range(world.size))
if world.rank == 0:
    rails.write_sample(folder / "before.json", filter(None, before))
    rails.write_sample(folder / "after.json", filter(None, after))
