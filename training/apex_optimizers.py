"""NVIDIA apex's fused optimizers where that apex is installed. The package of this name in the index is another project.

Written against the signatures of apex/optimizers/fused_sgd.py and fused_lamb.py in NVIDIA's repository. Horovod makes its wrapper
from the parameter groups alone, so what apex keeps outside the groups is set by the classes here.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module, util
from pathlib import Path
from typing import Any

from training.lamb import BETAS, EPSILON


@cache
def apex_optimizers() -> Any | None:
    """The module `apex.optimizers`, or None where NVIDIA's apex is not installed or lacks its CUDA extensions."""
    found = util.find_spec("apex")  # looks for it and runs nothing of it
    folders = [Path(folder) for folder in (found.submodule_search_locations or [])] if found else []
    if not any((folder / "optimizers" / "fused_sgd.py").exists() for folder in folders):
        return None
    try:
        optimizers = import_module("apex.optimizers")
        available = import_module("apex.multi_tensor_apply").multi_tensor_applier.available
    except Exception as error:  # whatever an apex for another torch may raise
        print(
            f"apex is installed and does not load ({type(error).__name__}: {error}); torch's own optimizers are used", flush=True
        )
        return None
    return optimizers if available else None


def fused_sgd(groups: list[dict[str, Any]], *, lr: float, momentum: float) -> Any:
    """apex's FusedSGD, which keeps everything in its groups."""
    optimizers = apex_optimizers()
    assert optimizers is not None
    return optimizers.FusedSGD(groups, lr=lr, momentum=momentum)


def fused_lamb(groups: list[dict[str, Any]], *, lr: float) -> Any:
    """apex's FusedLAMB without the clipping that it does by default: `clip_norm` says what is clipped."""
    optimizers = apex_optimizers()
    assert optimizers is not None

    class FusedLAMB(optimizers.FusedLAMB):  # type: ignore[misc, name-defined]
        def __init__(self, params: Any) -> None:
            super().__init__(params, lr=lr, betas=BETAS, eps=EPSILON, weight_decay=0.0, max_grad_norm=math.inf)

    return FusedLAMB(groups)
