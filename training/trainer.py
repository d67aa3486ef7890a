"""The loop from run_start to the quality target. It knows no workload, backend or input pipeline by name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import torch

from results.record import EpochFigures, EvaluationFigures
from results.rundir import RunDirectory
from results.spec import RunSpec
from training import step_statistics
from training.batch_norm import share_batch_norm
from training.clock import RunClock
from training.communicator import Communicator
from training.epoch import EpochUnderWay, finish_epoch
from training.journal import NullJournal
from training.optimizer import build_optimizer
from training.precision import Precision
from training.schedule import Schedule
from training.step_timer import step_timer
from training.stop import StepAgreement, StopAgreed
from training.workload import Batch, EvaluatesBeside, Evaluation, PendingEvaluation, TrainSource, Workload

PROGRESS_EVERY_S = 0.5


class TargetReached(Exception):
    """An evaluation beside training turned out to have reached the quality target."""


class TrainingFailedError(Exception):
    """The run cannot go on; the message is one line for a person."""

    def __init__(self, message: str, *, step: int, learning_rate: float) -> None:
        super().__init__(message)
        self.step = step
        self.learning_rate = learning_rate


@dataclass(slots=True)
class Progress:
    """How far a run came; what a checkpoint must keep beside the weights."""

    epoch: int = 0
    """Epochs completed."""
    step: int = 0
    """Optimizer steps completed."""
    epochs: list[EpochFigures] = field(default_factory=list)
    evaluations: list[EvaluationFigures] = field(default_factory=list)
    input_wait_s: float = 0.0
    exposed_communication_s: float = 0.0
    straggler_s: float = 0.0
    restarts: int = 0

    @property
    def reached(self) -> bool:
        """The last evaluation met the quality target."""
        return bool(self.evaluations) and self.evaluations[-1].reached


@dataclass(frozen=True, slots=True)
class PendingFigures:
    """An evaluation whose metrics are reckoned beside training."""

    epoch: int
    step: int
    seconds_s: float
    """What it took of this rank until training went on."""
    evaluation: PendingEvaluation


class Trainer:
    """One rank of one run: everything between initialization and the record."""

    def __init__(
        self, *, spec: RunSpec, run_dir: RunDirectory, workload: Workload, communicator: Communicator,
        device: torch.device, clock: RunClock, journal: NullJournal, asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self.spec, self.settings, self.run_dir = spec, spec.settings, run_dir
        self.workload, self.communicator, self.device = workload, communicator, device
        self.clock, self.journal = clock, journal
        self.asked_to_stop, self.agreement = asked_to_stop, StepAgreement(communicator, asked_to_stop, self._evaluated)
        self.pending: PendingFigures | None = None
        self.after_late_evaluation: Callable[[], None] = lambda: None
        """Called when the figures of an evaluation come after training went on."""
        self.progress = Progress()
        self.under_way: EpochUnderWay | None = None
        self.history = step_statistics.StepHistory()
        self.timer = step_timer(device)
        self.precision = Precision(self.settings.precision, device)
        torch.manual_seed(spec.seed)
        self.model = workload.build_model().to(device)
        if self.settings.communication.batch_norm_ranks > 1:
            share_batch_norm(self.model, communicator)
        if self.settings.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        groups = workload.parameter_groups(self.model)
        inner = build_optimizer(self.settings.optimizer, groups, spec.peak_learning_rate, device)
        communicator.broadcast_state(self.model, inner)
        self.optimizer = communicator.distribute(inner, self.model, self.settings.communication)
        # From here on ranks differ in what they draw (sampling in detection heads), but not from run to run.
        torch.manual_seed(spec.seed + 1 + communicator.rank)
        self.source: TrainSource
        self.schedule: Schedule

    def warm_up(self) -> None:
        """One forward and backward pass and one exchange on random data, which leave weights and statistics as they were."""
        kept = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        batch = self.workload.dummy_batch()
        self.model.train()
        self.optimizer.zero_grad()
        for _ in range(self.settings.communication.backward_passes_per_step):
            # What passes here will not run out of memory later, when trained weights find more objects than random ones.
            with self.workload.worst_case(self.model):
                with self.precision.autocast():
                    loss = self.workload.loss(self.model, batch)
                loss.backward()
        self.optimizer.synchronize()
        self.optimizer.zero_grad()
        for name, buffer in self.model.named_buffers():
            buffer.copy_(kept[name])

    def open_data(self) -> None:
        """The first touch of data, on the clock."""
        self.source = self.workload.open_data()
        self.schedule = Schedule(
            self.settings.schedule,
            peak=self.spec.peak_learning_rate,
            steps_per_epoch=self.steps_per_epoch,
            max_epochs=self.settings.max_epochs,
        )

    @property
    def time_to_train_s(self) -> float | None:
        """Time on the clock when the target was reached; None before."""
        return self.progress.evaluations[-1].elapsed_s if self.progress.reached else None

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps per epoch."""
        return -(-self.source.batches_per_epoch // self.settings.communication.backward_passes_per_step)

    def blocks(self) -> Iterator[list[int]]:
        """The epochs since the last evaluation, in blocks that each end with one; an earlier process may have begun the first."""
        block: list[int] = []
        evaluated = self.progress.evaluations[-1].epoch if self.progress.evaluations else 0
        for epoch in range(evaluated + 1, self.settings.max_epochs + 1):
            block.append(epoch)
            if self.settings.evaluation.due(epoch, self.settings.max_epochs):
                yield block
                block = []

    def train_block(self, block: list[int]) -> None:
        """Train a block of epochs, or what is left of it.

        Raises:
            StopAgreed: the ranks stop after this step.
        """
        metadata = {"first_epoch_num": block[0], "epoch_count": len(block)}
        self.journal.mlperf_start("block_start", **metadata)
        for epoch in block:
            if epoch > self.progress.epoch:
                self.journal.mlperf_start("epoch_start", epoch_num=epoch)
                stopping = self._train_epoch(epoch)
                self.journal.mlperf_stop("epoch_stop", epoch_num=epoch)
                if stopping:
                    raise StopAgreed
        self.journal.mlperf_stop("block_stop", first_epoch_num=block[0])

    def _train_epoch(self, epoch: int) -> bool:
        """Returns true where some rank was asked to stop."""
        self.clock.switch("training")
        self.model.train()
        so_far = self.under_way = self.under_way or EpochUnderWay(epoch, self.device)
        batches = self._timed(self.source.epoch(epoch, so_far.steps * self.settings.communication.backward_passes_per_step))
        so_far.go_on()
        self.agreement.begin()
        shown_s, rate = time.monotonic(), 0.0
        while so_far.steps < self.steps_per_epoch:
            rate = self.schedule.rate(self.progress.step)
            loss, step_samples, global_samples = self._step(batches, rate)
            so_far.add(loss, global_samples)
            self._check(loss, rate)
            self.progress.step += 1
            if time.monotonic() - shown_s >= PROGRESS_EVERY_S:
                shown_s = time.monotonic()
                self._show(so_far, float(loss) / max(step_samples, 1), rate)
            # After the last step the figures of the epoch carry the question.
            if so_far.steps < self.steps_per_epoch:
                agreed = self.agreement.after_step()
                if agreed.evaluated and self.take_evaluation().reached:
                    raise TargetReached
                if agreed.stop:
                    raise StopAgreed
        for _ in batches:
            raise RuntimeError("the input pipeline yields more batches than it announced")
        return self._finish_epoch(so_far, rate)

    def _timed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            self.timer.waiting_for_input()
            batch = next(batches, None)
            self.timer.input_arrived()
            if batch is None:
                return
            yield batch

    def _step(self, batches: Iterator[Batch], rate: float) -> tuple[torch.Tensor, int, int]:
        """One optimizer step; returns the sum of this rank's losses, this rank's samples and all ranks' samples."""
        for group in self.optimizer.inner.param_groups:
            group["lr"] = rate * group.get("rate_factor", 1.0)
        self.timer.start_step()
        self.optimizer.zero_grad()
        taken = list(islice(batches, self.settings.communication.backward_passes_per_step))
        global_samples = sum(batch.global_samples for batch in taken)
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        for batch in taken:
            with self.precision.autocast():
                loss = self.workload.loss(self.model, batch)
            # Ranks average their gradients; this weight makes the average the mean over all samples of the step, whatever
            # their number on each rank.
            self.precision.backward(loss * (batch.samples * self.communicator.size / global_samples))
            loss_sum += loss.detach() * batch.samples
        self.timer.exchange_begins()
        self.optimizer.synchronize()
        self.timer.exchange_ends()
        self.precision.update(self.optimizer, self.settings.optimizer.clip_norm)
        self.timer.end_step()
        return loss_sum, sum(batch.samples for batch in taken), global_samples

    def _check(self, loss: torch.Tensor, rate: float) -> None:
        # Reading the loss stops a GPU's queue, so there it is read with the progress line and at the end of the epoch.
        if self.device.type == "cpu" and not math.isfinite(float(loss)):
            self._fail(float(loss), rate)

    def _fail(self, loss: float, rate: float) -> None:
        raise TrainingFailedError(
            f"loss is {loss} at step {self.progress.step} on rank {self.communicator.rank} with learning rate {rate:.6g}; "
            "lower the learning rate, lengthen the warm-up, or train in fp32",
            step=self.progress.step,
            learning_rate=rate,
        )

    def _show(self, so_far: EpochUnderWay, loss: float, rate: float) -> None:
        if not math.isfinite(loss):
            self._fail(loss, rate)
        samples_per_s = so_far.samples / so_far.seconds_s
        self.journal.event(
            "progress", epoch=so_far.epoch, step=so_far.steps, steps_per_epoch=self.steps_per_epoch,
            max_epochs=self.settings.max_epochs, loss=round(loss, 6), samples_per_s=round(samples_per_s, 3),
        )  # fmt: skip
        self.journal.scalars(self.progress.step, {"loss": loss, "learning_rate": rate, "images_per_s": samples_per_s})

    def _finish_epoch(self, so_far: EpochUnderWay, rate: float) -> bool:
        if not math.isfinite(float(so_far.loss_sum)):
            self._fail(float(so_far.loss_sum), rate)
        end = finish_epoch(so_far, self.timer, self.communicator, rate=rate, asked=self.asked_to_stop())
        self.history.add(end.steps)
        self.under_way = None
        self.progress.epoch = so_far.epoch
        self.progress.epochs.append(end.figures)
        self.progress.input_wait_s += end.steps.mean_sum_s(step_statistics.INPUT)
        self.progress.exposed_communication_s += end.steps.mean_sum_s(step_statistics.EXPOSED)
        self.progress.straggler_s += end.steps.straggler_s
        with self.clock.account("checkpoint_and_logging"):
            self._log_epoch(end.figures, end.steps)
        return end.asked_to_stop

    def _log_epoch(self, figures: EpochFigures, steps: step_statistics.EpochSteps) -> None:
        total_s = max(steps.mean_sum_s(step_statistics.STEP), 1e-9)
        self.journal.event(
            "epoch_stop", epoch=figures.epoch, loss=figures.loss, samples_per_s=figures.samples / figures.seconds_s,
            figures=figures.model_dump(mode="json"),
        )  # fmt: skip
        self.journal.scalars(
            self.progress.step,
            {
                "loss_epoch": figures.loss,
                "images_per_s": figures.samples / figures.seconds_s,
                "share_input_wait": steps.mean_sum_s(step_statistics.INPUT) / total_s,
                "share_exposed_communication": steps.mean_sum_s(step_statistics.EXPOSED) / total_s,
            },
        )

    def evaluate(self) -> tuple[EvaluationFigures | None, bool]:
        """Evaluate the model as it is; all ranks come back with the same figures and the same time, and true where one of them
        was asked to stop. No figures: they are reckoned beside training, see `take_evaluation`.

        Raises:
            TargetReached: by the evaluation before, of which the figures came only now.
        """
        if self.pending is not None and self.take_evaluation().reached:
            raise TargetReached
        self.clock.switch("evaluation")
        epoch, step, start_s = self.progress.epoch, self.progress.step, time.monotonic()
        self.journal.mlperf_start("eval_start", epoch_num=epoch)
        self.model.eval()
        figures = None
        with torch.inference_mode(), self.precision.autocast():
            if self.settings.evaluation.beside_training:
                assert isinstance(self.workload, EvaluatesBeside)  # or it would not have been made with these settings
                pending = self.workload.evaluate_beside(self.model, self.communicator)
                self.pending = PendingFigures(epoch, step, time.monotonic() - start_s, pending)
            else:
                evaluation = self.workload.evaluate(self.model, self.communicator)
                figures = self._conclude(evaluation, epoch, step, time.monotonic() - start_s)
        return figures, any(self.communicator.gather_objects(self.asked_to_stop()))

    def _evaluated(self) -> bool:
        return self.pending is not None and self.pending.evaluation.ready()

    def take_evaluation(self) -> EvaluationFigures:
        """The figures of the evaluation that goes on beside training; waits for them; collective."""
        assert self.pending is not None
        pending, self.pending = self.pending, None
        since_s = time.monotonic()
        with self.clock.account("evaluation"):
            metrics = pending.evaluation.metrics(self.communicator)
        evaluation = Evaluation(metrics=metrics, samples=pending.evaluation.samples)
        seconds_s = pending.seconds_s + time.monotonic() - since_s
        figures = self._conclude(evaluation, pending.epoch, pending.step, seconds_s)
        self.after_late_evaluation()
        return figures

    def _conclude(self, evaluation: Evaluation, epoch: int, step: int, seconds_s: float) -> EvaluationFigures:
        """Bring the ranks' times together, and tell."""
        reached = self.workload.reached(evaluation.metrics)
        gathered = self.communicator.gather_objects((seconds_s, self.clock.on_the_clock_s()))
        figures = EvaluationFigures(
            epoch=epoch,
            samples=evaluation.samples,
            seconds_s=max(row[0] for row in gathered),
            elapsed_s=max(row[1] for row in gathered),
            metrics=evaluation.metrics,
            reached=reached,
        )
        self.progress.evaluations.append(figures)
        self.journal.mlperf("eval_accuracy", self.workload.mlperf_accuracy(evaluation.metrics), epoch_num=epoch)
        self.journal.mlperf_stop("eval_stop", epoch_num=epoch)
        self.journal.event(
            "evaluation", epoch=epoch, metrics=figures.metrics, reached=reached, elapsed_s=figures.elapsed_s,
            figures=figures.model_dump(mode="json"),
        )  # fmt: skip
        self.journal.scalars(step, dict(figures.metrics))
        return figures
