"""After a run: which rails carried its bytes, from the counters and NCCL's log in its directory, written into its record."""

from __future__ import annotations

from collections.abc import Iterator

from launch.interconnect import Interconnect
from results import nccl_log, rails
from results.model import write_atomically
from results.rails import AskedRails
from results.record import RailEvidence, RunRecord
from results.rundir import RunDirectory


def asked_rails(interconnect: Interconnect) -> AskedRails:
    """The devices that a configuration names, and the counters that tell about them."""
    by_port = interconnect.kind in ("infiniband", "roce")
    return AskedRails(source="infiniband-port-counters" if by_port else "interface-counters", devices=interconnect.devices)


def add_evidence(run_dir: RunDirectory, asked: AskedRails) -> RailEvidence:
    """Judge the rails of a run that left a record, and write the verdict into `record.json`.

    Raises:
        FileNotFoundError: the run left no record.
    """
    record = RunRecord.model_validate_json(run_dir.record.read_text(encoding="utf-8"))
    evidence = rails.judge(
        asked=asked,
        before=rails.read_sample(run_dir.rails_before),
        after=rails.read_sample(run_dir.rails_after),
        least_exchange_bytes=least_exchange_bytes(record),
        nccl=nccl_log.read(_log_lines(run_dir)),
    )
    write_atomically(run_dir.record, record.model_copy(update={"rails": evidence}).model_dump_json(indent=2) + "\n")
    return evidence


def least_exchange_bytes(record: RunRecord) -> int | None:
    """Bytes that every node must have sent and received for the gradients of the timed part, whatever the algorithm.

    Each optimizer step exchanges every gradient once, in 4 bytes, or 2 when compressed to fp16. None when it cannot be
    known: nothing was trained, or the run was interrupted, so that the counters cover only its last part.
    """
    steps = sum(epoch.steps for epoch in record.epochs)
    if record.restarts or not steps or not record.model_parameters:
        return None
    bytes_each = 2 if record.spec.settings.communication.compression == "fp16" else 4
    return record.model_parameters * steps * bytes_each


def _log_lines(run_dir: RunDirectory) -> Iterator[str]:
    """Lines of every rank's log and of the launcher's, wherever the launcher put NCCL's output."""
    logs = run_dir.launcher_log.parent
    for path in sorted(logs.glob("*.log")):
        with path.open(encoding="utf-8", errors="replace") as stream:
            yield from (line for line in stream if "NCCL INFO" in line)
