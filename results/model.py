"""The base of every validated document of ours, and how documents reach the disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """An immutable document: an unknown key is an error, never ignored.

    NaN and infinity, as in the loss of a run that failed for it, are written as the strings "NaN" and "Infinity": JSON has no
    such numbers, and null would not be read back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, ser_json_inf_nan="strings")


def write_atomically(path: Path, text: str) -> None:
    """Write `text` under a temporary name in the same folder, flush it to disk, then rename it to `path`.

    A reader sees the old file or the new one, never half of one; a full disk leaves the old one.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
