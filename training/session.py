"""One process's part in a run: initialize, start the clock, train to the target, leave the record."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from results import events, rails
from results.facts import HostFacts, git_facts, host_facts, relevant_environment, software_facts
from results.model import write_atomically
from results.record import Accounts, EnergyFigures, Failure, RankBinding, RunRecord, Status
from results.rundir import RunDirectory
from results.spec import RunSpec
from results.staging import VARIABLE as SCRATCH
from results.staging import StagedData
from results.yaml_file import ConfigurationError
from training import energy, memory, page_cache, resume, staging
from training.binding import binding_notes, rank_binding
from training.clock import AccountName, RunClock
from training.communicator import Communicator, connect
from training.data.folder import data_digest
from training.device import check_not_shared, compute_facts, rank_device, set_numerics
from training.energy import EnergyMeter
from training.journal import Journal, NullJournal
from training.process import RankPlace, created_s
from training.stop import StopAgreed, StopRequest
from training.trainer import TargetReached, Trainer
from training.workload import Shard, load_workload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BeforeTheClock:
    """What the record keeps of the time before run_start."""

    started_at: str
    hosts: list[HostFacts]
    bindings: list[RankBinding]
    staged: list[StagedData]
    page_cache_cleared: bool

    @property
    def notes(self) -> list[str]:
        """What a reader must know."""
        cache = [] if self.page_cache_cleared else ["the page cache was not cleared before the run: not permitted on every host"]
        return cache + binding_notes(self.bindings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run ended."""

    status: Status
    accounts_s: dict[AccountName, float]
    """Maximum over ranks."""
    gpu_boards: EnergyFigures | None
    notes: list[str]
    """What a reader must know."""
    failure: Failure | None = None
    """Where it was interrupted, and what to do."""


def run(run_dir: RunDirectory, spec: RunSpec, place: RankPlace, clock: RunClock, stop: StopRequest) -> Status:
    """Train until the target is reached, the epochs are used up, or the ranks are asked to stop; rank 0 leaves the record."""
    started_at = _now()
    # Rank 0 alone reads what an earlier process left, and tells the others: they may come here after its first new line.
    earlier = list(events.read(run_dir.path)) if place.rank == 0 else []
    if place.rank == 0:
        events.append(run_dir.path, "process_start", created_s=created_s())
    device = rank_device(place)
    torch.set_num_threads(spec.settings.threads_per_rank)
    clock.synchronize_with(device)
    communicator = connect(spec.settings.communication.backend, place, spec.settings.communication)
    communicator.check_device(device)
    check_not_shared(communicator, device)
    earlier = communicator.gather_objects(earlier)[0]
    resuming = any(event["event"] == "run_start" for event in earlier)
    journal = Journal(run_dir) if communicator.rank == 0 else NullJournal()
    staged = _stage(communicator, journal, spec)
    data_dir = staging.on_this_host(staged) if staged else spec.data_dir
    cleared = all(_from_each_host(communicator, lambda: page_cache.clear(data_dir)))
    shard = Shard(index=communicator.rank, count=communicator.size)
    workload = load_workload(spec=spec.model_copy(update={"data_dir": data_dir}), shard=shard, device=device)
    set_numerics(device, fixed_sizes=workload.fixed_sizes)
    if not resuming:
        _announce(journal, spec, cleared)
    trainer = Trainer(
        spec=spec, run_dir=run_dir, workload=workload, communicator=communicator, device=device, clock=clock, journal=journal,
        asked_to_stop=stop.asked,
    )  # fmt: skip
    if spec.settings.checkpoints:
        trainer.after_late_evaluation = lambda: resume.keep_if_best(trainer)
    memory.warm_up(trainer)
    bindings = communicator.gather_objects(rank_binding(place, device))
    hosts = list({facts.hostname: facts for facts in _from_each_host(communicator, host_facts)}.values())
    _sample_rails(communicator, run_dir.rails_before)
    meter = EnergyMeter(device)
    meter.read()
    _start_clock(trainer, earlier if resuming else None)
    outcome = _train(trainer, meter, stop)
    _sample_rails(communicator, run_dir.rails_after)
    if communicator.rank == 0:
        trainer.history.write(run_dir.steps)
        before = BeforeTheClock(started_at, hosts, bindings, staged, cleared)
        record = _record(trainer, before, outcome)
        write_atomically(run_dir.record, record.model_dump_json(indent=1) + "\n")
        journal.close()
    communicator.barrier()
    communicator.close()
    return outcome.status


