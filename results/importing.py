"""Bring runs from elsewhere into a folder of runs: run directories as they are, MLPerf logs cut down to their MLPerf lines."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from results.archive import RECORD, Problem, load
from results.mlperf_log import MARK, read_bytes
from results.model import write_atomically
from results.run import Run

LOG_FOLDER = "mlperf-logs"
NOT_COPIED = shutil.ignore_patterns("checkpoints", "tensorboard", "*.pt")


@dataclass(frozen=True, slots=True)
class Imported:
    """What was brought in, was there already, or could not be used."""

    added: list[Path]
    present: list[Path]
    problems: list[Problem]


def import_runs(source: Path, into: Path) -> Imported:
    """Copy every usable run under `source`; one that is there already is left alone, one that differs is a problem.

    Checkpoints and TensorBoard events are not copied.

    Raises:
        ConfigurationError: nothing that is a run lies under `source`.
        OSError: `into` cannot be written.
    """
    archive = load([source])
    done = Imported([], [], list(archive.problems))
    for run in archive.runs:
        if run.origin == "record":
            _copy_record(run, into / run.source.name, done)
        else:
            _copy_log(run, into, done)
    return done


def _copy_record(run: Run, target: Path, done: Imported) -> None:
    if run.source.resolve() == target.resolve():
        done.present.append(target)
    elif target.exists():
        _already(run.source / RECORD, target / RECORD, target, done)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(run.source, partial, ignore=NOT_COPIED)
        partial.rename(target)
        done.added.append(target)


def _already(ours: Path, theirs: Path, target: Path, done: Imported) -> None:
    if theirs.is_file() and ours.read_bytes() == theirs.read_bytes():
        done.present.append(target)
    else:
        done.problems.append(Problem(ours, f"{target} is there already and differs"))


def _copy_log(run: Run, into: Path, done: Imported) -> None:
    """`<into>/mlperf-logs/<round>/<org>/results/<system>/<benchmark>/result_0.txt`, and the system's description."""
    parts = run.source.absolute().parts
    org = parts[-5] if len(parts) > 4 and parts[-4] == "results" else "unknown"
    system, benchmark, name = parts[-3:]
    mlperf_round = run.mlperf_round if " " not in run.mlperf_round else "later"
    home = into / LOG_FOLDER / mlperf_round / org
    target = home / "results" / system / benchmark / name.removesuffix(".gz")
    data = read_bytes(run.source)
    text = f"# from {run.source.name}, sha256 {hashlib.sha256(data).hexdigest()}\n" + "\n".join(mlperf_lines(data)) + "\n"
    if target.exists():
        same = target.read_text(encoding="utf-8") == text
        if same:
            done.present.append(target)
        else:
            done.problems.append(Problem(run.source, f"{target} is there already and differs"))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text)
    description = run.source.absolute().parent.parent.parent.parent / "systems" / f"{system}.json"
    if description.is_file():
        (home / "systems").mkdir(exist_ok=True)
        shutil.copyfile(description, home / "systems" / description.name)
    done.added.append(target)


def mlperf_lines(data: bytes) -> Iterator[str]:
    """The MLPerf lines of a log, from their mark on."""
    for line in data.splitlines():
        at = line.find(MARK)
        if at >= 0:
            yield line[at:].decode("utf-8", errors="replace")
