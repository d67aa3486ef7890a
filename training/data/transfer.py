"""From the host's memory to a GPU's without holding up either."""

from __future__ import annotations

import torch


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """`tensor` on the device; to a GPU through page-locked memory, so that the host goes on and the copy takes its turn in the
    stream. From ordinary memory the host would wait until the stream comes to it."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
