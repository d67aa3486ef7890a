"""Plans of training as tables for a terminal."""

from __future__ import annotations

from itertools import groupby

from launch.training_plan import TrainingPlan
from results.rates import show_rate
from results.report.cells import Table
from results.report.terminal import Page

FOOTNOTES = (
    "Warm-up and decay in steps: decay is where the rate falls, or where a polynomial ends. Evals: at most.",
    "Last pass: images of a rank in the last forward pass of an epoch. Evaluated: validation images of a rank.",
    "Busbw: bus bandwidth (nccl-tests) at which one exchange of gradients takes as long as the backward pass that hides it, two "
    "thirds of a step at the rate named; an estimate.",
    "Memory: estimate for one rank, with 2 GiB for what is not counted (CUDA context, cuDNN, NCCL, DALI); `trainscale fit` has "
    "its parts.",
)


def render(plans: list[TrainingPlan]) -> str:
    """All plans, in two tables for each workload and preset, at most 100 columns wide."""
    page = Page()
    for (workload, preset), grouped in groupby(plans, key=lambda plan: (plan.workload, plan.preset)):
        rows = list(grouped)
        first = rows[0]
        shape = "x".join(map(str, first.input_shape[1:]))
        size = f", {first.parameters:,} parameters" if first.parameters else ""
        page.text(f"{workload} · {preset}: images {shape}{size}, {first.optimizer}", "bold")
        page.table(_schedule_table(rows))
        page.table(_load_table(rows))
        for plan in rows:
            if plan.hyperparameters:
                page.text(f"{plan.nodes} node{'s' if plan.nodes > 1 else ''}: {plan.hyperparameters}", indent="  ")
        if first.images_per_s:
            page.text(f"{first.images_per_s:.4g} images/s for one rank alone: {first.images_per_s_source}", indent="  ")
        page.text()
    for footnote in FOOTNOTES:
        page.text(footnote)
    return page.render(color=False)


def _schedule_table(rows: list[TrainingPlan]) -> Table:
    headers = ["nodes", "ranks", "local", "global", "rate", "decayed", "steps/epoch", "warm-up", "decay", "epochs", "evals"]
    cells = [
        [
            str(plan.nodes), str(plan.ranks), str(plan.local_batch_size), str(plan.global_batch_size),
            f"{plan.peak_learning_rate:.5g}", f"{plan.weight_decay:.2g}", str(plan.steps_per_epoch), str(plan.warmup_steps),
            "/".join(map(str, plan.decay_steps)) or "–", str(plan.max_epochs), str(plan.evaluations),
        ]
        for plan in rows
    ]  # fmt: skip
    return Table(headers, cells)


def _load_table(rows: list[TrainingPlan]) -> Table:
    headers = ["nodes", "images/rank", "last pass", "evaluated", "in batches", "gradients", "busbw", "memory"]
    cells = [
        [
            str(plan.nodes), _range(plan.shard_samples), _range(plan.last_batch_samples), _range(plan.evaluation_samples),
            str(plan.evaluation_batches),
            f"{plan.gradient_bytes / 1e6:.1f} MB" if plan.gradient_bytes else "–",
            show_rate(plan.hiding_busbw_bits_per_s) if plan.hiding_busbw_bits_per_s is not None else "–",
            f"{plan.memory_bytes / 2**30:.1f} GiB" if plan.memory_bytes else "–",
        ]
        for plan in rows
    ]  # fmt: skip
    return Table(headers, cells)


def _range(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}–{ends[1]}"
