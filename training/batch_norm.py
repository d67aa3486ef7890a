"""Batch norm over ranks: running statistics that every rank agrees on."""

from __future__ import annotations

import torch
from torch import nn

from training.communicator import Communicator


def average_running_statistics(model: nn.Module, communicator: Communicator) -> None:
    """Give every rank the mean of all ranks' running means and variances; collective.

    Each rank normalises by its own batches in training. Before an evaluation the MLPerf SSD reference averages what they have
    gathered (single_stage_detector/ssd/train.py), so that all ranks evaluate one model.
    """
    if communicator.size == 1:
        return
    buffers = [
        buffer
        for layer in model.modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
        for buffer in (layer.running_mean, layer.running_var)
        if buffer is not None
    ]
    if not buffers:
        return
    mean = communicator.sum(torch.cat([buffer.double().flatten() for buffer in buffers])) / communicator.size
    for buffer, part in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(part.view_as(buffer))
