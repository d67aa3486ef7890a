"""`python -m training.fabric FOLDER`: bandwidth and latency of the path that training uses, measured by its own ranks.

Messages between pairs of ranks by MPI, then allreduces of growing size by Horovod. Rank 0 writes a
`FabricMeasurement`. Point-to-point comes first: once Horovod is up, its background thread talks over the same rails.
"""

from __future__ import annotations

import datetime
import faulthandler
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from results import rails
from results.fabric import MEASUREMENT_FILE, SETTINGS_FILE, AllreducePoint, FabricMeasurement, FabricSettings, PointToPoint
from results.model import write_atomically
from training.device import rank_device
from training.process import RankPlace, bind, rank_place

LATENCY_BYTES = 8
NEIGHBOUR_BYTES = 4 * 2**20
LARGEST_MESSAGE_BYTES = 16 * 2**20
NO_WARM_UP_BYTES = 16 * 2**20
MAX_ITERATIONS = 200


def main() -> None:
    """Measure what the settings in the folder on the command line say, and leave the measurement there."""
    folder = Path(sys.argv[1])
    settings = FabricSettings.model_validate_json((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    watch(settings.stall_s)
    bind(rank_place())
    torch.set_num_threads(1)
    started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    before = rails.node_counters()
    point_to_point, mpi = measure_point_to_point(settings)

    import horovod.torch as hvd

    hvd.init()
    hosts: list[str] = hvd.allgather_object(platform.node())
    points = measure_allreduce(hvd, settings)
    hvd.barrier()
    samples = hvd.allgather_object((before, rails.node_counters()))
    if hvd.rank() == 0:
        measurement = FabricMeasurement(
            started_at=started_at,
            ranks=hvd.size(),
            hosts=hosts,
            device=torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
            operations=_operations(hvd),
            mpi=mpi,
            allreduce=points,
            point_to_point=point_to_point,
            least_exchange_bytes=sum(point.size_bytes * point.iterations for point in points),
            before=_sample(sample[0] for sample in samples),
            after=_sample(sample[1] for sample in samples),
        )
        write_atomically(folder / MEASUREMENT_FILE, measurement.model_dump_json(indent=1) + "\n")
    hvd.shutdown()
    faulthandler.cancel_dump_traceback_later()


def watch(limit_s: float) -> None:
    """End this process, and by the launcher all ranks, with a traceback unless this is called again within the limit.

    A peer that died or a rail that was cut makes MPI wait for ever.
    """
    faulthandler.dump_traceback_later(limit_s, exit=True)


def allreduce_sizes(smallest_bytes: int, largest_bytes: int) -> Iterator[int]:
    """Sizes in steps of 4, whole float32 elements, always with the largest."""
    size = smallest_bytes
    while size < largest_bytes:
        yield size
        size *= 4
    yield largest_bytes


def measure_allreduce(hvd: Any, settings: FabricSettings) -> list[AllreducePoint]:
    """Time in-place averages of float32 tensors, as training makes them; every rank returns the same points.

    Raises:
        RuntimeError: an allreduce gave a wrong average.
    """
    device = rank_device(RankPlace(rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank()))
    whole = torch.full((settings.largest_bytes // 4,), float(hvd.rank() + 1), device=device)
    points = []
    for size in allreduce_sizes(settings.smallest_bytes, settings.largest_bytes):
        watch(settings.stall_s + settings.seconds_per_size)
        tensor = whole[: size // 4]
        once = _allreduce(hvd, tensor, f"fabric.{size}", device)
        hvd.barrier()
        first_s = _timed(once)
        if size < NO_WARM_UP_BYTES:
            first_s = _timed(once)
        # All ranks must make the same number of iterations.
        agreed_s = max(hvd.allgather_object(first_s))
        count = min(MAX_ITERATIONS, max(3, math.ceil(settings.seconds_per_size / agreed_s)))
        hvd.barrier()
        started_s = time.perf_counter()
        each_s = [_timed(once) for _ in range(count)]
        total_s = max(hvd.allgather_object(time.perf_counter() - started_s))
        wrong = (tensor - (hvd.size() + 1) / 2).abs().max().item()
        if wrong > 1e-3 * hvd.size():
            raise RuntimeError(f"allreduce of {size} bytes is wrong by {wrong} on rank {hvd.rank()}")
        point = AllreducePoint(
            size_bytes=size, seconds_s=total_s / count, fastest_s=min(each_s), slowest_s=max(each_s), iterations=count
        )
        points.append(hvd.broadcast_object(point, root_rank=0))
    return points


def measure_point_to_point(settings: FabricSettings) -> tuple[list[PointToPoint], str]:
    """Measure pairs of ranks one after the other, and return what rank 0 needs to know, with MPI's name.

    The first pair between nodes and the first inside one get all sizes; every further pair of neighbouring nodes gets a
    small and a bulk message, so that one slow node shows. Empty where the launcher did not start the ranks with MPI.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size != rank_place().size:
        return [], ""
    hosts = world.allgather(platform.node())
    sizes = [LATENCY_BYTES, *allreduce_sizes(4096, max(4096, min(settings.largest_bytes, LARGEST_MESSAGE_BYTES)))]
    found = []
    for pair, is_first in _pairs(hosts):
        for size in sizes if is_first else [LATENCY_BYTES, min(NEIGHBOUR_BYTES, settings.largest_bytes)]:
            watch(settings.stall_s + 2 * settings.seconds_per_size)
            point = _between(world, pair, hosts, size, settings.seconds_per_size) if world.rank in pair else None
            _wait_quietly(world)
            if pair[0] == 0:
                found.append(point)
            elif world.rank == pair[0]:
                world.send(point, 0)
            elif world.rank == 0:
                found.append(world.recv(source=pair[0]))
    return [point for point in found if point is not None], MPI.Get_library_version().split("\0")[0].splitlines()[0]


def _pairs(hosts: list[str]) -> Iterator[tuple[tuple[int, int], bool]]:
    """Pairs of ranks, and whether they are the first of their kind: two on the first node, then neighbouring nodes in a ring."""
    leaders = [hosts.index(host) for host in dict.fromkeys(hosts)]
    beside = next((rank for rank in range(1, len(hosts)) if hosts[rank] == hosts[0]), None)
    if beside is not None:
        yield (0, beside), True
    for number in range(len(leaders) if len(leaders) > 2 else len(leaders) - 1):
        yield (leaders[number], leaders[(number + 1) % len(leaders)]), number == 0


def _between(world: Any, pair: tuple[int, int], hosts: list[str], size: int, seconds: float) -> PointToPoint:
    """Latency and bandwidth between the two ranks of `pair`; called by both. The bandwidth is from the first to the second."""
    import numpy as np

    buffer = np.ones(size, dtype=np.uint8)
    sends = world.rank == pair[0]
    other = pair[1] if sends else pair[0]

    def one_way() -> None:
        if sends:
            world.Send(buffer, other)
        else:
            world.Recv(buffer, other)

    def answer() -> None:
        if sends:
            world.Recv(buffer, other)
        else:
            world.Send(buffer, other)

    def round_trip() -> None:
        one_way()
        answer()

    def iterations(once_s: float) -> int:
        wanted = min(MAX_ITERATIONS, max(3, math.ceil(seconds / once_s)))
        return int(max(wanted, world.sendrecv(wanted, other, source=other)))

    count = iterations(min(_timed(round_trip) for _ in range(2)))
    latency_s = statistics.median(_timed(round_trip) for _ in range(count)) / 2
    count = iterations(latency_s)
    started_s = time.perf_counter()
    for _ in range(count):
        one_way()
    answer()  # the first to send learns that all has arrived
    streamed_s = time.perf_counter() - started_s - latency_s
    return PointToPoint(
        hosts=(hosts[pair[0]], hosts[pair[1]]), size_bytes=size, latency_s=latency_s, bits_per_s=8 * size * count / streamed_s
    )


def _wait_quietly(world: Any) -> None:
    """A barrier that leaves the processor to the ranks that measure."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def _allreduce(hvd: Any, tensor: torch.Tensor, name: str, device: torch.device) -> Callable[[], None]:
    def once() -> None:
        hvd.allreduce_(tensor, name=name, op=hvd.Average)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return once


def _timed(function: Callable[[], None]) -> float:
    started_s = time.perf_counter()
    function()
    return time.perf_counter() - started_s


def _operations(hvd: Any) -> str:
    if torch.cuda.is_available() and hvd.nccl_built():
        return "nccl"
    return "mpi" if hvd.mpi_enabled() else "gloo"


def _sample(nodes: Iterator[rails.NodeCounters]) -> rails.RailSample:
    return rails.RailSample(nodes=list({node.host: node for node in nodes}.values()))


if __name__ == "__main__":
    main()
