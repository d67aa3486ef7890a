"""Hand-made run records with known answers, for the tests of reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results.facts import GitFacts, HostFacts, NetworkDevice, SoftwareFacts
from results.record import Accounts, EpochFigures, EvaluationFigures, Failure, RailBytes, RailEvidence, RunRecord, Spread
from results.settings import Settings
from results.spec import RunSpec

TARGETS = {"resnet50": {"accuracy": 0.759}, "ssd": {"map": 0.23}, "maskrcnn": {"box_ap": 0.377, "mask_ap": 0.339}}


def a_settings(workload: str = "resnet50", *, local_batch_size: int = 208, embedded: bool = False, **changes: Any) -> Settings:
    """Settings like those of an ImageNet preset."""
    fields: dict[str, Any] = {
        "description": "hand-made", "embedded": embedded, "dataset": "digits" if embedded else "imagenet", "classes": 1000,
        "image_size": 224, "local_batch_size": local_batch_size, "max_epochs": 90, "quality_target": TARGETS[workload],
        "learning_rate": {"rule": "linear", "value": 5.0, "batch_size": 1664},
        "schedule": {"warmup_epochs": 5, "decay": "polynomial"},
        "optimizer": {"name": "lars", "weight_decay": 2e-4},
        "evaluation": {"first_epoch": 3, "every_epochs": 4, "local_batch_size": local_batch_size},
        "precision": "fp16", "input": {"source": "dali"}, "communication": {"backend": "horovod"},
    }  # fmt: skip
    return Settings.model_validate(fields | changes)


def a_host(name: str = "node1", *, cpu: str = "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz") -> HostFacts:
    """One C4140 node."""
    rails = [NetworkDevice(name=f"mlx5_{n}:1", kind="infiniband", rate="100 Gb/sec (4X EDR)", state="4: ACTIVE") for n in (0, 1)]
    gpus = ["Tesla V100-SXM2-32GB, 32510 MiB, 450.36.06"] * 4
    return HostFacts(
        hostname=name, cpu=cpu, cpus=40, memory_bytes=384 * 2**30, kernel="4.18", os_release="RHEL", gpus=gpus, network=rails
    )


def a_record(
    *,
    workload: str = "resnet50",
    nodes: int = 1,
    minutes: float = 150.0,
    epochs: int = 35,
    samples_per_s: float | None = None,
    interconnect: str = "edr-1",
    system: str = "C4140",
    repeat: int = 1,
    status: str = "finished",
    emulated: bool = False,
    rails: str = "as-asked",
    settings: Settings | None = None,
    host: HostFacts | None = None,
    samples: int = 1_281_167,
    evaluation_share: float = 0.5,
    input_wait_share: float = 0.0,
    exposed_share: float = 0.0,
    straggler_share: float = 0.0,
    restart_s: float = 0.0,
    ranks_per_node: int = 4,
) -> RunRecord:
    """One run, of which training takes 97% unless the rate says otherwise; the rest goes to evaluation and checkpoints.

    The `*_share` of waits are parts of the training time; `evaluation_share` is the evaluation's part of the rest.
    """
    settings = settings or a_settings(workload)
    spec = RunSpec(
        run_id=f"{workload}-{nodes}n-{interconnect}-{repeat}", experiment="hand-made", workload=workload, preset="mlperf-v0.6",
        nodes=nodes, ranks_per_node=ranks_per_node, interconnect=interconnect, system=system, emulated_nodes=emulated,
        repeat=repeat, seed=1000 + repeat, data_dir=Path("/data"), settings=settings,
    )  # fmt: skip
    epoch_s = samples / samples_per_s if samples_per_s else 0.97 * (minutes * 60 - restart_s) / epochs
    rest_s = minutes * 60 - epochs * epoch_s - restart_s
    assert rest_s > -1e-6, "the minutes do not hold these epochs"
    rest_s = max(0.0, rest_s)
    finished = status == "finished"

    def spread(value: float) -> Spread:
        return Spread(minimum=value * 0.99, median=value, maximum=value * 1.02)

    figures = [
        EpochFigures(
            epoch=n, samples=samples, steps=max(1, samples // spec.global_batch_size), seconds_s=epoch_s,
            loss=2.0, learning_rate=1.0, step_time_s=spread(0.15), input_wait_s=spread(epoch_s * input_wait_share),
            exposed_communication_s=spread(epoch_s * exposed_share), slowest_rank=0,
        )
        for n in range(1, epochs + 1)
    ]  # fmt: skip
    metrics = dict(settings.quality_target)
    last = EvaluationFigures(
        epoch=epochs, samples=50_000, seconds_s=4.0, elapsed_s=minutes * 60, metrics=metrics, reached=finished
    )
    devices = [("mlx5_0:1", 10**12), ("mlx5_1:1", 10**12 if interconnect.endswith("-2") else 10**6)]
    return RunRecord(
        spec=spec, status=status, started_at="2026-01-05T10:00:00Z", stopped_at="2026-01-05T13:00:00Z",  # type: ignore[arg-type]
        failure=Failure(message="rank 3 was killed by signal 9", rank=3) if status == "failed" else None,
        time_to_train_s=minutes * 60 if finished else None,
        accounts=Accounts(
            initialization_s=40, training_s=epochs * epoch_s, evaluation_s=rest_s * evaluation_share,
            checkpoint_and_logging_s=rest_s * (1 - evaluation_share), restart_s=restart_s,
            input_wait_s=epochs * epoch_s * input_wait_share, exposed_communication_s=epochs * epoch_s * exposed_share,
            straggler_s=epochs * epoch_s * straggler_share,
        ),
        epochs=figures, evaluations=[last], model_parameters=25_557_032, train_samples_per_epoch=samples,
        hosts=[host or a_host(f"node{n + 1}") for n in range(nodes)],
        software=SoftwareFacts(python="3.11.7", packages={"torch": "2.14.1", "horovod": "0.28.1"}, mpi="Open MPI v5.0.11"),
        git=GitFacts(commit="0123456789abcdef", dirty=False, version="0.1.0"),
        command=["mpirun", "-n", str(spec.ranks), "python", "-m", "training", f"runs/{spec.run_id}"],
        environment={"NCCL_IB_HCA": "=mlx5_0:1", "HOROVOD_CYCLE_TIME": "0.1"}, data_digest="sha256:0011",
        rails=RailEvidence(
            verdict=rails,  # type: ignore[arg-type]
            reason="mlx5_1 carried 40% of the bytes" if rails == "rails-differ" else "bytes as asked",
            rails=[
                RailBytes(host="node1", device=name, received_bytes=n, transmitted_bytes=n, source="infiniband-port-counters")
                for name, n in devices
            ],
        ),
    )  # fmt: skip


def write_records(folder: Path, records: list[RunRecord]) -> Path:
    """A run directory for each record under `folder`."""
    for record in records:
        run_dir = folder / record.spec.run_id
        while run_dir.exists():
            run_dir = run_dir.with_name(run_dir.name + "x")
        run_dir.mkdir(parents=True)
        (run_dir / "record.json").write_text(record.model_dump_json(indent=2), encoding="utf-8")
    return folder
