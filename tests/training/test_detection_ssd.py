"""SSD's architecture, default boxes, matching and loss against the MLPerf reference's published numbers and formulas."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional
from torchvision.ops import box_iou

from results.yaml_file import ConfigurationError
from tests.training.support import make_spec
from training.ssd.boxes import SCALES_300, BoxCoder, default_boxes, feature_maps
from training.ssd.loss import ssd_loss
from training.ssd.model import CHANNELS
from training.ssd.workload import SsdWorkload
from training.workload import Shard

CPU = torch.device("cpu")
# mlcommons/training, single_stage_detector/ssd/train.py, dboxes300_coco.
CELLS = (38, 19, 10, 5, 3, 1)
STEPS = (8, 16, 32, 64, 100, 300)
SCALES = (21, 45, 99, 153, 207, 261, 315)
RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))


def workload(preset: str = "mlperf-v0.6", **overrides: object) -> SsdWorkload:
    spec = make_spec(Path("unused"), workload="ssd", preset=preset, **overrides)
    return SsdWorkload(spec=spec, shard=Shard(index=0, count=1), device=CPU)


def published_boxes() -> np.ndarray:
    """[boxes, 4] centre and size, map by map in the reference's own order: box shape, row, column."""
    boxes = []
    for cells, step, ratios, here, following in zip(CELLS, STEPS, RATIOS, SCALES, SCALES[1:], strict=False):
        sides = [(here, here), (math.sqrt(here * following),) * 2]
        for ratio in ratios:
            sides += [(here * math.sqrt(ratio), here / math.sqrt(ratio)), (here / math.sqrt(ratio), here * math.sqrt(ratio))]
        for (width, height), row, column in itertools.product(sides, range(cells), range(cells)):
            boxes.append(((column + 0.5) * step, (row + 0.5) * step, width, height))
    return (np.array(boxes) / 300).clip(0, 1)


def by_value(boxes: np.ndarray) -> np.ndarray:
    """Rows in one order, whatever theirs was."""
    rounded = boxes.round(5)
    return boxes[np.lexsort(rounded.T)]


def test_the_model_has_the_size_of_the_reference() -> None:
    model = workload().make_model(None)
    assert sum(parameter.numel() for parameter in model.parameters()) == 19_972_534
    with torch.inference_mode():
        offsets, scores = model.eval()(torch.zeros(1, 3, 300, 300))
    assert offsets.shape == (1, 8732, 4)
    assert scores.shape == (1, 8732, 81)


def test_default_boxes_are_the_published_ones() -> None:
    ours, published = default_boxes(300, SCALES_300).numpy(), published_boxes()
    assert ours.shape == published.shape == (8732, 4)
    np.testing.assert_allclose(by_value(ours), by_value(published), atol=1e-6)
    assert [grid.cells for grid in feature_maps(300)] == list(CELLS)
    assert [grid.boxes_per_cell for grid in feature_maps(300)] == [4, 6, 6, 6, 4, 4]


def test_each_prediction_belongs_to_the_default_box_at_its_place() -> None:
    """Predictions of one cell of one map light up in the rows of the default boxes that lie there."""
    model = workload().make_model(None).eval()
    defaults = default_boxes(300, SCALES_300)
    first = 0
    for number, (cells, step) in enumerate(zip(CELLS, STEPS, strict=True)):
        features = [torch.zeros(1, channels, side, side) for channels, side in zip(CHANNELS, CELLS, strict=True)]
        row, column = cells // 2, cells // 3
        features[number][0, :, row, column] = 1.0
        with torch.inference_mode():
            # A 3x3 convolution sees the neighbours too; weights at its centre alone make it blind for them.
            for convolution in model.head.classification_head.module_list:
                convolution.weight.zero_()
                convolution.weight[:, :, 1, 1] = 1.0
            lit = model.head(features)["cls_logits"][0].sum(dim=1).nonzero()[:, 0]
        boxes_per_cell = 2 + 2 * len(RATIOS[number])
        assert len(lit) == boxes_per_cell
        assert first <= int(lit.min()) <= int(lit.max()) < first + cells * cells * boxes_per_cell
        expected = torch.tensor([(column + 0.5) * step / 300, (row + 0.5) * step / 300]).expand(boxes_per_cell, 2)
        torch.testing.assert_close(defaults[lit, :2], expected)
        first += cells * cells * boxes_per_cell


def random_objects(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 2, 2, generator=generator).sort(dim=1).values
    corners[:, 1] += 0.02
    return corners.flatten(1).clamp(0, 1), torch.randint(1, 81, (count,), generator=generator)


def test_decoding_undoes_encoding() -> None:
    coder = BoxCoder(default_boxes(300, SCALES_300))
    boxes, labels = random_objects(9, seed=1)
    offsets, encoded = coder.encode(boxes, labels)
    positive = encoded > 0
    assert set(encoded[positive].tolist()) == set(labels.tolist())  # every object is answered for
    decoded = coder.decode(offsets)[positive]
    distance = (decoded[:, None] - boxes[None]).abs().amax(dim=2)
    nearest = distance.argmin(dim=1)
    assert float(distance.amin(dim=1).max()) < 1e-5
    assert torch.equal(labels[nearest], encoded[positive])
    assert float(offsets[~positive].abs().max()) < 1e-5


