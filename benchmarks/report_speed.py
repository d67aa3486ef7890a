"""How fast reports are: 10,000 run records from disk to text, and the MLPerf log parser on one core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results.facts import GitFacts, HostFacts, NetworkDevice, SoftwareFacts
from results.mlperf_log import parse_log
from results.record import Accounts, EpochFigures, EvaluationFigures, RunRecord, Spread
from results.settings import Settings
from results.spec import RunSpec

RECORDS = 10_000
LOG_BYTES = 5_000_000
REPEATS = 30


def main() -> None:
    """Print records per second with the peak memory, and megabytes per second."""
    with tempfile.TemporaryDirectory() as folder:
        size_bytes = _write_records(Path(folder), RECORDS)
        seconds_s, cpu_s, peak_bytes = _report(Path(folder))
    what = f"trainscale report on {RECORDS:,} records ({size_bytes / 1e6:.0f} MB on disk)"
    print(f"{what}: {seconds_s:.2f} s ({cpu_s:.2f} s of CPU), {peak_bytes / 1e6:.0f} MB of memory (goals: 5 s, 500 MB)")
    for kind, log in (("log lines only", _log(noise=0)), ("among four times as much other output", _log(noise=4))):
        best_s = min(_seconds_of_parsing(log) for _ in range(REPEATS))
        print(f"MLPerf log parser, {kind}: {len(log) / best_s / 1e6:.0f} MB/s on one core (goal: 100)")


def _report(folder: Path) -> tuple[float, float, int]:
    """Seconds of the whole command, start of Python included, its CPU seconds and its peak memory in bytes."""
    command = [sys.executable, "-m", "launch.cli", "report", str(folder)]
    start_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"trainscale report ended with {process.returncode}")
    return time.perf_counter() - start_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def _seconds_of_parsing(log: bytes) -> float:
    start_s = time.process_time()
    parse_log(log)
    return time.process_time() - start_s


def _log(noise: int) -> bytes:
    """Epoch and evaluation events of a long run, with `noise` lines of other output for each."""
    other = b"[1,3]<stdout>: step 1234 loss 2.3456 lr 0.123 5592.1 images/s, NCCL INFO Channel 00 : 3[0] -> 4[0] [send] via NET\n"
    lines = []
    size = 0
    epoch = 0
    while size < LOG_BYTES:
        epoch += 1
        for key in ("epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy"):
            event = {"namespace": "", "time_ms": 1593115818302 + epoch, "event_type": "INTERVAL_START", "key": key, "value": None}
            metadata = {"file": "/mnt/current/model.py", "lineno": 159, "epoch_num": epoch}
            line = f":::MLLOG {json.dumps(event | {'metadata': metadata})}\n".encode() + other * noise
            lines.append(line)
            size += len(line)
    return b"".join(lines)


def _write_records(folder: Path, number: int) -> int:
    """Records like those of 8-node ResNet-50 runs, five repeats of each configuration; their size in bytes."""
    size = 0
    for index in range(number):
        configuration, repeat = divmod(index, 5)
        record = _record(configuration, repeat + 1)
        run_dir = folder / record.spec.run_id
        run_dir.mkdir()
        text = record.model_dump_json(indent=1)
        (run_dir / "record.json").write_text(text)
        size += len(text)
    return size


def _record(configuration: int, repeat: int) -> RunRecord:
    nodes = 2 ** (configuration % 4)
    system = configuration // 4
    epoch_s, epochs = (230 + repeat) / nodes, 40
    spread = Spread(minimum=0.14, median=0.15, maximum=0.16)
    rails = [NetworkDevice(name=f"mlx5_{n}:1", kind="infiniband", rate="100 Gb/sec (4X EDR)", state="4: ACTIVE") for n in (0, 1)]
    host = HostFacts(
        hostname="node",
        cpu="Xeon",
        cpus=40,
        memory_bytes=2**38,
        kernel="4.18",
        os_release="RHEL",
        gpus=["V100"] * 4,
        network=rails,
    )
    figures = [
        EpochFigures(
            epoch=n, samples=1_281_167, steps=1500, seconds_s=epoch_s, loss=2.0, learning_rate=1.0, step_time_s=spread,
            input_wait_s=spread, exposed_communication_s=spread, slowest_rank=0,
        )
        for n in range(1, epochs + 1)
    ]  # fmt: skip
    time_s = epochs * epoch_s * 1.02
    reached = EvaluationFigures(
        epoch=epochs, samples=50_000, seconds_s=4, elapsed_s=time_s, metrics={"accuracy": 0.76}, reached=True
    )
    spec = RunSpec(
        run_id=f"run-{configuration}-{repeat}", workload="resnet50", preset="mlperf-v0.6", nodes=nodes, ranks_per_node=4,
        interconnect="edr-1", system=f"system-{system}", emulated_nodes=False, repeat=repeat, seed=repeat, data_dir=Path("/data"),
        settings=SETTINGS,
    )  # fmt: skip
    accounts = Accounts(
        initialization_s=40, training_s=epochs * epoch_s, evaluation_s=time_s * 0.01, checkpoint_and_logging_s=time_s * 0.0096,
        input_wait_s=10, exposed_communication_s=20, straggler_s=5,
    )  # fmt: skip
    return RunRecord(
        spec=spec, status="finished", started_at="2026-01-05T10:00:00Z", stopped_at="2026-01-05T13:00:00Z",
        time_to_train_s=time_s, accounts=accounts, epochs=figures, evaluations=[reached],
        train_samples_per_epoch=1_281_167, model_parameters=25_557_032, hosts=[host] * nodes,
        software=SoftwareFacts(python="3.11", packages={"torch": "2.14.1"}), git=GitFacts(commit="0123"),
    )  # fmt: skip


SETTINGS = Settings.model_validate(
    {
        "description": "for the benchmark", "embedded": False, "dataset": "imagenet", "classes": 1000, "image_size": 224,
        "local_batch_size": 208, "max_epochs": 90, "quality_target": {"accuracy": 0.759},
        "learning_rate": {"rule": "linear", "value": 5.0, "batch_size": 1664},
        "schedule": {"warmup_epochs": 5, "decay": "polynomial"}, "optimizer": {"name": "lars", "weight_decay": 2e-4},
        "evaluation": {"local_batch_size": 208}, "precision": "fp16", "input": {"source": "dali"},
        "communication": {"backend": "horovod"},
    }
)  # fmt: skip


if __name__ == "__main__":
    main()