def _stage(communicator: Communicator, journal: NullJournal, spec: RunSpec) -> list[StagedData]:
    """The data set on every host's own scratch, where the site has one; nothing where it is read from where it lies."""
    scratch = os.environ.get(SCRATCH)
    if not scratch or spec.settings.input.source == "synthetic":
        return []
    journal.event("staging_start", scratch=scratch)
    staged = staging.stage_on_each_host(communicator, spec.data_dir, Path(scratch))
    journal.event("staging_stop", hosts=[copy.model_dump(mode="json") for copy in staged])
    return staged


def _start_clock(trainer: Trainer, earlier: list[dict[str, Any]] | None) -> None:
    """run_start on all ranks at once, then the first touch of data; with `earlier` events the run is taken over."""
    clock, journal = trainer.clock, trainer.journal
    initialization_s = trainer.communicator.largest([clock.elapsed_s()])[0]
    journal.event("init_stop", initialization_s=initialization_s)
    clock.switch("training")
    if earlier is None:
        journal.mlperf_stop("init_stop")
        journal.mlperf_start("run_start")
    journal.event("run_start")
    trainer.open_data()
    journal.event("data_open")
    if earlier is None:
        journal.mlperf("train_samples", trainer.source.samples_per_epoch)
        journal.mlperf("eval_samples", trainer.workload.evaluation_samples)
        for key, value in trainer.workload.mlperf_hyperparameters(trainer.steps_per_epoch).items():
            # A reader of a round whose rules know one kind of decay only must be told which one this is.
            metadata = {"decay": trainer.settings.schedule.decay} if "decay" in key else {}
            journal.mlperf(key, value, **metadata)
    else:
        resume.take_over(trainer, earlier, initialization_s)


def _train(trainer: Trainer, meter: EnergyMeter, stop: StopRequest) -> Outcome:
    try:
        stop.hold()
        with suppress(TargetReached):
            _train_to_the_end(trainer, stop)
    except StopAgreed:
        stop.over()
        if trainer.pending is None or not trainer.take_evaluation().reached:
            return _interrupted(trainer, meter)
    stop.over()
    reached = trainer.progress.reached
    status: Status = "finished" if reached else "target-missed"
    trainer.journal.mlperf_stop("run_stop", status="success" if reached else "aborted")
    trainer.journal.event("run_stop", status=status, time_to_train_s=trainer.time_to_train_s)
    trainer.clock.stop()
    meter.read()
    accounts_s = _accounts_s(trainer)
    # The clock stopped at the evaluation that reached the target; keeping its weights is off the clock. Those of an evaluation
    # beside training are kept since it began, and trained on by now.
    if reached and trainer.settings.checkpoints and not trainer.settings.evaluation.beside_training:
        resume.save(trainer)
    gpu_boards, notes = energy.total(trainer.communicator, meter, restarts=trainer.progress.restarts)
    return Outcome(status=status, accounts_s=accounts_s, gpu_boards=gpu_boards, notes=notes)


def _train_to_the_end(trainer: Trainer, stop: StopRequest) -> None:
    """Train and evaluate, with a checkpoint after each evaluation that is not known to have reached the target.

    Raises:
        TargetReached: by an evaluation beside training.
        StopAgreed: the ranks were asked to stop, and nothing of this place is kept yet.
    """
    for block in trainer.blocks():
        trainer.train_block(block)
        with resume.kept_if_asked(trainer, stop) if trainer.settings.checkpoints else nullcontext():
            figures, stopping = trainer.evaluate()
        if figures is not None and figures.reached:
            return
        stopping = stopping and trainer.progress.epoch < trainer.settings.max_epochs
        if stopping and figures is not None:
            raise StopAgreed
        with trainer.clock.account("checkpoint_and_logging"):
            if trainer.settings.checkpoints:
                resume.save(trainer, evaluated=figures is not None)
            _show_predictions(trainer)
        if stopping:
            raise StopAgreed
    if trainer.pending is not None:
        trainer.take_evaluation()


