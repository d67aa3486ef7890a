"""Get the data out of memory before a run: MLPerf's rules want them to come from durable storage."""

from __future__ import annotations

import os
from pathlib import Path

FEW_FILES = 20_000
"""Up to so many files are dropped one by one, which needs no rights; with more, the whole page cache is dropped by the kernel."""
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def clear(data_dir: Path) -> bool:
    """Drop the data set from this host's page cache; False where that is not permitted. One rank of each host calls it."""
    files = []
    for folder, _, names in os.walk(data_dir):
        files += [Path(folder) / name for name in names]
        if len(files) > FEW_FILES:
            return _drop_everything()
    try:
        for file in files:
            _drop(file)
    except OSError:
        return False
    return True


def _drop(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _drop_everything() -> bool:
    os.sync()
    try:
        DROP_CACHES.write_text("3\n")
    except OSError:
        return False
    return True
