"""An input pipeline that is opened again within an epoch gives what the first one would have given, bit for bit."""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.support import make_spec
from training.workload import Batch, Shard, TrainSource, load_workload

LOCAL_BATCH = 9
DONE = 2


def open_source(data_dir: Path, workload: str, source: str, shard: Shard, prefetch: int) -> TrainSource:
    overrides: dict[str, Any] = {"image_size": 64, "max_image_size": 96} if workload == "maskrcnn" else {"image_size": 64}
    spec = make_spec(
        data_dir, workload=workload, preset="digits" if workload == "resnet50" else "digits-coco", ranks=shard.count,
        local_batch_size=LOCAL_BATCH, input__source=source, input__prefetch=prefetch, flip=True, max_epochs=2, **overrides,
    )  # fmt: skip
    return load_workload(spec=spec, shard=shard, device=torch.device("cpu")).open_data()


def digests(batches: Iterator[Batch]) -> list[str]:
    """One for each batch, over all that training sees of it."""
    return [hashlib.sha256(_content(batch)).hexdigest() for batch in batches]


def _content(batch: Batch) -> bytes:
    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.contiguous().numpy().tobytes(), tuple(value.shape)
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        return [plain(part) for part in value]

    return pickle.dumps((plain(batch.inputs), plain(batch.targets), batch.samples, batch.global_samples))


def until_nothing_is_left_to_make(prefetch: int) -> None:
    """Let a thread that prepares batches come to the end of the epoch, where it may go as far as that."""
    while prefetch >= 8 and any(thread.name == "prefetch" for thread in threading.enumerate()):
        time.sleep(0.01)


@pytest.mark.parametrize("workload", ["resnet50", "ssd", "maskrcnn"])
@pytest.mark.parametrize(("source", "prefetch"), [("dali", 1), ("dali", 8), ("torch", 2), ("synthetic", 1)])
def test_the_rest_of_an_epoch(few_digits_dir: Path, scenes_dir: Path, workload: str, source: str, prefetch: int) -> None:
    """However far the pipeline has worked ahead of the batches that were taken."""
    data_dir = few_digits_dir if workload == "resnet50" else scenes_dir
    shard = Shard(index=1, count=2)
    first = open_source(data_dir, workload, source, shard, prefetch)
    digests(first.epoch(1))
    whole, places = [], []
    for batch in first.epoch(2):
        until_nothing_is_left_to_make(prefetch)
        whole += digests(iter([batch]))
        places.append(first.state())
    assert len(whole) == first.batches_per_epoch > DONE
    assert len(set(whole)) == len(whole) or source == "synthetic"

    second = open_source(data_dir, workload, source, shard, prefetch)
    second.restore(places[DONE - 1])
    assert second.state() == places[DONE - 1]  # also where it is asked to stop again before its first batch
    assert digests(second.epoch(2, DONE)) == whole[DONE:]
    first.close()
    second.close()


def test_an_epoch_begun_again_and_again(few_digits_dir: Path) -> None:
    """Stopped after each batch."""
    shard = Shard(index=0, count=1)
    source = open_source(few_digits_dir, "resnet50", "dali", shard, 2)
    whole, found = digests(source.epoch(1)), []
    state = b""
    for done in range(len(whole)):
        again = open_source(few_digits_dir, "resnet50", "dali", shard, 2)
        again.restore(state)
        found += digests(islice(again.epoch(1, done), 1))
        state = again.state()
        again.close()
    assert found == whole
