from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def gpu() -> torch.device:
    """The first GPU that torch sees."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA GPU")
    torch.cuda.set_device(0)
    return torch.device("cuda", 0)