def _interrupted(trainer: Trainer, meter: EnergyMeter) -> Outcome:
    """Keep what was done, and say where a later process goes on."""
    progress, under_way = trainer.progress, trainer.under_way
    way_on = "trainscale resume goes on from there"
    try:
        with trainer.clock.account("checkpoint_and_logging"):
            if trainer.settings.checkpoints:
                evaluated = under_way is None and bool(progress.evaluations) and progress.evaluations[-1].epoch == progress.epoch
                resume.save(trainer, evaluated=evaluated)
            else:
                way_on = "no checkpoint was asked for, so trainscale resume begins again"
    except ConfigurationError as error:
        way_on = f"{error}; trainscale resume goes on from the checkpoint before"
    trainer.clock.stop()
    where = f"after epoch {progress.epoch}"
    if under_way is not None:
        where = f"after step {under_way.steps} of {trainer.steps_per_epoch} of epoch {under_way.epoch}"
    trainer.journal.event("interrupted", epoch=progress.epoch, step=under_way.steps if under_way else 0)
    # Also waits until rank 0 has written: a launcher ends all ranks when the first one leaves with this status.
    accounts_s = _accounts_s(trainer)
    meter.read()
    gpu_boards, notes = energy.total(trainer.communicator, meter, restarts=progress.restarts)
    failure = Failure(message=f"interrupted {where}; {way_on}")
    return Outcome(status="interrupted", accounts_s=accounts_s, gpu_boards=gpu_boards, notes=notes, failure=failure)


def _accounts_s(trainer: Trainer) -> dict[AccountName, float]:
    ranks = trainer.communicator.gather_objects(dict(trainer.clock.seconds_s))
    return {name: max(rank[name] for rank in ranks) for name in trainer.clock.seconds_s}


def _show_predictions(trainer: Trainer) -> None:
    if trainer.communicator.rank == 0:
        trainer.model.eval()
        with torch.inference_mode(), trainer.precision.autocast():
            picture = trainer.workload.show_predictions(trainer.model)
        if picture is not None:
            trainer.journal.image(trainer.progress.step, "predictions", picture)


def _record(trainer: Trainer, before: BeforeTheClock, outcome: Outcome) -> RunRecord:
    progress, spec, seconds_s = trainer.progress, trainer.spec, outcome.accounts_s
    launched = json.loads(trainer.run_dir.command.read_text()) if trainer.run_dir.command.exists() else {}
    return RunRecord(
        spec=spec,
        status=outcome.status,
        failure=outcome.failure,
        started_at=before.started_at,
        stopped_at=_now(),
        time_to_train_s=trainer.time_to_train_s,
        accounts=Accounts(
            initialization_s=seconds_s["initialization"],
            training_s=seconds_s["training"],
            evaluation_s=seconds_s["evaluation"],
            checkpoint_and_logging_s=seconds_s["checkpoint_and_logging"],
            restart_s=seconds_s["restart"],
            input_wait_s=progress.input_wait_s,
            exposed_communication_s=progress.exposed_communication_s,
            straggler_s=progress.straggler_s,
        ),
        epochs=progress.epochs,
        evaluations=progress.evaluations,
        restarts=progress.restarts,
        model_parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
        train_samples_per_epoch=trainer.source.samples_per_epoch,
        hosts=before.hosts,
        bindings=before.bindings,
        staging=before.staged,
        page_cache_cleared=before.page_cache_cleared,
        software=software_facts(trainer.communicator.mpi_version()),
        gpu_boards=outcome.gpu_boards,
        compute=compute_facts(trainer.device, trainer.optimizer.inner),
        git=git_facts(),
        command=launched.get("tokens", []),
        environment=relevant_environment(os.environ),
        data_digest=data_digest(spec.data_dir),
        notes=before.notes + outcome.notes,
        extra=trainer.workload.record_extra(),
    )


def _announce(journal: NullJournal, spec: RunSpec, cleared: bool) -> None:
    journal.mlperf_header(workload=spec.workload, platform=spec.system)
    journal.mlperf("cache_clear", cleared)
    journal.mlperf_start("init_start")
    journal.mlperf("seed", spec.seed)
    journal.mlperf("global_batch_size", spec.global_batch_size)
    journal.mlperf("gradient_accumulation_steps", spec.settings.communication.backward_passes_per_step)


def _from_each_host(communicator: Communicator, look: Callable[[], T]) -> list[T]:
    """What one rank of each host finds, in rank order; collective."""
    found = communicator.gather_objects(look() if communicator.local_rank == 0 else None)
    return [value for value in found if value is not None]


def _sample_rails(communicator: Communicator, path: Path) -> None:
    """Write the device counters of every host, outside the timed part."""
    counters = _from_each_host(communicator, rails.node_counters)
    if communicator.rank == 0:
        rails.write_sample(path, counters)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
