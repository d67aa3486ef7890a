"""MLPerf's own checker passes the log of a run that several processes have written, one after the other."""

from __future__ import annotations

from pathlib import Path

from results.rundir import RunDirectory
from tests.results.test_mlperf_writer import COMMON, SGD, check
from training.journal import Journal


def an_epoch(journal: Journal, *, stopped_within: bool = False, killed_in_evaluation: bool = False) -> None:
    """What the trainer logs of its only epoch, in its order."""
    journal.mlperf_start("block_start", first_epoch_num=1, epoch_count=1)
    journal.mlperf_start("epoch_start", epoch_num=1)
    if not stopped_within:
        journal.mlperf_stop("epoch_stop", epoch_num=1)
        journal.mlperf_stop("block_stop", first_epoch_num=1)
        journal.mlperf_start("eval_start", epoch_num=1)
        if not killed_in_evaluation:
            journal.mlperf("eval_accuracy", 0.7591, epoch_num=1)
            journal.mlperf_stop("eval_stop", epoch_num=1)
            journal.mlperf_stop("run_stop", status="success")
    journal.close()


def test_each_interval_stands_once(tmp_path: Path) -> None:
    run_dir = RunDirectory(tmp_path)
    journal = Journal(run_dir)
    journal.mlperf_header(workload="resnet50", platform="2xLaptop")
    journal.mlperf("cache_clear", True)
    journal.mlperf_start("init_start")
    for key, value in {**COMMON, **SGD}.items():
        journal.mlperf(key, value)
    journal.mlperf_stop("init_stop")
    journal.mlperf_start("run_start")
    an_epoch(journal, stopped_within=True)
    an_epoch(Journal(run_dir), killed_in_evaluation=True)
    an_epoch(Journal(run_dir))
    for log, ruleset in ((run_dir.mlperf_log, "1.0.0"), (run_dir.mlperf_log_v06, "0.6.0")):
        done = check(log, ruleset)
        assert done.returncode == 0, done.stdout + done.stderr
