"""What training would be on N ranks: batches, rates, schedule, shards, exchange and memory, worked out without any device."""

from __future__ import annotations

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from launch.catalog import origin
from results.datasets import DATASETS
from results.footprint import Footprint, estimate, gradient_bytes
from results.model import Document
from results.published import load_published
from results.settings import Settings

BACKWARD_SHARE = 2 / 3
"""Share of a step's computation in which gradients can travel: a backward pass multiplies twice as much as a forward pass."""


class TrainingPlan(Document):
    """One workload on one number of nodes."""

    workload: str
    preset: str
    nodes: PositiveInt
    ranks_per_node: PositiveInt
    input_shape: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]
    """Of one rank's forward pass: images, channels, height, width; for Mask R-CNN the widest landscape image."""
    local_batch_size: PositiveInt
    global_batch_size: PositiveInt
    hyperparameters: str
    """Whether they are the preset's own for this global batch size."""
    optimizer: str
    weight_decay: NonNegativeFloat
    peak_learning_rate: PositiveFloat
    steps_per_epoch: PositiveInt
    warmup_steps: NonNegativeInt
    decay_steps: list[PositiveInt]
    """Where the rate falls by a factor; for polynomial decay, the step from which on it stays at its end."""
    max_epochs: PositiveInt
    max_steps: PositiveInt
    evaluations: PositiveInt
    """At most: fewer when the target is reached before the last epoch."""
    samples_per_epoch: PositiveInt
    shard_samples: tuple[NonNegativeInt, NonNegativeInt]
    """Least and most images of a rank in an epoch."""
    last_batch_samples: tuple[NonNegativeInt, NonNegativeInt]
    """Least and most images of a rank in the last forward pass of an epoch."""
    evaluation_samples: tuple[NonNegativeInt, NonNegativeInt]
    """Least and most validation images of a rank."""
    evaluation_batches: PositiveInt
    parameters: PositiveInt | None
    """None, and all that follows: the footprint of these settings is not known."""
    gradient_bytes: PositiveInt | None
    """Of one exchange, on each rank."""
    images_per_s: PositiveFloat | None
    """Of one rank alone, from which the next follows."""
    images_per_s_source: str
    hiding_busbw_bits_per_s: NonNegativeFloat | None
    """Bus bandwidth at which an exchange takes as long as the backward pass that hides it."""
    memory_bytes: PositiveInt | None
    """Estimate of one rank's device memory."""

    @property
    def ranks(self) -> int:
        """Ranks over all nodes."""
        return self.nodes * self.ranks_per_node


def make_plan(
    workload: str, preset: str, settings: Settings, *, nodes: int, ranks_per_node: int, footprint: Footprint | None,
    images_per_s: float | None = None,
) -> TrainingPlan:  # fmt: skip
    """Plan `settings`, which must be those for so many ranks; `images_per_s` of one rank instead of a published rate."""
    ranks, facts = nodes * ranks_per_node, DATASETS[settings.dataset]
    global_batch_size = settings.global_batch_size(ranks)
    shard = _shares(facts.train_samples, ranks)
    passes = -(-shard[1] // settings.local_batch_size)
    steps = -(-passes // settings.communication.backward_passes_per_step)
    before_last = (passes - 1) * settings.local_batch_size
    evaluated = _shares(facts.validation_samples, ranks)
    rate, source = (images_per_s, "as given") if images_per_s else published_rate(workload, settings)
    exchanged = gradient_bytes(footprint, settings) if footprint else None
    return TrainingPlan(
        workload=workload,
        preset=preset,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        input_shape=(settings.local_batch_size, 3, settings.image_size, settings.max_image_size or settings.image_size),
        local_batch_size=settings.local_batch_size,
        global_batch_size=global_batch_size,
        hyperparameters=origin(workload, preset, global_batch_size),
        optimizer=settings.optimizer.name,
        weight_decay=settings.optimizer.weight_decay,
        peak_learning_rate=settings.learning_rate.at(global_batch_size),
        steps_per_epoch=steps,
        warmup_steps=round(settings.schedule.warmup_epochs * steps),
        decay_steps=_decay_steps(settings, steps),
        max_epochs=settings.max_epochs,
        max_steps=settings.max_epochs * steps,
        evaluations=sum(settings.evaluation.due(epoch, settings.max_epochs) for epoch in range(1, settings.max_epochs + 1)),
        samples_per_epoch=facts.train_samples,
        shard_samples=shard,
        last_batch_samples=(max(shard[0] - before_last, 0), shard[1] - before_last),
        evaluation_samples=evaluated,
        evaluation_batches=-(-evaluated[1] // settings.evaluation.local_batch_size),
        parameters=footprint.parameters if footprint else None,
        gradient_bytes=exchanged,
        images_per_s=rate,
        images_per_s_source=source,
        hiding_busbw_bits_per_s=_hiding_busbw(exchanged, rate, settings, ranks) if exchanged and rate else None,
        memory_bytes=estimate(footprint, settings, settings.local_batch_size).total_bytes if footprint else None,
    )


def published_rate(workload: str, settings: Settings) -> tuple[float | None, str]:
    """Images/s of one V100 in NVIDIA's v0.6 runs on a DGX-1, and the source; None for embedded data."""
    if settings.embedded:
        return None, ""
    for figure in load_published("mlperf-v0.6-nvidia")[0].figures:
        if (figure.workload, figure.system, figure.nodes) == (workload, "DGX-1", 1) and figure.samples_per_s:
            return figure.samples_per_s / figure.accelerators, "an eighth of NVIDIA's MLPerf v0.6 run on a DGX-1 (8 V100)"
    return None, ""


def _shares(samples: int, ranks: int) -> tuple[int, int]:
    """Least and most samples of a rank, which differ by one at most."""
    return samples // ranks, -(-samples // ranks)


def _decay_steps(settings: Settings, steps_per_epoch: int) -> list[int]:
    schedule = settings.schedule
    if schedule.decay == "step":
        return [round(epoch * steps_per_epoch) for epoch in schedule.step_epochs]
    if schedule.decay == "polynomial":
        return [round((schedule.decay_epochs or settings.max_epochs) * steps_per_epoch)]
    return []


def _hiding_busbw(exchanged_bytes: int, images_per_s: float, settings: Settings, ranks: int) -> float:
    # Only the last of several passes before an exchange can hide it.
    backward_s = settings.local_batch_size / images_per_s * BACKWARD_SHARE
    return 8 * exchanged_bytes * 2 * (ranks - 1) / ranks / backward_s
