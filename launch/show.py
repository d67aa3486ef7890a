"""What a person sees while runs go on: a bar on a terminal, plain lines in a log file; one throughput for the whole job."""

from __future__ import annotations

import sys
from typing import Any

from results.spec import RunSpec


class Display:
    """Plain lines: one for each epoch, evaluation, and change of state."""

    def begin(self, spec: RunSpec, note: str = "") -> None:
        """A run starts."""
        self.spec = spec
        shape = f"{_count(spec.nodes, 'node')} x {_count(spec.ranks_per_node, 'rank')}"
        where = ", emulated" if spec.emulated_nodes else ""
        self.say(f"{spec.run_id}: {shape}{where}, {spec.interconnect}, seed {spec.seed}{note}")

    def say(self, text: str) -> None:
        """One line."""
        print(text, flush=True)

    def event(self, event: dict[str, Any]) -> None:
        """Something that the ranks did."""
        if event["event"] == "evaluation":
            metrics = ", ".join(f"{name} {value:.4f}" for name, value in event["metrics"].items())
            reached = ", target reached" if event["reached"] else ""
            self.say(f"  epoch {event['epoch']}: {metrics} after {event['elapsed_s']:.1f} s{reached}")
        elif event["event"] == "epoch_stop":
            self.say(f"  epoch {event['epoch']}: loss {event['loss']:.4f}, {event['samples_per_s']:.1f} images/s over all ranks")
        elif event["event"] == "resumed":
            place = f"step {event['step']} of epoch {event['epoch'] + 1}" if event.get("step") else f"epoch {event['epoch']}"
            self.say(f"  resumed after {place}; {event['restart_s']:.1f} s were lost")

    def end(self) -> None:
        """The run is over."""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class BarDisplay(Display):
    """A bar over the epochs of the run, with loss, throughput and the last evaluation."""

    def begin(self, spec: RunSpec, note: str = "") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        super().begin(spec, note)
        self.progress = Progress(
            TextColumn("  {task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[figures]}"), TimeElapsedColumn()
        )
        self.task = self.progress.add_task("starting", total=spec.settings.max_epochs, figures="")
        self.metrics = ""
        self.progress.start()

    def event(self, event: dict[str, Any]) -> None:
        if event["event"] == "progress":
            self.progress.update(
                self.task,
                description=f"epoch {event['epoch']}",
                completed=event["epoch"] - 1 + event["step"] / event["steps_per_epoch"],
                figures=f"loss {event['loss']:.3f}  {event['samples_per_s']:.1f} images/s  {self.metrics}",
            )
        elif event["event"] == "evaluation":
            self.metrics = "  ".join(f"{name} {value:.4f}" for name, value in event["metrics"].items())
            self.progress.update(self.task, completed=event["epoch"], figures=self.metrics)

    def end(self) -> None:
        self.progress.stop()


class SilentDisplay(Display):
    """For `--json`, whose output must be JSON alone."""

    def say(self, text: str) -> None:
        return


def make_display(*, quiet: bool) -> Display:
    """The display for this output."""
    if quiet:
        return SilentDisplay()
    return BarDisplay() if sys.stdout.isatty() else Display()
