"""Mask R-CNN against torchvision's own: the same parameters, losses and detections from the same weights and images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.models.detection import MaskRCNN, MaskRCNN_ResNet50_FPN_Weights
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import FrozenBatchNorm2d

from results.yaml_file import ConfigurationError
from tests.training.support import make_spec
from training.maskrcnn.model import MaskRcnn, build_mask_rcnn, pad, to_detections
from training.maskrcnn.options import MaskRcnnOptions
from training.maskrcnn.workload import MaskRcnnWorkload
from training.workload import Shard

CPU = torch.device("cpu")
HEIGHT, WIDTH = 96, 128


def torchvisions() -> Any:
    """torchvision's model as it builds it for pretrained weights, told not to resize or normalise."""
    backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3)
    return MaskRCNN(
        backbone, 91, image_mean=[0.0] * 3, image_std=[1.0] * 3, _skip_resize=True, min_size=HEIGHT, max_size=WIDTH,
        rpn_post_nms_top_n_train=100, rpn_pre_nms_top_n_test=8, rpn_post_nms_top_n_test=8, box_batch_size_per_image=64,
    )  # fmt: skip


@pytest.fixture(scope="module")
def pair() -> tuple[MaskRcnn, Any]:
    """Ours and torchvision's with the same weights."""
    torch.manual_seed(3)
    ours = build_mask_rcnn(MaskRcnnOptions(image_candidates=100, evaluation_candidates=8, box_samples=64), 91)
    theirs = torchvisions()
    theirs.load_state_dict(ours.state_dict())  # strict: the same names and shapes
    return ours, theirs


def images_and_targets() -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    generator = torch.Generator().manual_seed(4)
    images = [torch.randn(3, HEIGHT, WIDTH, generator=generator) for _ in range(2)]
    targets = []
    for boxes in ([[8.0, 10, 60, 50], [40, 30, 120, 90]], [[5.0, 5, 45, 85]]):
        masks = torch.zeros(len(boxes), HEIGHT, WIDTH, dtype=torch.uint8)
        for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
            mask[int(top) : int(bottom), int(left) : int((left + right) / 2)] = 1
        targets.append({"boxes": torch.tensor(boxes), "labels": torch.arange(1, len(boxes) + 1), "masks": masks})
    return images, targets


def test_the_model_has_the_size_of_torchvisions_card(pair: tuple[MaskRcnn, Any]) -> None:
    ours, theirs = pair
    assert MaskRCNN_ResNet50_FPN_Weights.COCO_V1.meta["num_params"] == 44_401_393
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) == 44_401_393


def test_losses_are_torchvisions(pair: tuple[MaskRcnn, Any]) -> None:
    ours, theirs = (model.train() for model in pair)
    images, targets = images_and_targets()
    torch.manual_seed(0)  # both sample anchors and proposals
    found = ours(images, targets)
    torch.manual_seed(0)
    expected = theirs(images, targets)
    assert set(found) == set(expected) == {
        "loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask",
    }  # fmt: skip
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_detections_are_torchvisions(pair: tuple[MaskRcnn, Any]) -> None:
    ours, theirs = (model.eval() for model in pair)
    images = images_and_targets()[0][:1]
    with torch.inference_mode():
        found = [to_detections(one, (HEIGHT, WIDTH), (HEIGHT, WIDTH)) for one in ours(images)]
        expected = theirs(images)
    for one, other in zip(found, expected, strict=True):
        assert len(one.boxes) == len(other["boxes"]) > 5
        torch.testing.assert_close(one.boxes, other["boxes"], rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(one.scores, other["scores"], rtol=1e-4, atol=1e-5)
        assert torch.equal(one.labels, other["labels"])
        assert one.masks is not None
        assert float((one.masks != (other["masks"][:, 0] > 0.5)).float().mean()) < 1e-4


def test_detections_come_in_pixels_of_the_original_image() -> None:
    found = {
        "boxes": torch.tensor([[10.0, 20, 50, 40]]), "scores": torch.tensor([0.9]), "labels": torch.tensor([3]),
        "masks": torch.ones(1, 1, 28, 28),
    }  # fmt: skip
    scaled = to_detections(found, (100, 200), (50, 400))
    assert scaled.boxes.tolist() == [[20, 10, 100, 20]]
    assert scaled.masks is not None
    assert scaled.masks.shape == (1, 50, 400)
    rows, columns = scaled.masks[0].nonzero(as_tuple=True)
    # torchvision pads masks by a pixel of 28 before it pastes them, and rounds outwards.
    assert (int(columns.min()), int(rows.min())) == pytest.approx((20, 10), abs=2)
    assert (int(columns.max()), int(rows.max())) == pytest.approx((100, 20), abs=2)


@pytest.mark.parametrize("channels_last", [False, True])
def test_images_are_padded_at_the_right_and_below(channels_last: bool) -> None:
    images = [torch.ones(3, 40, 33), 2 * torch.ones(3, 64, 20)]
    if channels_last:
        images = [image.permute(1, 2, 0).contiguous().permute(2, 0, 1) for image in images]
    batch = pad(images)
    assert batch.shape == (2, 3, 64, 64)
    assert batch.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    for padded, image in zip(batch, images, strict=True):
        assert torch.equal(padded[:, : image.shape[1], : image.shape[2]], image)
        assert float(padded.sum()) == float(image.sum())


def workload(preset: str, **overrides: object) -> MaskRcnnWorkload:
    spec = make_spec(Path("unused"), workload="maskrcnn", preset=preset, **overrides)
    return MaskRcnnWorkload(spec=spec, shard=Shard(index=0, count=1), device=CPU)


def test_the_full_preset_is_the_references_model() -> None:
    model = workload("mlperf-v0.6").make_model(None)
    assert sum(p.numel() for p in model.parameters()) == 44_401_393
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in model.modules())
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    # maskrcnn_benchmark, FREEZE_CONV_BODY_AT 2: the stem and the first stage stay as they are.
    assert frozen
    assert {name.split(".")[2] for name in frozen} == {"conv1", "layer1"}


def test_frozen_batch_norm_wants_weights() -> None:
    with pytest.raises(ConfigurationError, match="--backbone-weights FILE"):
        workload("mlperf-v0.6").build_model()


def test_biases_learn_twice_as_fast_and_are_not_decayed() -> None:
    """maskrcnn_benchmark/solver/build.py: BIAS_LR_FACTOR 2, WEIGHT_DECAY_BIAS 0."""
    job = workload("mlperf-v0.6")
    model = job.make_model(None)
    others, biases = job.parameter_groups(model)
    assert (others["weight_decay"], biases["weight_decay"], biases["rate_factor"]) == (1e-4, 0.0, 2.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert all(names[id(p)].endswith("bias") for p in biases["params"])
    assert not any(names[id(p)].endswith("bias") for p in others["params"])
    assert len(others["params"]) + len(biases["params"]) == sum(p.requires_grad for p in model.parameters())
