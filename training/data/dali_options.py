"""What every DALI pipeline of ours is told about threads, device and prefetching, and what its images are."""

from __future__ import annotations

from typing import Any

import torch
from nvidia.dali import fn, types

from results.settings import Settings
from training.data.normalization import MEAN_255, STD_255, pixel_type


def pipeline_options(settings: Settings, device: torch.device) -> dict[str, Any]:
    """Keyword arguments of a DALI pipeline on this rank's device; no device number means CPU only."""
    options: dict[str, Any] = {
        "num_threads": settings.input.threads,
        "device_id": None,
        "prefetch_queue_depth": settings.input.prefetch,
    }
    if device.type == "cuda":
        # The default executor lends torch its own buffers and takes them back as soon as Python drops them, though kernels that
        # read them may still be queued. The older one copies on torch's stream, and its next batch waits for that copy.
        options |= {"device_id": device.index or 0, "exec_dynamic": False}
    return options


def decoder_device(on_gpu: bool) -> str:
    """Where JPEGs are decoded: on GPUs by the hardware decoder where there is one (none in a V100), else half by CUDA cores."""
    return "mixed" if on_gpu else "cpu"


def on_device(output: Any, on_gpu: bool) -> Any:
    """A CPU operator's output where training wants it."""
    return output.gpu() if on_gpu else output


def normalised(images: Any, settings: Settings, **options: Any) -> Any:
    """Images by channel mean and deviation, as the first layer takes them, so that nothing is cast or reordered once more.

    Height, width, channel in memory is what channels_last kernels want.
    """
    return fn.crop_mirror_normalize(
        images, dtype=types.FLOAT16 if pixel_type(settings) is torch.float16 else types.FLOAT,
        output_layout="HWC" if settings.channels_last else "CHW", mean=MEAN_255, std=STD_255, **options,
    )  # fmt: skip


def placed(images: torch.Tensor, settings: Settings) -> torch.Tensor:
    """[..., 3, H, W] view of what a pipeline gives."""
    return images.movedim(-1, -3) if settings.channels_last else images
