"""COCO images and objects by DALI and by torch: the same, each once, whatever the number of ranks."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.training.support import make_spec
from training.data import dali_ssd, ssd_augmentation
from training.data.coco_data import open_coco
from training.data.coco_index import CocoIndex, read_index
from training.data.coco_order import CocoOrder, aspect_groups
from training.data.normalization import MEAN, STD
from training.data.torch_coco import SsdReader
from training.detection_workload import DetectionWorkload
from training.workload import Batch, Shard, TrainSource, load_workload

CPU = torch.device("cpu")
ALONE = Shard(index=0, count=1)


def opened(root: Path, name: str, source: str, shard: Shard = ALONE, **overrides: Any) -> tuple[DetectionWorkload, TrainSource]:
    spec = make_spec(root, workload=name, preset="digits-coco", ranks=shard.count, input__source=source, seed=3, **overrides)
    workload = load_workload(spec=spec, shard=shard, device=CPU)
    assert isinstance(workload, DetectionWorkload)
    return workload, workload.open_data()


def batches(source: TrainSource, epoch: int = 1) -> list[Batch]:
    try:
        found = list(source.epoch(epoch))
    finally:
        source.close()
    assert len(found) == source.batches_per_epoch
    return found


def told_apart(targets: Iterable[dict[str, torch.Tensor]], images: Iterable[torch.Tensor]) -> list[Any]:
    """What an image's objects are, whatever size it was brought to: labels and boxes in hundredths of the image."""
    found = []
    for target, image in zip(targets, images, strict=True):
        sides = torch.tensor([image.shape[-1], image.shape[-2]] * 2)
        boxes = (100 * target["boxes"] / sides).round().int().tolist()
        found.append(tuple(sorted((int(label), *box) for label, box in zip(target["labels"], boxes, strict=True))))
    return found


def expected_objects(index: CocoIndex) -> Counter[Any]:
    """The same from the annotations."""
    found: Counter[Any] = Counter()
    for number in range(len(index)):
        objects = index.objects(number)
        boxes = (100 * torch.from_numpy(index.boxes[objects] / np.tile(index.sizes[number], 2))).round().int().tolist()
        if boxes:
            found[tuple(sorted((int(c), *box) for c, box in zip(index.categories[objects], boxes, strict=True)))] += 1
    return found


def test_images_without_objects_and_crowds_are_left_out(scenes_dir: Path) -> None:
    settings = make_spec(scenes_dir, workload="ssd", preset="digits-coco").settings
    data = open_coco(scenes_dir, settings, ALONE, contiguous=True, segmentations=False)
    assert (len(data.training), len(data.validation)) == (103, 13)  # 4 of 107 hold nothing, or a crowd alone
    assert int(data.training.counts().min()) >= 1
    from pycocotools.coco import COCO

    judge = COCO(str(scenes_dir / "annotations/instances_train2017.json"))
    assert len(data.training.boxes) == len(judge.getAnnIds(iscrowd=False)) < len(judge.getAnnIds())


@pytest.mark.parametrize(("source", "count"), [("dali", 1), ("dali", 2), ("dali", 3), ("torch", 2)])
def test_ranks_share_each_epoch_without_gap_or_overlap(scenes_dir: Path, source: str, count: int) -> None:
    shards = [Shard(index=index, count=count) for index in range(count)]
    ranks = [batches(opened(scenes_dir, "maskrcnn", source, shard)[1]) for shard in shards]
    seen: Counter[Any] = Counter()
    for batch in (batch for rank in ranks for batch in rank):
        kept = slice(0, batch.samples)
        seen.update(told_apart(batch.targets[kept], batch.inputs[kept]))
    assert seen == expected_objects(read_index(scenes_dir, "train"))
    for steps in zip(*ranks, strict=True):  # as many batches on every rank
        assert {batch.global_samples for batch in steps} == {sum(batch.samples for batch in steps)}
        assert max(batch.samples for batch in steps) - min(batch.samples for batch in steps) <= 1
    assert sum(batch.samples for rank in ranks for batch in rank) == 103


@pytest.mark.parametrize("count", [1, 3])
def test_ssd_sources_announce_what_they_yield(scenes_dir: Path, count: int) -> None:
    for source in ("dali", "synthetic", *(["torch"] if count == 1 else [])):
        totals = []
        for shard in (Shard(index=index, count=count) for index in range(count)):
            _, training = opened(scenes_dir, "ssd", source, shard, local_batch_size=8)
            sizes = [(batch.samples, batch.global_samples) for batch in batches(training)]
            totals.append(sizes)
        assert [sum(rank[step][0] for rank in totals) for step in range(len(totals[0]))] == [pair[1] for pair in totals[0]]
        assert sum(pair[1] for pair in totals[0]) == (1135 if source == "synthetic" else 103)


