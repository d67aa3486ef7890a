"""How much device memory one rank's training needs: an estimate, from the size of a model and what its passes keep alive."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pydantic import NonNegativeInt, PositiveInt

from results.model import Document
from results.settings import Settings

SINGLE_BYTES = 4
"""Weights, gradients and optimizer state are kept in single precision; half precision is autocast's."""
OPTIMIZER_STATES = {"sgd": 1, "lars": 1, "lamb": 2, "adamw": 2}
"""Tensors as large as the weights: momentum, or two moments."""
MARGIN_BYTES = 2 * 2**30
"""For what is not counted: CUDA context, cuDNN's workspaces, NCCL's buffers, DALI's decoder, fragmentation of the allocator."""


class Footprint(Document):
    """A model of certain settings, as `python -m training.footprint` measures it on a CPU."""

    parameters: PositiveInt
    trained_parameters: PositiveInt
    fixed_bytes: NonNegativeInt
    """Most that is alive in one forward and backward pass and does not grow with the batch, such as half-precision weights;
    without weights, gradients and optimizer state."""
    bytes_per_image: PositiveInt
    """The same for each image of the batch: activations that are kept for the backward pass, and what passes need meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEstimate:
    """Device memory of one rank, in bytes."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    passes_bytes: int
    input_bytes: int
    exchange_bytes: int
    margin_bytes: int = MARGIN_BYTES

    @property
    def total_bytes(self) -> int:
        """All of it, the margin included."""
        return sum(asdict(self).values())


def gradient_bytes(footprint: Footprint, settings: Settings) -> int:
    """Bytes of one exchange of gradients on each rank, before the algorithm of the exchange multiplies them."""
    return footprint.trained_parameters * (2 if settings.communication.compression == "fp16" else SINGLE_BYTES)


def estimate(footprint: Footprint, settings: Settings, local_batch_size: int) -> MemoryEstimate:
    """Memory of one rank at a local batch size."""
    trained_bytes = footprint.trained_parameters * SINGLE_BYTES
    pixels = settings.image_size * (settings.max_image_size or settings.image_size)
    alone = settings.communication.backend == "single"
    return MemoryEstimate(
        weights_bytes=footprint.parameters * SINGLE_BYTES,
        gradients_bytes=trained_bytes,
        optimizer_bytes=trained_bytes * OPTIMIZER_STATES[settings.optimizer.name],
        passes_bytes=footprint.fixed_bytes + footprint.bytes_per_image * local_batch_size,
        # The batch in use and those kept ready, in single precision at most.
        input_bytes=(settings.input.prefetch + 1) * local_batch_size * 3 * pixels * SINGLE_BYTES,
        exchange_bytes=0 if alone else min(settings.communication.fusion_threshold_bytes, trained_bytes),
    )


def largest_local_batch(footprint: Footprint, settings: Settings, memory_bytes: int) -> int:
    """The largest local batch that the estimate lets into a device's memory; 0 where not even one image fits."""
    empty, one = (estimate(footprint, settings, size).total_bytes for size in (0, 1))
    return max((memory_bytes - empty) // (one - empty), 0)
