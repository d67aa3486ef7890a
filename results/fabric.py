"""What was measured of a fabric, and the figures that follow from it: algbw, busbw, and a fit of latency and bandwidth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from results.model import Document
from results.rails import AskedRails, RailSample
from results.rates import show_rate
from results.record import RailEvidence

SCHEMA_VERSION = 1

BULK_BYTES = 8 * 2**20
"""From this size on, bandwidth and not latency decides; expectations look at these sizes."""


SETTINGS_FILE = "settings.json"
MEASUREMENT_FILE = "measurement.json"
"""Where `launch` and the ranks meet, in the folder of a measurement."""


class FabricSettings(Document):
    """What the ranks are to measure; `launch` writes it, `training.fabric` reads it."""

    smallest_bytes: PositiveInt
    largest_bytes: PositiveInt
    seconds_per_size: PositiveFloat
    """About how long to measure each size; at least 3 iterations are made."""
    stall_s: PositiveFloat
    """Ranks end when one size takes this much longer: a peer that died or a rail that was cut makes MPI wait for ever."""


class AllreducePoint(Document):
    """Allreduce of one message size, back to back, by Horovod."""

    size_bytes: PositiveInt
    """Size of the tensor on each rank."""
    seconds_s: PositiveFloat
    """Time of one allreduce: time of all iterations on the slowest rank over their number."""
    fastest_s: PositiveFloat
    slowest_s: PositiveFloat
    """Fastest and slowest single iteration on rank 0."""
    iterations: PositiveInt

    @property
    def algbw_bits_per_s(self) -> float:
        """Algorithm bandwidth: size over time (nccl-tests, doc/PERFORMANCE.md)."""
        return 8 * self.size_bytes / self.seconds_s

    def busbw_bits_per_s(self, ranks: int) -> float:
        """Bus bandwidth: algbw * 2(n-1)/n for n ranks (nccl-tests, doc/PERFORMANCE.md, "AllReduce").

        It can be compared with the line rate of a node's rails: whatever the algorithm, at best each rank sends 2(n-1)/n of the
        size; in a ring that goes from node to node, that is also what each node sends, however many ranks it has.
        """
        return self.algbw_bits_per_s * 2 * (ranks - 1) / ranks


class PointToPoint(Document):
    """Messages of one size between two ranks, by MPI."""

    hosts: tuple[str, str]
    size_bytes: PositiveInt
    latency_s: PositiveFloat
    """One way: half of the median round trip of a message that is answered at once."""
    bits_per_s: PositiveFloat
    """Bandwidth in one direction: messages sent one after the other without waiting for an answer."""

    @property
    def inside_node(self) -> bool:
        return self.hosts[0] == self.hosts[1]


class FabricMeasurement(Document):
    """What the ranks measured; `training.fabric` writes it."""

    schema_version: int = SCHEMA_VERSION
    started_at: str
    """ISO 8601, UTC."""
    ranks: PositiveInt
    hosts: list[str]
    """Host of each rank."""
    device: str
    """Where the tensors lie: `cpu`, or the name of the GPU."""
    operations: str
    """What Horovod exchanges tensors with: `nccl`, `mpi` or `gloo`."""
    mpi: str
    """What the MPI library says of itself; empty without MPI."""
    allreduce: list[AllreducePoint]
    point_to_point: list[PointToPoint]
    least_exchange_bytes: int
    """What every node must at least have sent and received for all of it."""
    before: RailSample
    after: RailSample

    @property
    def nodes(self) -> int:
        return len(set(self.hosts))


class Fit(Document):
    """Least-squares fit of T = latency + size / bandwidth (R. W. Hockney, Parallel Computing 20 (1994) 389)."""

    latency_s: NonNegativeFloat
    bits_per_s: PositiveFloat
    relative_error: NonNegativeFloat
    """Root mean square of (T - fitted T) / T: above about 0.3 the line does not describe the fabric."""


class Expectation(Document):
    """An acceptance check of the bus bandwidth."""

    share: PositiveFloat
    """Least share of the line rate, 0.9 for 90%."""
    line_rate_bits_per_s: PositiveFloat
    """Of one rail, in each direction."""
    rails: PositiveInt


class FabricResult(Document):
    """One measurement with what was asked for; `fabric.json`."""

    interconnect: str
    emulated_nodes: bool
    command: list[str]
    asked: AskedRails
    measurement: FabricMeasurement
    evidence: RailEvidence
    fit: Fit | None
    """Of the allreduce, its bandwidth as busbw; None with fewer than two sizes."""
    expectation: Expectation | None = None

    @property
    def best_busbw(self) -> tuple[int, float]:
        """Size in bytes and busbw in bits/s of the best allreduce among bulk sizes (all when none is that large)."""
        points = self.measurement.allreduce
        bulk = [point for point in points if point.size_bytes >= BULK_BYTES] or points
        best = max(bulk, key=lambda point: point.busbw_bits_per_s(self.measurement.ranks))
        return best.size_bytes, best.busbw_bits_per_s(self.measurement.ranks)

    @property
    def outcome(self) -> tuple[Literal["passed", "failed", "not-asked"], str]:
        """The acceptance check and one line on it. Other rails than asked fail it whatever the bandwidth."""
        if self.expectation is None:
            return "not-asked", ""
        if self.evidence.verdict == "rails-differ":
            return "failed", f"the rails differ: {self.evidence.reason}"
        full = self.expectation.line_rate_bits_per_s * self.expectation.rails
        size_bytes, busbw = self.best_busbw
        share = busbw / full
        of_what = f"{self.expectation.rails} x {show_rate(self.expectation.line_rate_bits_per_s)}"
        line = f"busbw {show_rate(busbw)} at {size_bytes} bytes is {share:.1%} of {of_what}"
        enough = share >= self.expectation.share
        return ("passed" if enough else "failed"), f"{line}; {self.expectation.share:.0%} was expected"


def fit(sizes_bytes: Sequence[int], seconds_s: Sequence[float], *, factor: float = 1.0) -> Fit | None:
    """Fit latency and bandwidth by least squares, each size weighted by 1/T, as for errors whose variance grows with T.

    Without weights the largest message alone would decide and the latency would be noise; with weights of 1/T^2 the
    steps of the smallest messages (cycle times, protocol changes) would bend the bandwidth.

    Args:
        factor: multiplies the bandwidth; 2(n-1)/n turns the algbw of an allreduce into its busbw.

    Returns:
        The fit, or None with fewer than two sizes or when time does not grow with size.
    """
    if len(set(sizes_bytes)) < 2:
        return None
    # Minimize the sum of (a + c S - T)^2 / T over a and c.
    points = list(zip(sizes_bytes, seconds_s, strict=True))
    w, ws, wss = (sum(size**power / t for size, t in points) for power in (0, 1, 2))
    n, total = len(points), sum(sizes_bytes)
    determinant = w * wss - ws * ws
    latency_s, per_byte_s = (n * wss - total * ws) / determinant, (total * w - n * ws) / determinant
    if latency_s < 0:  # then the best line with a latency that can be goes through the origin
        latency_s, per_byte_s = 0.0, total / wss
    if per_byte_s <= 0:
        return None
    relative_error = math.sqrt(sum(((latency_s + per_byte_s * size) / t - 1) ** 2 for size, t in points) / n)
    return Fit(latency_s=latency_s, bits_per_s=8 * factor / per_byte_s, relative_error=relative_error)


def allreduce_fit(measurement: FabricMeasurement) -> Fit | None:
    """Latency and busbw of the allreduce."""
    points = measurement.allreduce
    factor = 2 * (measurement.ranks - 1) / measurement.ranks
    return fit([point.size_bytes for point in points], [point.seconds_s for point in points], factor=factor)
