"""Mask R-CNN with a ResNet-FPN backbone, put together from torchvision's parts: 44,401,393 parameters with ResNet-50, 91 classes.

He et al., Mask R-CNN, arXiv 1703.06870. Images come resized and normalised from the input pipeline, so that torchvision's own
transform is left out and its other stages are called one by one. As in the MLPerf reference (object_detection/, built on
maskrcnn_benchmark), losses are normalised over the images of one forward pass of one rank, and averaged over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision.models import resnet18, resnet34, resnet50
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from training.backbone_weights import load_backbone
from training.detections import Detections
from training.maskrcnn.options import MaskRcnnOptions

BACKBONES = {"resnet18": resnet18, "resnet34": resnet34, "resnet50": resnet50}
STAGES = ("layer4", "layer3", "layer2", "layer1", "conv1")
LEVELS = 5
PADDED_TO = 32
"""Batches are padded to multiples of this many pixels: the stride of the coarsest backbone stage."""
NON_EMPTY = 0.5
"""Mask probability above which a pixel belongs to the object."""


class ExactAnchors(AnchorGenerator):  # type: ignore[misc]
    """Anchors in single precision. torchvision makes them in that of the features, and bf16 counts pixels exactly up to 256."""

    def set_cell_anchors(self, dtype: torch.dtype, device: torch.device) -> None:
        super().set_cell_anchors(torch.float32, device)


class MaskRcnn(MaskRCNN):  # type: ignore[misc]
    """Batches of images of unequal sizes to losses (training) or detections (evaluation)."""

    def forward(  # type: ignore[override]
        self, images: Sequence[torch.Tensor], targets: list[dict[str, torch.Tensor]] | None = None
    ) -> Any:
        """Losses by name when training; else torchvision's dictionaries of boxes, labels, scores and masks [n, 1, 28, 28].

        Boxes are in pixels of the images as they come.
        """
        sizes = [(int(image.shape[-2]), int(image.shape[-1])) for image in images]
        batch = pad(images)
        features = self.backbone(batch)
        listed = ImageList(batch, sizes)
        proposals, proposal_losses = self.rpn(listed, features, targets)
        detections, detection_losses = self.roi_heads(features, proposals, sizes, targets)
        return {**proposal_losses, **detection_losses} if self.training else detections


def pad(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """[N, 3, H, W] batch, each image at the top left, zeros beyond; in the memory layout of the images."""
    height = -(-max(image.shape[-2] for image in images) // PADDED_TO) * PADDED_TO
    width = -(-max(image.shape[-1] for image in images) // PADDED_TO) * PADDED_TO
    layout = torch.channels_last if images[0].stride(0) == 1 else torch.contiguous_format
    batch = torch.zeros(len(images), 3, height, width, device=images[0].device, dtype=images[0].dtype)
    batch = batch.contiguous(memory_format=layout)
    for padded, image in zip(batch, images, strict=True):
        padded[:, : image.shape[-2], : image.shape[-1]].copy_(image)
    return batch


def build_mask_rcnn(options: MaskRcnnOptions, classes: int, weights: Path | None = None) -> MaskRcnn:
    """The model; `weights`: a state dict of torchvision's backbone, None: random weights."""
    norm: Any = FrozenBatchNorm2d if options.batch_norm == "frozen" else nn.BatchNorm2d
    # Where batch norm learns, residual branches begin at zero: Goyal et al., arXiv 1706.02677, section 5.1.
    resnet = BACKBONES[options.backbone](weights=None, norm_layer=norm, zero_init_residual=options.batch_norm == "trained")
    if weights is not None:
        load_backbone(resnet, weights)
    backbone = _fpn(resnet, options)
    width = options.width
    model = MaskRcnn(
        backbone,
        rpn_anchor_generator=ExactAnchors(
            tuple((options.smallest_anchor_px * 2**level,) for level in range(LEVELS)), ((0.5, 1.0, 2.0),) * LEVELS
        ),
        rpn_pre_nms_top_n_train=options.rpn_candidates_per_level,
        rpn_pre_nms_top_n_test=options.evaluation_candidates,
        rpn_post_nms_top_n_train=options.image_candidates,
        rpn_post_nms_top_n_test=options.evaluation_candidates,
        rpn_batch_size_per_image=options.rpn_samples,
        box_batch_size_per_image=options.box_samples,
        box_head=TwoMLPHead(width * 7 * 7, 4 * width),
        box_predictor=FastRCNNPredictor(4 * width, classes),
        mask_head=MaskRCNNHeads(width, (width,) * options.mask_layers, 1),
        mask_predictor=MaskRCNNPredictor(width, width, classes),
    )
    # Under autocast the heads would hand on 8 bits of mantissa, half a pixel at 100 pixels; boxes and scores want all.
    for head in (model.rpn.head, model.roi_heads.box_predictor, model.roi_heads.mask_predictor):
        head.register_forward_hook(lambda _module, _inputs, outputs: _single(outputs))
    return model


def _single(outputs: Any) -> Any:
    """The same tensors in single precision, however deep they lie in lists."""
    if isinstance(outputs, torch.Tensor):
        return outputs.float()
    return type(outputs)(_single(part) for part in outputs)


def _fpn(resnet: nn.Module, options: MaskRcnnOptions) -> BackboneWithFPN:
    """Stages 1 to 4 and the pyramid over them; torchvision's `resnet_fpn_backbone` with a width of one's own."""
    for name, parameter in resnet.named_parameters():
        trained = name.startswith(STAGES[: options.trained_stages]) or (options.trained_stages == len(STAGES))
        parameter.requires_grad_(trained)
    channels = [resnet.inplanes // 2**power for power in (3, 2, 1, 0)]  # type: ignore[operator]
    stages = {f"layer{stage}": str(stage - 1) for stage in (1, 2, 3, 4)}
    return BackboneWithFPN(resnet, stages, channels, options.width, extra_blocks=LastLevelMaxPool())


def to_detections(found: dict[str, torch.Tensor], size: tuple[int, int], original: tuple[int, int]) -> Detections:
    """One image's result in pixels of the original image; sizes are (height, width).

    Masks are pasted at the original size, as the reference does.
    """
    from torchvision.models.detection.roi_heads import paste_masks_in_image

    ratios = (original[1] / size[1], original[0] / size[0])
    boxes = found["boxes"].float() * torch.tensor([*ratios, *ratios], device=found["boxes"].device)
    masks = paste_masks_in_image(found["masks"].float(), boxes, original)
    return Detections(boxes=boxes, scores=found["scores"].float(), labels=found["labels"], masks=masks[:, 0] > NON_EMPTY)
