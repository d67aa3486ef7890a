"""What every DALI pipeline of ours is told about threads, device and prefetching."""

from __future__ import annotations

from typing import Any

import torch

from results.settings import Settings


def pipeline_options(settings: Settings, device: torch.device) -> dict[str, Any]:
    """Keyword arguments of a DALI pipeline on this rank's device; no device number means CPU only."""
    return {
        "num_threads": settings.input.threads,
        "device_id": device.index or 0 if device.type == "cuda" else None,
        "prefetch_queue_depth": settings.input.prefetch,
    }
