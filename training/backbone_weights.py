"""Pretrained backbone weights from a file that the user has: torchvision's state dict as .pt or .pth, or .safetensors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import nn

from results.yaml_file import ConfigurationError

UNUSED = ("fc.",)
"""Of a classifier's state dict; detectors leave it out."""


def load_backbone(backbone: nn.Module, path: Path) -> None:
    """Load a torchvision ResNet's weights into `backbone`, a ResNet of the same depth.

    Raises:
        ConfigurationError: the file is missing, no state dict, or of another network.
    """
    state = {name: value for name, value in _read(path).items() if not name.startswith(UNUSED)}
    wanted = {name: value.shape for name, value in backbone.state_dict().items() if not name.startswith(UNUSED)}
    missing = [name for name in wanted if name not in state and not name.endswith("num_batches_tracked")]
    unknown = [name for name in state if name not in wanted and not name.endswith("num_batches_tracked")]
    other = [name for name in wanted if name in state and state[name].shape != wanted[name]]
    for fault, names in (("lacks", missing), ("has besides", unknown), ("has another shape of", other)):
        if names:
            raise ConfigurationError(
                f"backbone weights {path} are not of this backbone: the file {fault} {names[0]} ({len(names)} in all)"
            )
    backbone.load_state_dict(state, strict=False)


def digest(path: Path) -> str:
    """SHA-256 of the file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(path: Path) -> dict[str, torch.Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigurationError(f"backbone weights {path}: no such file") from None
    except Exception as error:
        raise ConfigurationError(f"backbone weights {path} cannot be read ({str(error).splitlines()[0]})") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigurationError(f"backbone weights {path} are no state dict; expected names and tensors, as torchvision saves")
    return state
