"""Training settings: the keys of a preset file, after the user's overrides. Each default is written out in the presets.

They live here, and not in `training`, because planning checks them without torch and reports print them.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from results.model import Document

NonNegativeFloat = Annotated[float, Field(ge=0)]


class LearningRateSettings(Document):
    """Peak learning rate as a rule of the global batch size."""

    rule: Literal["linear", "sqrt", "constant"]
    """How the rate grows with the batch: linear (Goyal et al., arXiv 1706.02677), with its square root (as the MLPerf LARS
    points do), or not at all."""
    value: PositiveFloat
    """Rate at `batch_size`."""
    batch_size: PositiveInt
    """Global batch size at which `value` holds."""
    by_batch_size: dict[int, PositiveFloat] = {}
    """Rates at certain global batch sizes, which win over the rule."""
    linear_up_to: PositiveInt | None = None
    """Global batch size from which a linear rate goes on with the square root of the batch; None: linear throughout."""
    multiple_of: PositiveFloat | None = None
    """Round to a multiple of this; MLPerf's rules want multiples of 0.001 under SGD."""

    def at(self, global_batch_size: int) -> float:
        """Peak learning rate for a global batch size in samples."""
        if global_batch_size in self.by_batch_size:
            return self.by_batch_size[global_batch_size]
        rate = self.value * self._growth(global_batch_size)
        if self.multiple_of is None:
            return rate
        # Rounded once more, so that 113 x 0.001 prints as 0.113.
        return round(max(round(rate / self.multiple_of), 1) * self.multiple_of, 12)

    def _growth(self, global_batch_size: int) -> float:
        ratio = global_batch_size / self.batch_size
        if self.rule == "linear":
            knee = global_batch_size if self.linear_up_to is None else min(global_batch_size, self.linear_up_to)
            return knee / self.batch_size * math.sqrt(global_batch_size / knee)
        return math.sqrt(ratio) if self.rule == "sqrt" else 1.0

    @model_validator(mode="after")
    def _knee_of_a_line(self) -> LearningRateSettings:
        if self.linear_up_to is not None and self.rule != "linear":
            raise ValueError(f"linear_up_to goes with rule linear, not {self.rule}")
        return self


class ScheduleSettings(Document):
    """How the learning rate moves over the run."""

    warmup_epochs: NonNegativeFloat
    """Linear warm-up from `warmup_factor` times the peak rate to the peak, in epochs (may be a fraction)."""
    warmup_factor: NonNegativeFloat = 0.0
    decay: Literal["polynomial", "step", "none"]
    decay_epochs: PositiveFloat | None = None
    """Polynomial decay reaches `end_rate` at this epoch; None: at the last epoch."""
    power: PositiveFloat = 2.0
    end_rate: NonNegativeFloat = 1e-4
    step_epochs: list[PositiveFloat] = []
    """Step decay: at each of these epochs the rate is multiplied by `step_factor`."""
    step_factor: PositiveFloat = 0.1


class OptimizerSettings(Document):
    """Optimizer and its constants."""

    name: Literal["sgd", "lars", "lamb", "adamw"]
    momentum: NonNegativeFloat = 0.9
    weight_decay: NonNegativeFloat
    lars_eta: PositiveFloat = 0.001
    lars_epsilon: NonNegativeFloat = 0.0
    clip_norm: PositiveFloat | None = None
    """Largest global norm of the gradients; None: no clipping."""


class EvaluationSettings(Document):
    """After which epochs (counted from 1) the model is evaluated; the last epoch always is."""

    first_epoch: PositiveInt = 1
    every_epochs: PositiveInt = 1
    at_epochs: list[PositiveInt] = []
    """When given, exactly these epochs, and the two keys above are not read."""
    local_batch_size: PositiveInt
    beside_training: bool = False
    """Detectors: go on training while one process reckons COCO's metrics from what was detected. The rules want evaluation on
    the clock and let it hide behind other work (mlcommons/training_policies, issue 26); what is trained meanwhile is for
    nothing when the target turns out to be reached."""

    def due(self, epoch: int, last_epoch: int) -> bool:
        """True when an evaluation follows epoch number `epoch`."""
        if epoch == last_epoch:
            return True
        if self.at_epochs:
            return epoch in self.at_epochs
        return epoch >= self.first_epoch and (epoch - self.first_epoch) % self.every_epochs == 0


