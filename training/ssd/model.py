"""SSD with a ResNet backbone as MLPerf Training v0.5 to v1.1 has it: 19,972,534 parameters with ResNet-34 at 300x300, 81 classes.

Source: mlcommons/training, single_stage_detector/ssd/ssd300.py: the third stage of the backbone keeps its stride at 1, the fourth
is left out, and pairs of convolutions without normalisation narrow the map further.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torchvision.models import ResNet, resnet18, resnet34
from torchvision.models.detection.ssd import SSDHead

from training.backbone_weights import load_backbone
from training.ssd.boxes import FeatureMap, feature_maps

BACKBONES = {"resnet18": resnet18, "resnet34": resnet34}
CHANNELS = (256, 512, 512, 256, 256, 256)
"""Channels of the feature maps that predict."""
SQUEEZED = (256, 256, 128, 128, 128)
"""Channels between the two convolutions that lead to the next map."""


class Ssd(nn.Module):
    """Images [N, 3, side, side] to offsets [N, boxes, 4] and class scores [N, boxes, classes] of all default boxes."""

    def __init__(
        self, *, backbone: Literal["resnet18", "resnet34"], classes: int, image_size: int, weights: Path | None = None
    ) -> None:
        """`weights`: a state dict of torchvision's backbone; None: random weights."""
        super().__init__()
        maps = feature_maps(image_size)
        # From random weights the residual branches begin at zero: Goyal et al., arXiv 1706.02677, section 5.1.
        resnet = BACKBONES[backbone](weights=None, zero_init_residual=True)
        if weights is not None:
            load_backbone(resnet, weights)
        self.backbone = nn.Sequential(*_stages(resnet))
        self.extra = nn.ModuleList(_narrowing(number, maps[number + 1]) for number in range(len(maps) - 1))
        # torchvision's head is the reference's: one 3x3 convolution per map, Xavier weights, zero biases.
        self.head = SSDHead(list(CHANNELS[: len(maps)]), [grid.boxes_per_cell for grid in maps], classes)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = [self.backbone(images)]
        for block in self.extra:
            features.append(block(features[-1]))
        predicted = self.head(features)
        return predicted["bbox_regression"], predicted["cls_logits"]


def _stages(resnet: ResNet) -> list[nn.Module]:
    """Stem and the first three stages, the third without its stride."""
    stem = [resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool]
    third: Any = resnet.layer3
    for convolution in (third[0].conv1, third[0].downsample[0]):
        convolution.stride = (1, 1)
    return [*stem, resnet.layer1, resnet.layer2, third]


def _narrowing(number: int, following: FeatureMap) -> nn.Sequential:
    """From map `number` to the next: halved where that has a stride of its own, else narrowed by an unpadded convolution."""
    stride, padding = (2, 1) if following.halved else (1, 0)
    squeeze = nn.Conv2d(CHANNELS[number], SQUEEZED[number], kernel_size=1)
    narrow = nn.Conv2d(SQUEEZED[number], CHANNELS[number + 1], kernel_size=3, stride=stride, padding=padding)
    for layer in (squeeze, narrow):
        nn.init.xavier_uniform_(layer.weight)
    return nn.Sequential(squeeze, nn.ReLU(inplace=True), narrow, nn.ReLU(inplace=True))
