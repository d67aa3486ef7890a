"""Do what is left of a list of runs, one after the other: timed runs must not share a host."""

from __future__ import annotations

import statistics
from pathlib import Path

from filelock import FileLock, Timeout

from launch.experiment import FabricCheck
from launch.runner import Placement, execute, prepare_folder
from launch.show import Display
from results.record import RunRecord
from results.rundir import RunDirectory
from results.spec import RunSpec
from results.yaml_file import ConfigurationError

DONE = ("finished", "target-missed")


def sweep(
    specs: list[RunSpec], folder: Path, placement: Placement, display: Display, check: FabricCheck | None = None
) -> dict[str, str]:
    """Status of every run after this sweep, by run id. A run that was killed by the user ends the sweep.

    A second sweep on the same folder waits for the first, and then finds nothing left to do. With a `check` the fabric is
    measured before the first run.

    Raises:
        ConfigurationError: the folder cannot be written, a run cannot be started, or the fabric is below what is expected.
    """
    prepare_folder(RunDirectory(folder / specs[0].run_id))
    lock = FileLock(folder / ".sweep.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        display.say(f"another sweep works on {folder}; waiting for it")
        lock.acquire()
    with lock:
        return _sweep(specs, folder, placement, display, check)


def _sweep(
    specs: list[RunSpec], folder: Path, placement: Placement, display: Display, check: FabricCheck | None
) -> dict[str, str]:
    outcomes = {spec.run_id: read_status(folder / spec.run_id) for spec in specs}
    left = [spec for spec in specs if outcomes[spec.run_id] not in DONE]
    display.say(f"{len(specs)} runs, {len(left)} left to do{_estimate(left, specs, folder)}; records go to {folder}")
    if check is not None:
        from launch.fabric_check import check_fabrics

        check_fabrics(check, left, folder, placement, display)
    for number, spec in enumerate(left, start=1):
        display.begin(spec, note=f" ({number} of {len(left)})")
        try:
            record = execute(spec, RunDirectory(folder / spec.run_id), placement, display)
        finally:
            display.end()
        outcomes[spec.run_id] = record.status
        from launch.commands.run import summary

        display.say(f"  {summary(record, folder / spec.run_id)}")
        if record.status == "interrupted":
            break
    return outcomes


def read_status(path: Path) -> str:
    """Status of a run directory: that of its record, else `started` or `planned`.

    Raises:
        ConfigurationError: the record is not readable.
    """
    run_dir = RunDirectory(path)
    if run_dir.record.exists():
        return read_record(run_dir).status
    return "started" if run_dir.spec.exists() else "planned"


def read_record(run_dir: RunDirectory) -> RunRecord:
    """The record of a run.

    Raises:
        ConfigurationError: it is not readable.
    """
    try:
        return RunRecord.model_validate_json(run_dir.record.read_text())
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"{run_dir.record}: not a readable record ({reason}); delete the folder to run it again"
        ) from error


def _estimate(left: list[RunSpec], specs: list[RunSpec], folder: Path) -> str:
    """How long the rest will take, by the finished runs of the same shape, else by what the preset says of itself."""
    seconds_s: dict[tuple[str, int], list[float]] = {}
    for spec in specs:
        run_dir = RunDirectory(folder / spec.run_id)
        if run_dir.record.exists():
            accounts = read_record(run_dir).accounts
            seconds_s.setdefault((spec.workload, spec.ranks), []).append(accounts.on_the_clock_s + accounts.initialization_s)
    if not left:
        return ""
    if all((spec.workload, spec.ranks) in seconds_s for spec in left):
        total_s = sum(statistics.median(seconds_s[spec.workload, spec.ranks]) for spec in left)
        return f", about {total_s / 60:.0f} minutes by the runs that are done"
    return f"; each: {left[0].settings.description}"
