"""Checkpoints: `latest.pt` after each evaluation and where a run is stopped, and `best.pt`; written whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from results.rundir import RunDirectory
from results.yaml_file import ConfigurationError


def save(run_dir: RunDirectory, state: dict[str, Any], *, best: bool) -> None:
    """Write `state` as the latest checkpoint, and as the best when it is; tensors, numbers and strings only.

    Raises:
        ConfigurationError: it cannot be written; the one before is as it was.
    """
    folder = run_dir.checkpoints
    partial, latest = folder / ".latest.partial", folder / "latest.pt"
    try:
        folder.mkdir(exist_ok=True)
        with partial.open("wb") as stream:
            torch.save(state, stream)
    except (OSError, RuntimeError) as error:  # torch's own writer tells of a full disk by a RuntimeError
        partial.unlink(missing_ok=True)
        why = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        before = "the one before is intact" if latest.exists() else "there is none before"
        raise ConfigurationError(
            f"{folder}: a checkpoint could not be written ({why}; {before}); free space, or --set checkpoints=false"
        ) from error
    partial.replace(latest)
    if best:
        keep_as_best(run_dir)


def keep_as_best(run_dir: RunDirectory) -> None:
    """The latest checkpoint is the best as well."""
    copy, latest = run_dir.checkpoints / ".best.partial", run_dir.checkpoints / "latest.pt"
    copy.unlink(missing_ok=True)
    try:
        copy.hardlink_to(latest)  # the next latest is a new file, so the link keeps this one
    except OSError:
        shutil.copyfile(latest, copy)
    copy.replace(run_dir.checkpoints / "best.pt")


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        ConfigurationError: the file is no checkpoint of ours.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ConfigurationError(
            f"{path}: not a readable checkpoint ({type(error).__name__}); delete it to start this run again"
        ) from error
    return state
