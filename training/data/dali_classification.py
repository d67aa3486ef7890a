"""DALI pipelines for image classification: on GPUs with the mixed decoder, on CPUs where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

from results.settings import Settings
from training.data.dali_options import decoder_device, normalised, on_device, pipeline_options, placed
from training.data.folder import ImageList
from training.workload import Batch, Shard, TrainSource


@pipeline_def
def _training_pipeline(images: ImageList, settings: Settings, shard: Shard, seed: int, on_gpu: bool) -> tuple[Any, Any]:
    encoded, labels = fn.readers.file(
        file_root=str(images.root), files=images.files, labels=images.labels,
        shard_id=shard.index, num_shards=shard.count, shuffle_after_epoch=True, pad_last_batch=True, name="reader",
    )  # fmt: skip
    decoded = fn.decoders.image_random_crop(
        encoded, device=decoder_device(on_gpu), output_type=types.RGB,
        random_area=list(settings.crop_area), random_aspect_ratio=[3 / 4, 4 / 3], seed=seed,
    )  # fmt: skip
    resized = fn.resize(decoded, size=[settings.image_size, settings.image_size])
    mirror = fn.random.coin_flip(probability=0.5, seed=seed + 1) if settings.flip else 0
    return normalised(resized, settings, mirror=mirror), on_device(labels, on_gpu)


@pipeline_def
def _evaluation_pipeline(images: ImageList, settings: Settings, shard: Shard, on_gpu: bool) -> tuple[Any, Any]:
    encoded, labels = fn.readers.file(
        file_root=str(images.root), files=images.files, labels=images.labels,
        shard_id=shard.index, num_shards=shard.count, stick_to_shard=True, pad_last_batch=True, name="reader",
    )  # fmt: skip
    decoded = fn.decoders.image(encoded, device=decoder_device(on_gpu), output_type=types.RGB)
    resized = fn.resize(decoded, resize_shorter=round(settings.image_size / settings.evaluation_crop))
    return normalised(resized, settings, crop=(settings.image_size, settings.image_size)), on_device(labels, on_gpu)


class DaliClassification(TrainSource):
    """One rank's shard, reshuffled over all ranks each epoch by DALI itself.

    DALI's checkpoint holds the place in the shuffled shard and the state of the random operators as they were behind the batch
    that was given last, however many were made ahead. To go on within an epoch its reader skips files without decoding them.
    """

    def __init__(self, images: ImageList, settings: Settings, shard: Shard, device: torch.device, seed: int) -> None:
        self.images, self.settings, self.shard, self.device = images, settings, shard, device
        self.seed = seed
        self.sizes = shard.batch_sizes(len(images.files), settings.local_batch_size)
        self.samples_per_epoch = len(images.files)
        self.batches_per_epoch = len(self.sizes)
        self._iterator: Any = None
        self._checkpoint = b""

    def _open(self) -> Any:
        # DALI shuffles alike in every run; the run's own seed orders the files before that.
        order = torch.randperm(len(self.images.files), generator=torch.Generator().manual_seed(self.seed)).tolist()
        shuffled = ImageList(
            root=self.images.root,
            classes=self.images.classes,
            files=[self.images.files[index] for index in order],
            labels=[self.images.labels[index] for index in order],
            sizes_bytes=[],
        )
        rank_seed = self.seed + 7919 * (self.shard.index + 1)
        pipeline = _training_pipeline(
            shuffled, self.settings, self.shard, rank_seed, self.device.type == "cuda",
            batch_size=self.settings.local_batch_size, enable_checkpointing=True, checkpoint=self._checkpoint or None,
            **pipeline_options(self.settings, self.device),
        )  # fmt: skip
        return _iterator(pipeline)

    def epoch(self, epoch: int, done: int = 0) -> Iterator[Batch]:
        if self._iterator is None:
            self._iterator = self._open()
        batches = iter(self._iterator)
        for samples, global_samples in self.sizes[done:]:
            images, labels = _tensors(next(batches), self.settings)
            # A rank whose shard ran out trains on a padded image that counts nothing.
            kept = max(samples, 1)
            yield Batch(inputs=images[:kept], targets=labels[:kept], samples=samples, global_samples=global_samples)
        if next(batches, None) is not None:
            raise RuntimeError("DALI yields more batches than its shard holds")

    def state(self) -> bytes:
        return bytes(self._iterator.checkpoints()[0]) if self._iterator is not None else self._checkpoint

    def restore(self, state: bytes) -> None:
        self._checkpoint = state

    def close(self) -> None:
        self._iterator = None


class DaliEvaluation:
    """The validation images of one rank, each once."""

    def __init__(self, images: ImageList, settings: Settings, shard: Shard, device: torch.device) -> None:
        self.settings, self.device = settings, device
        self.sizes = shard.batch_sizes(len(images.files), settings.evaluation.local_batch_size)
        pipeline = _evaluation_pipeline(
            images, settings, shard, device.type == "cuda",
            batch_size=settings.evaluation.local_batch_size, **pipeline_options(settings, device),
        )  # fmt: skip
        self._iterator = _iterator(pipeline)

    def __iter__(self) -> Iterator[Batch]:
        for (samples, global_samples), outputs in zip(self.sizes, self._iterator, strict=True):
            images, labels = _tensors(outputs, self.settings)
            yield Batch(inputs=images[:samples], targets=labels[:samples], samples=samples, global_samples=global_samples)


def _iterator(pipeline: Any) -> Any:
    return DALIGenericIterator(
        pipeline, ["images", "labels"], reader_name="reader", last_batch_policy=LastBatchPolicy.FILL, auto_reset=True
    )


def _tensors(outputs: Any, settings: Settings) -> tuple[torch.Tensor, torch.Tensor]:
    return placed(outputs[0]["images"], settings), outputs[0]["labels"].reshape(-1).long()
