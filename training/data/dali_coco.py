"""DALI's COCO reader, fed with the run's own order of images, and what SSD and Mask R-CNN share of their pipelines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from nvidia.dali import fn, math
from nvidia.dali.plugin.pytorch import DALIRaggedIterator, LastBatchPolicy

from results.settings import Settings
from training.data.coco_index import SMALLEST_SIDE_PX, CocoIndex
from training.data.coco_order import CocoOrder, RankBatch
from training.data.dali_options import pipeline_options, placed
from training.workload import Batch, Shard, TrainSource


def read_coco(index: CocoIndex, names: list[str], **options: Any) -> Any:
    """The reader's outputs (images, boxes as shares of the image, labels, …) for image files in the order given.

    A name may occur many times.
    """
    outputs: Any = fn.readers.coco(
        file_root=str(index.folder), annotations_file=str(index.annotations), images=names, name="reader",
        ltrb=True, ratio=True, include_iscrowd=False, size_threshold=SMALLEST_SIDE_PX, **options,
    )  # fmt: skip
    images, boxes, *others = outputs
    # As the index does; DALI's operators refuse boxes that reach beyond the image.
    return images, math.clamp(boxes, 0.0, 1.0), *others


def _iterator(pipeline: Any, names: list[str], ragged: set[str], *, auto_reset: bool) -> Any:
    kinds = [DALIRaggedIterator.SPARSE_LIST_TAG if name in ragged else DALIRaggedIterator.DENSE_TAG for name in names]
    return DALIRaggedIterator(
        pipeline, names, reader_name="reader", output_types=kinds, auto_reset=auto_reset, last_batch_policy=LastBatchPolicy.FILL
    )


class DaliCocoTraining(TrainSource):
    """Training batches of one rank.

    The reader gets this rank's files of the whole run as one long list, since DALI's own shuffling knows no groups of like
    images; its checkpoint holds the place in the list and the state of the random operators behind the batch given last.
    """

    outputs: ClassVar[list[str]]
    ragged: ClassVar[set[str]]
    """Those of the outputs that differ in size from image to image."""

    def __init__(self, index: CocoIndex, order: CocoOrder, settings: Settings, device: torch.device) -> None:
        self.index, self.order, self.settings, self.device = index, order, settings, device
        self.samples_per_epoch = len(index)
        self.batches_per_epoch = order.batches_per_epoch
        self._iterator: Any = None
        self._checkpoint = b""

    @abstractmethod
    def pipeline(self, names: list[str], seed: int, on_gpu: bool, **options: Any) -> Any:
        """The DALI pipeline that reads `names` in order."""

    @abstractmethod
    def batch(self, outputs: dict[str, Any], batch: RankBatch) -> Batch:
        """What training takes, from what the pipeline gives."""

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        if self._iterator is None:
            self._iterator = self._open()
        for batch in self.order.epoch(epoch)[done:]:
            yield self.batch(next(self._iterator)[0], batch)

    def _open(self) -> Any:
        batches = [batch for epoch in range(1, self.settings.max_epochs + 1) for batch in self.order.epoch(epoch)]
        names = [self.index.files[image] for batch in batches for image in batch.images]
        rank_seed = self.order.seed + 7919 * (self.order.shard.index + 1)
        pipeline = self.pipeline(
            names, rank_seed, self.device.type == "cuda", batch_size=self.settings.local_batch_size,
            enable_checkpointing=True, checkpoint=self._checkpoint or None, **pipeline_options(self.settings, self.device),
        )  # fmt: skip
        return _iterator(pipeline, self.outputs, self.ragged, auto_reset=False)

    def state(self) -> bytes:
        return bytes(self._iterator.checkpoints()[0]) if self._iterator is not None else self._checkpoint

    def restore(self, state: bytes) -> None:
        self._checkpoint = state

    def close(self) -> None:
        self._iterator = None


class DaliCocoEvaluation:
    """The validation images of one rank, each once: pairs of image numbers and images."""

    def __init__(self, index: CocoIndex, settings: Settings, shard: Shard, device: torch.device) -> None:
        self.settings = settings
        self.numbers = range(shard.start(len(index)), shard.end(len(index)))
        pipeline = self.pipeline(
            index, [index.files[number] for number in self.numbers], settings, device.type == "cuda",
            batch_size=settings.evaluation.local_batch_size, **pipeline_options(settings, device),
        )  # fmt: skip
        self._iterator = _iterator(pipeline, ["images"], {"images"}, auto_reset=True)

    @staticmethod
    @abstractmethod
    def pipeline(index: CocoIndex, names: list[str], settings: Settings, on_gpu: bool, **options: Any) -> Any:
        """The DALI pipeline that reads `names` in order and gives images."""

    def __iter__(self) -> Iterator[tuple[range, list[torch.Tensor]]]:
        size = self.settings.evaluation.local_batch_size
        for number, outputs in enumerate(self._iterator):
            numbers = self.numbers[number * size : (number + 1) * size]
            yield numbers, [placed(image, self.settings) for image in outputs[0]["images"][: len(numbers)]]
