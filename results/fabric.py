"""FabricMeasurement: what an interconnect carried before training; `trainscale fabric` saves it beside the runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from results.model import Document


class AllreducePoint(Document):
    """One message size."""

    message_bytes: PositiveInt
    time_s: PositiveFloat
    """Median over repeats of one allreduce of this size, maximum over ranks."""


class FabricMeasurement(Document):
    """Allreduce by message size over the path that training uses; the file is `fabric-<interconnect>-<nodes>.json`."""

    schema_version: int = 1
    interconnect: str
    system: str = "unnamed"
    nodes: PositiveInt
    ranks: PositiveInt
    emulated_nodes: bool
    measured_at: str
    """ISO 8601, UTC."""
    points: Annotated[list[AllreducePoint], Field(min_length=1)]

    def allreduce_time_s(self, message_bytes: float) -> float:
        """Seconds of one allreduce: between measured sizes by a straight line, beyond the largest by its bandwidth."""
        points = sorted(self.points, key=lambda point: point.message_bytes)
        if message_bytes >= points[-1].message_bytes:
            return points[-1].time_s * message_bytes / points[-1].message_bytes
        if message_bytes <= points[0].message_bytes:
            return points[0].time_s
        above = next(n for n, point in enumerate(points) if point.message_bytes >= message_bytes)
        low, high = points[above - 1], points[above]
        part = (message_bytes - low.message_bytes) / (high.message_bytes - low.message_bytes)
        return low.time_s + part * (high.time_s - low.time_s)
