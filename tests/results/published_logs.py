"""Folders of published logs: the project's cut-down ones, and the full ones where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "mlperf_logs"

full_logs = pytest.mark.skipif(not SHARED.is_dir(), reason="the full published logs (../shared/mlperf_logs) are not here")

OLYMPIC_MINUTES = {
    "v0.6/NVIDIA/results/dgx1_ngc19.05_mxnet/resnet": (115.2207, 1664),
    "v0.6/NVIDIA/results/dgx2_ngc19.05_mxnet/resnet": (57.8726, 3328),
    "v0.6/NVIDIA/results/dgx1_ngc19.05_pytorch/ssd": (22.3633, 960),
    "v0.6/NVIDIA/results/dgx2_ngc19.05_pytorch/ssd": (12.2135, 896),
    "v0.7/DellEMC/results/C4140/resnet": (154.0420, 832),
    "v0.7/DellEMC/results/2xC4140/resnet": (76.5879, 1664),
    "v0.7/DellEMC/results/4xC4140/resnet": (39.8774, 3328),
    "v0.7/DellEMC/results/C4140/ssd": (43.8716, 512),
    "v0.7/DellEMC/results/2xC4140/ssd": (22.6681, 1024),
    "v0.7/DellEMC/results/4xC4140/ssd": (12.4398, 896),
}
"""Olympic mean of five in minutes and global batch size, recomputed from the logs by others than this code."""
TWO_RUNS = {"v0.6/NVIDIA/results/dgx1_ngc19.05_pytorch/maskrcnn": ([192.93, 207.81], 48)}
