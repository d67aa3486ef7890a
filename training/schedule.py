"""Learning rate as a function of the step."""

from __future__ import annotations

from results.settings import ScheduleSettings


class Schedule:
    """Warm-up and decay in steps of one run.

    Polynomial decay follows the MLPerf LARS rule (MLPerf Training rules v0.7, table of ResNet hyperparameters: power 2, end
    rate 1e-4, counted from the end of warm-up); step decay multiplies at epoch boundaries.
    """

    def __init__(self, settings: ScheduleSettings, *, peak: float, steps_per_epoch: int, max_epochs: int) -> None:
        self.settings = settings
        self.peak = peak
        self.steps_per_epoch = steps_per_epoch
        self.warmup_steps = round(settings.warmup_epochs * steps_per_epoch)
        self.decay_steps = round((settings.decay_epochs or max_epochs) * steps_per_epoch)

    def rate(self, step: int) -> float:
        """Learning rate of step number `step` (from 0)."""
        settings = self.settings
        if step < self.warmup_steps:
            share = (step + 1) / self.warmup_steps
            return self.peak * (settings.warmup_factor + (1 - settings.warmup_factor) * share)
        if settings.decay == "polynomial":
            span = max(self.decay_steps - self.warmup_steps, 1)
            left = max(1 - (step - self.warmup_steps) / span, 0.0)
            end = min(settings.end_rate, self.peak)
            return end + (self.peak - end) * left**settings.power
        if settings.decay == "step":
            passed = sum(step >= round(epoch * self.steps_per_epoch) for epoch in settings.step_epochs)
            return self.peak * settings.step_factor**passed
        return self.peak