def mirrored(image: torch.Tensor) -> torch.Tensor:
    return image.flip(-1)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Decoders and resizers may differ by a few of 255 levels; 0.02 is about one level after normalisation."""
    return one.shape == other.shape and float((one - other).abs().mean()) < 0.05


@pytest.mark.parametrize("flip", [False, True])
def test_mask_rcnn_sees_the_same_by_dali_and_torch(scenes_dir: Path, flip: bool) -> None:
    by_dali, by_torch = (
        batches(opened(scenes_dir, "maskrcnn", source, flip=flip, image_size=72, max_image_size=90)[1])
        for source in ("dali", "torch")
    )
    flipped, run_lengths = 0, 0
    index = read_index(scenes_dir, "train", segmentations=True)
    run_lengths = sum(isinstance(segmentation, dict) for segmentation in index.segmentations)
    assert run_lengths  # they come to DALI by another way than polygons
    pairs = [
        pair
        for one, other in zip(by_dali, by_torch, strict=True)
        for pair in zip(one.inputs, one.targets, other.inputs, other.targets, strict=True)
    ]
    for image, target, other_image, other in pairs:
        boxes, masks = target["boxes"], target["masks"]
        if not close(image, other_image):  # each draws its own flips
            flipped += 1
            image, masks = mirrored(image), mirrored(masks)
            left, top, right, bottom = boxes.unbind(dim=1)
            boxes = torch.stack([image.shape[-1] - right, top, image.shape[-1] - left, bottom], dim=1)
        assert close(image, other_image)
        torch.testing.assert_close(boxes, other["boxes"], rtol=0, atol=1.0)
        assert torch.equal(target["labels"], other["labels"])
        assert masks.shape == other["masks"].shape
        check_masks(masks, other["masks"])
    assert (20 < flipped < 83) if flip else flipped == 0


def check_masks(masks: torch.Tensor, others: torch.Tensor) -> None:
    """Within a pixel: what one has and the other has not lies at the rim of the other."""
    for mask, other in zip(masks, others, strict=True):
        grown = torch.nn.functional.max_pool2d(other[None, None].float(), 3, stride=1, padding=1)[0, 0]
        shrunk = -torch.nn.functional.max_pool2d(-other[None, None].float(), 3, stride=1, padding=1)[0, 0]
        assert int(((mask > 0) & (grown == 0)).sum()) == 0
        assert int(((mask == 0) & (shrunk > 0)).sum()) == 0


@pytest.mark.parametrize("name", ["ssd", "maskrcnn"])
def test_validation_images_are_the_same_and_each_once(scenes_dir: Path, name: str) -> None:
    seen: dict[str, dict[int, torch.Tensor]] = {}
    for source in ("dali", "torch"):
        found: list[tuple[int, torch.Tensor]] = []
        count = 2 if source == "dali" else 1  # starting DataLoader workers takes seconds
        for shard in (Shard(index=index, count=count) for index in range(count)):
            workload, training = opened(scenes_dir, name, source, shard, evaluation__local_batch_size=4)
            for numbers, images in workload.validation_images:
                found += zip(numbers, (image.clone() for image in images), strict=True)
            training.close()
        assert [number for number, _ in found] == list(range(13))
        seen[source] = dict(found)
    for number in range(13):
        assert close(seen["dali"][number], seen["torch"][number])


def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No random colours: changes of less than a level."""
    for module in (dali_ssd, ssd_augmentation):
        for name in ("BRIGHTNESS", "CONTRAST", "SATURATION", "HUE_DEGREES"):
            monkeypatch.setattr(module, name, 1e-6)


