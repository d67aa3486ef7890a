"""Copy the data set to each node's own scratch before the clock starts: whole, looked through, or not at all."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from results.staging import StagedData
from results.yaml_file import ConfigurationError
from training.communicator import Communicator
from training.data.folder import data_digest

FOLDER = "trainscale"
COPIERS = 8
"""Files under way at once: small ones on a shared file system are bound by its latency."""
WAY_OUT = "or take `scratch` out of the site profile"
Files = dict[str, tuple[int, int]]
"""Size in bytes and time of the last change in ns by path relative to the data set."""


def stage_on_each_host(communicator: Communicator, source: Path, scratch: Path) -> list[StagedData]:
    """One rank of each host copies while the others wait; collective.

    Raises:
        ConfigurationError: a host could not, told to every rank alike, so that none waits for another.
    """
    answers = communicator.gather_objects(_try_to_stage(source, scratch) if communicator.local_rank == 0 else None)
    failures = [answer for answer in answers if isinstance(answer, str)]
    if failures:
        more = f" (and {len(failures) - 1} more hosts failed)" if len(failures) > 1 else ""
        raise ConfigurationError(failures[0] + more)
    return [answer for answer in answers if isinstance(answer, StagedData)]


def on_this_host(staged: list[StagedData]) -> Path:
    """The copy that the ranks of this host read."""
    return next(copy.path for copy in staged if copy.host == platform.node())


def _try_to_stage(source: Path, scratch: Path) -> StagedData | str:
    try:
        return stage(source, scratch)
    except ConfigurationError as error:
        return f"{platform.node()}: {error}"
    except OSError as error:
        where = f"{error.filename or scratch}: {error.strerror}"
        return f"{platform.node()}: copying {source} to {scratch}: {where}; mend it, {WAY_OUT}"


def stage(source: Path, scratch: Path) -> StagedData:
    """A whole copy of `source` under `scratch`: one that is there already, or a new one.

    Raises:
        ConfigurationError: the data set or the scratch folder is missing, or there is no room.
        OSError: a file cannot be read or written.
    """
    start_s = time.monotonic()
    files = _files(source)
    if not files:
        raise ConfigurationError(f"data folder {source} is missing or empty (trainscale data prepare)")
    folder = _own_folder(scratch)
    whole = folder / f"{source.name}-{_digest(source, files)[:12]}"
    with FileLock(folder / f".{whole.name}.lock"):  # the kernel frees it when its holder is killed
        copied = not _is_copy(whole, files)
        if copied:
            _copy(source, files, whole)
    return StagedData(
        host=platform.node(),
        path=whole,
        files=len(files),
        size_bytes=_size_bytes(files),
        copied=copied,
        seconds_s=time.monotonic() - start_s,
    )


def _own_folder(scratch: Path) -> Path:
    if not scratch.is_dir():
        raise ConfigurationError(f"scratch folder {scratch} is missing; make it on every node, {WAY_OUT}")
    folder = scratch / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise ConfigurationError(
            f"scratch folder {folder} cannot be written: {error.strerror}; give yourself the rights, {WAY_OUT}"
        ) from error
    return folder


def _files(root: Path) -> Files:
    """All files below a folder; links are followed, as training follows them."""
    found: Files = {}
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            path = Path(folder) / name
            facts = path.stat()
            found[str(path.relative_to(root))] = facts.st_size, facts.st_mtime_ns
    return found


def _size_bytes(files: Files) -> int:
    return sum(size_bytes for size_bytes, _ in files.values())


def _digest(source: Path, files: Files) -> str:
    """Another one as soon as the manifest or any file is another: content alone would have to be read to be compared."""
    return hashlib.sha256(f"{data_digest(source)} {sorted(files.items())}".encode()).hexdigest()


def _is_copy(folder: Path, files: Files) -> bool:
    """Every file is there with its size. Names and sizes are all that the manifest knows, too; contents aren't read again."""
    there = _files(folder)
    return all(name in there and there[name][0] == size_bytes for name, (size_bytes, _) in files.items())


def _copy(source: Path, files: Files, whole: Path) -> None:
    """Fill a folder beside `whole` that is renamed at the end: what a killed copy leaves is never taken for whole."""
    partial = whole.with_name(f".{whole.name}.partial")
    for left_over in (partial, whole):  # `whole` is there where files of it have gone since
        if left_over.exists():
            shutil.rmtree(left_over)
    needed_bytes, free_bytes = _size_bytes(files), shutil.disk_usage(whole.parent).free
    if needed_bytes > free_bytes:
        raise ConfigurationError(
            f"scratch {whole.parent} has {free_bytes:,} bytes free, {source} needs {needed_bytes:,}; "
            f"delete older copies there, {WAY_OUT}"
        )
    try:
        _copy_files(source, list(files), partial)
        os.sync()  # written pages survive a power cut and can be dropped from the page cache; dirty ones can't
        if not _is_copy(partial, files):
            raise ConfigurationError(f"{source} changed while it was copied to {whole.parent}; start again when it is complete")
        partial.rename(whole)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _copy_files(source: Path, names: list[str], target: Path) -> None:
    for folder in {Path(name).parent for name in names}:
        (target / folder).mkdir(parents=True, exist_ok=True)

    def copy_some(first: int) -> None:
        for name in names[first::COPIERS]:
            shutil.copyfile(source / name, target / name)

    with ThreadPoolExecutor(COPIERS) as pool:
        list(pool.map(copy_some, range(COPIERS)))