def test_boxes_are_matched_as_the_paper_says() -> None:
    """An object takes its best default box, whatever the overlap; others take their best object above an IoU of 0.5."""
    defaults = default_boxes(300, SCALES_300)
    coder = BoxCoder(defaults)
    boxes, labels = random_objects(6, seed=3)
    _, encoded = coder.encode(boxes, labels)
    overlaps = box_iou(coder.corners, boxes)
    expected = []
    claims = {int(overlaps[:, place].argmax()): place for place in range(len(boxes))}
    for number in range(len(defaults)):
        best = int(overlaps[number].argmax())
        if number in claims:
            expected.append(int(labels[claims[number]]))
        else:
            expected.append(int(labels[best]) if float(overlaps[number, best]) > 0.5 else 0)
    assert encoded.tolist() == expected
    tiny = torch.tensor([[0.5, 0.5, 0.501, 0.501]])
    assert int((coder.encode(tiny, torch.tensor([7]))[1] == 7).sum()) == 1
    assert int(coder.encode(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))[1].sum()) == 0


def naive_image_loss(offsets: torch.Tensor, scores: torch.Tensor, targets: torch.Tensor, labels: torch.Tensor) -> float:
    """Liu et al., equations 1 to 3, one box after the other; 0 where no box is positive."""
    positives = [place for place in range(len(labels)) if labels[place] > 0]
    if not positives:
        return 0.0
    location = 0.0
    for place, k in itertools.product(positives, range(4)):
        difference = abs(float(offsets[place, k] - targets[place, k]))
        location += 0.5 * difference**2 if difference < 1 else difference - 0.5
    losses = [-float(functional.log_softmax(scores[place], dim=0)[labels[place]]) for place in range(len(labels))]
    hardest = sorted((losses[place] for place in range(len(labels)) if labels[place] == 0), reverse=True)
    confidence = sum(losses[place] for place in positives) + sum(hardest[: 3 * len(positives)])
    return (location + confidence) / len(positives)


def random_predictions(images: int, boxes: int, classes: int, positives: list[int]) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(7)
    offsets = 2 * torch.randn(images, boxes, 4, generator=generator, dtype=torch.float64)
    scores = 2 * torch.randn(images, boxes, classes, generator=generator, dtype=torch.float64)
    targets = torch.randn(images, boxes, 4, generator=generator, dtype=torch.float64)
    labels = torch.zeros(images, boxes, dtype=torch.int64)
    for image, count in enumerate(positives):
        places = torch.randperm(boxes, generator=generator)[:count]
        labels[image, places] = torch.randint(1, classes, (count,), generator=generator)
    return offsets, scores, targets, labels


def test_the_loss_mines_three_negatives_for_each_positive() -> None:
    offsets, scores, targets, labels = random_predictions(4, 60, 5, positives=[1, 9, 0, 14])
    expected = [naive_image_loss(*image) for image in zip(offsets, scores, targets, labels, strict=True)]
    assert expected[2] == 0.0
    for image, value in enumerate(expected):
        kept = slice(image, image + 1)
        assert float(ssd_loss(offsets[kept], scores[kept], targets[kept], labels[kept])) == pytest.approx(value, rel=1e-6)
    # Each image by its own positives, then the mean over images, the empty one included.
    assert float(ssd_loss(offsets, scores, targets, labels)) == pytest.approx(sum(expected) / 4, rel=1e-6)


def test_only_positives_and_mined_negatives_learn() -> None:
    offsets, scores, targets, labels = random_predictions(2, 60, 5, positives=[3, 0])
    offsets.requires_grad_()
    scores.requires_grad_()
    ssd_loss(offsets, scores, targets, labels).backward()
    assert offsets.grad is not None
    assert scores.grad is not None
    learning = scores.grad.abs().sum(dim=2) > 0
    assert int(learning[0].sum()) == 3 + 9
    assert int(learning[1].sum()) == 0
    assert torch.equal(offsets.grad.abs().sum(dim=2) > 0, labels > 0)


def test_detections_are_those_of_a_plain_loop() -> None:
    """Class by class: above 0.05, suppressed at an IoU of 0.5, then the best 200 of the image; utils.py, decode_single."""
    coder = BoxCoder(default_boxes(96, [0.15, 0.35, 0.5, 0.7, 0.9]))
    generator = torch.Generator().manual_seed(2)
    offsets = torch.randn(1, len(coder.defaults), 4, generator=generator)
    scores = 1.2 * torch.randn(1, len(coder.defaults), 4, generator=generator)
    (found,) = coder.detect(offsets, scores)
    probabilities, boxes = scores[0].softmax(dim=1), coder.decode(offsets[0])
    expected = []
    for label in (1, 2, 3):
        order = [int(p) for p in probabilities[:, label].argsort(descending=True) if probabilities[p, label] > 0.05][:200]
        kept: list[int] = []
        for place in order:
            if all(float(box_iou(boxes[place][None], boxes[other][None])) <= 0.5 for other in kept):
                kept.append(place)
        expected += [(float(probabilities[place, label]), label, boxes[place].tolist()) for place in kept]
    expected.sort(key=lambda item: -item[0])
    expected = expected[:200]
    assert len(expected) == 200
    torch.testing.assert_close(found.scores, torch.tensor([item[0] for item in expected]))
    assert found.labels.tolist() == [item[1] for item in expected]
    torch.testing.assert_close(found.boxes, torch.tensor([item[2] for item in expected]))


def test_other_sizes_want_their_own_boxes() -> None:
    with pytest.raises(ConfigurationError, match=r"set model\.smallest_box and model\.largest_box"):
        workload(image_size=320)
    embedded = workload("digits-coco")
    assert len(embedded.coder.defaults) == 832  # as its preset says
    assert [grid.cells for grid in feature_maps(96)] == [12, 6, 3, 1]