def test_ssd_sees_the_same_by_dali_and_torch(scenes_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole images, since each source draws its own crops: pixels, matched boxes and offsets."""
    still(monkeypatch)
    workload, source = opened(scenes_dir, "ssd", "dali", crop_area=[1.0, 1.0], local_batch_size=8)
    index = read_index(scenes_dir, "train")
    index = index.subset(np.flatnonzero(index.counts() > 0))
    order = CocoOrder(images=103, groups=None, local_batch_size=8, shard=ALONE, seed=3)
    reader = SsdReader(workload.settings, workload.coder, attempts=1)  # type: ignore[attr-defined]
    positives = 0
    for batch, drawn in zip(batches(source), order.epoch(1), strict=True):
        for place in range(batch.samples):
            image, target = reader(index, int(drawn.images[place]), np.random.default_rng(0))
            assert close(batch.inputs[place], image)
            offsets, labels = batch.targets[0][place], batch.targets[1][place]
            # Of two default boxes that overlap an object equally, DALI claims the last, torch the first.
            assert torch.equal(labels.sort().values, target["labels"].sort().values)
            assert int((labels != target["labels"]).sum()) <= 2
            both = (labels > 0) & (labels == target["labels"])
            torch.testing.assert_close(offsets[both], target["offsets"][both], rtol=0, atol=2e-3)
            positives += int(both.sum())
    assert positives > 500


def test_ssd_crops_keep_objects_and_vary(scenes_dir: Path) -> None:
    _, training = opened(scenes_dir, "ssd", "dali", crop_area=[0.09, 1.0], local_batch_size=8)
    first, second = (list(training.epoch(epoch)) for epoch in (1, 2))
    training.close()
    for batch in first:
        assert bool(((batch.targets[1] > 0).sum(dim=1) > 0).all())
        assert batch.inputs.shape[1:] == (3, 96, 96)
        assert bool(torch.isfinite(batch.inputs).all())
    assert not torch.equal(first[0].inputs, second[0].inputs)


def test_torch_crops_are_the_references() -> None:
    """Sides of 0.3 to 1, aspect within 1:2 and 2:1, and the boxes follow the pixels."""
    ground = np.zeros((100, 100, 3), dtype=np.uint8)
    ground[20:60, 30:70] = 255
    box, labels = np.array([[0.3, 0.2, 0.7, 0.6]]), np.array([4])
    whole = 0
    for seed in range(400):
        image, boxes, kept = ssd_augmentation.random_crop(
            Image.fromarray(ground), box, labels, [0.3, 1.0], 1, np.random.default_rng(seed)
        )
        whole += image.size == (100, 100)
        assert 29 <= min(image.size) <= max(image.size) <= 100
        assert 0.48 <= image.width / image.height <= 2.1
        assert kept.tolist() == [4]
        lit = np.asarray(image)[:, :, 0] > 0
        rows, columns = np.flatnonzero(lit.any(axis=1)), np.flatnonzero(lit.any(axis=0))
        edges = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        np.testing.assert_allclose(boxes[0] * np.tile(image.size, 2), edges, atol=1.5)
    assert 0 < whole < 400  # not to crop is one of the seven choices


def test_an_epoch_depends_on_seed_and_epoch_alone(scenes_dir: Path) -> None:
    once, again = (batches(opened(scenes_dir, "ssd", "dali")[1]) for _ in range(2))
    assert all(torch.equal(one.inputs, other.inputs) for one, other in zip(once, again, strict=True))


def odd_images(root: Path) -> list[str]:
    """Rewrite the first validation images as grey, CMYK and PNG files; their names stay."""
    names = sorted(path.name for path in (root / "val2017").iterdir())[:3]
    for name, (mode, form) in zip(names, [("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG")], strict=True):
        path = root / "val2017" / name
        with Image.open(path) as image:
            converted = image.convert(mode)
        converted.save(path, format=form)
    return names


@pytest.mark.parametrize("name", ["ssd", "maskrcnn"])
def test_grey_cmyk_and_png_files_are_decoded_alike(scenes_dir: Path, tmp_path: Path, name: str) -> None:
    root = tmp_path / "odd"
    shutil.copytree(scenes_dir, root)
    odd_images(root)
    workload, training = opened(root, name, "dali", evaluation__local_batch_size=13)
    training.close()
    ((_, images),) = list(workload.validation_images)
    for place, file in enumerate(workload.validation.files[:3]):
        with Image.open(root / "val2017" / file) as stored:
            converted = stored.convert("RGB").resize((images[place].shape[2], images[place].shape[1]), Image.Resampling.BILINEAR)
        expected = (np.asarray(converted, dtype=np.float32) / 255 - MEAN) / STD
        assert float(np.abs(images[place].numpy().transpose(1, 2, 0) - expected).mean()) < 0.06


def test_images_of_like_shape_meet_in_a_batch() -> None:
    sizes = np.array([(4, 3), (3, 4), (5, 5), (3, 4), (9, 2), (2, 9), (6, 5), (1, 2), (8, 8), (3, 7), (4, 4)])
    groups = aspect_groups(sizes)
    assert groups.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]  # 1: higher than wide
    order = CocoOrder(images=11, groups=groups, local_batch_size=2, shard=ALONE, seed=1)
    batches = order.global_batches(1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(11))
    assert [len(batch) for batch in batches] == [2, 2, 2, 2, 2, 1]
    assert sum(len(set(groups[batch])) > 1 for batch in batches) == 0
    mixed = CocoOrder(images=11, groups=None, local_batch_size=2, shard=ALONE, seed=1).global_batches(1)
    assert sum(len(set(groups[batch])) > 1 for batch in mixed) > 0
    assert [batch.tolist() for batch in order.global_batches(2)] != [batch.tolist() for batch in batches]
