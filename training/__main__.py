"""`python -m training RUN_DIR`: read the spec, train, leave the record. One process for each rank.

Exit status: 0 finished, 3 target missed, 4 failed, 5 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from results import events, heartbeat
from results.model import write_atomically
from results.record import Failure
from results.rundir import RunDirectory
from results.spec import RunSpec
from training.clock import RunClock
from training.process import RankPlace, bind, die_with_launcher, rank_place
from training.stop import StopRequest

EXIT_STATUS = {"finished": 0, "target-missed": 3, "failed": 4, "interrupted": 5}


def main() -> NoReturn:
    """Run one rank; never returns, since a rank that failed must not wait for the others in some library's exit handler."""
    clock = RunClock()
    die_with_launcher()
    run_dir = RunDirectory(Path(sys.argv[1]).resolve())
    place = bind(rank_place())
    _write_to(run_dir.rank_log(place.rank))
    stop = StopRequest(lambda: _leave("interrupted"))
    stop.listen()
    try:
        heartbeat.beat(run_dir, place.rank)
        spec = RunSpec.model_validate_json(run_dir.spec.read_text())
        from training.session import run

        status = run(run_dir, spec, place, clock, stop)
    except Exception as error:
        traceback.print_exc()
        _report_failure(run_dir, place, error)
        _leave("failed")
    _leave(status)


def _write_to(log: Path) -> None:
    """Send this process's output, that of libraries included, to the rank's own log."""
    log.parent.mkdir(exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def _report_failure(run_dir: RunDirectory, place: RankPlace, error: Exception) -> None:
    message = " ".join(str(error).split()) or type(error).__name__
    failure = Failure(
        message=message[:2000],
        rank=place.rank,
        step=getattr(error, "step", None),
        learning_rate=getattr(error, "learning_rate", None),
    )
    try:
        write_atomically(run_dir.failure(place.rank), failure.model_dump_json(indent=1))
        events.append(run_dir.path, "failure", **failure.model_dump(exclude={"last_lines"}))
    except OSError as full:
        print(f"the failure could not be written: {full}", file=sys.stderr)


def _leave(status: str) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_STATUS[status])


if __name__ == "__main__":
    main()