class InputSettings(Document):
    """The input pipeline."""

    source: Literal["dali", "torch", "synthetic"]
    """dali: NVIDIA DALI; torch: DataLoader; synthetic: the same random batch over and over, for finding input-bound runs."""
    threads: PositiveInt = 1
    """DALI threads, or DataLoader workers, per rank."""
    prefetch: PositiveInt = 2
    """Batches kept ready."""
    skip_broken_images: bool = False
    """Leave unreadable images out, instead of ending the run when one is met."""


class CommunicationSettings(Document):
    """How gradients are exchanged."""

    backend: Literal["horovod", "torch", "single"]
    fusion_threshold_bytes: PositiveInt = 64 * 2**20
    """Horovod tensor fusion buffer; bucket size under torch.distributed."""
    cycle_time_ms: PositiveFloat = 1.0
    """Horovod background cycle."""
    compression: Literal["none", "fp16"] = "none"
    backward_passes_per_step: PositiveInt = 1
    """Gradient accumulation: local batches summed before each exchange; part of the global batch size."""
    batch_norm_ranks: PositiveInt = 1
    """Neighbouring ranks that normalise by the statistics of their batches together; MLPerf's `model_bn_span` is this many
    local batches."""


class Settings(Document):
    """All settings of one training run that do not depend on the number of ranks."""

    description: str
    embedded: bool
    """True for the small data sets that come with this project: such runs are never called MLPerf results."""
    dataset: Literal["digits", "imagenet", "digits-coco", "coco"]
    classes: PositiveInt
    image_size: PositiveInt
    """Side of the square training image in pixels; for Mask R-CNN the shorter side."""
    max_image_size: PositiveInt | None = None
    """Longest side in pixels (Mask R-CNN)."""
    local_batch_size: PositiveInt
    max_epochs: PositiveInt
    """The run ends as `target-missed` after this many epochs."""
    quality_target: Annotated[dict[str, float], Field(min_length=1)]
    """Metric names and thresholds in [0, 1]; all must be reached in one evaluation."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    flip: bool = False
    """Random horizontal flip; false where mirrored images mean something else, as with digits."""
    crop_area: tuple[PositiveFloat, PositiveFloat] = (0.08, 1.0)
    """Share of the image's area that a random training crop covers, from and to (Szegedy et al., arXiv 1409.4842, section 6)."""
    evaluation_crop: Annotated[float, Field(gt=0, le=1)] = 0.875
    """Side of the centre crop as a share of the resized shorter side at evaluation: 224 of 256 for ImageNet."""
    learning_rate: LearningRateSettings
    schedule: ScheduleSettings
    optimizer: OptimizerSettings
    evaluation: EvaluationSettings
    precision: Literal["fp32", "bf16", "fp16"]
    channels_last: bool = True
    threads_per_rank: PositiveInt = 1
    """CPU threads of torch in each rank."""
    input: InputSettings
    communication: CommunicationSettings
    checkpoints: bool = True
    """Write a checkpoint (latest and best) after each evaluation."""
    model: dict[str, str | int | float | bool | None] = {}
    """Options of one workload's model; checked by the workload."""
    by_global_batch_size: dict[PositiveInt, dict[str, Any]] = {}
    """Values of keys (dotted) that were published for certain global batch sizes; elsewhere the rules above fill in.

    In the settings of a run, the entry of its own global batch size holds all keys of the table."""

    def global_batch_size(self, ranks: int) -> int:
        """Samples per optimizer step over all ranks."""
        return self.local_batch_size * self.communication.backward_passes_per_step * ranks
