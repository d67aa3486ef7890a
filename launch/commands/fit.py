"""`trainscale fit`: the largest local batch for a device's memory."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

GIB = 2**30


@click.command()
@click.argument("workload")
@click.option("--preset", metavar="NAME|FILE", help="Default: MLPerf's.")
@click.option(
    "--memory", "memories_gib", multiple=True, type=click.FloatRange(min=0, min_open=True), default=(16, 32), show_default=True,
    metavar="GIB", help="Memory of a device; repeat for each.",
)  # fmt: skip
@click.option("--precision", type=click.Choice(["fp32", "bf16", "fp16"]))
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any other key of the preset.")
@click.option("--try", "try_it", is_flag=True, help="Find it on this machine's GPU by trial; the estimate stands beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the estimate as JSON, and nothing else.")
def command(
    workload: str,
    preset: str | None,
    memories_gib: tuple[float, ...],
    precision: str | None,
    assignments: tuple[str, ...],
    try_it: bool,
    as_json: bool,
) -> None:
    """Estimate the largest local batch of WORKLOAD for 16 and 32 GB, or find it on a GPU by trial.

    Presets as they are come from a table; other settings are measured with torch on the CPU, which takes a minute or two.
    """
    from launch import catalog
    from launch.footprint import find_by_trial, known_footprint, measure_footprint
    from results.footprint import largest_local_batch

    mlperf = next((name for name in catalog.presets(workload) if name.startswith("mlperf")), catalog.default_preset(workload))
    preset = preset or mlperf
    overrides = catalog.parse_overrides(assignments) | ({"precision": precision} if precision else {})
    settings = catalog.settings(workload, preset, overrides)
    footprint = known_footprint(workload, preset, settings) or measure_footprint(workload, preset, settings)
    largest = {memory: largest_local_batch(footprint, settings, round(memory * GIB)) for memory in memories_gib}
    found = find_by_trial(workload, preset, settings) if try_it else None
    if as_json:
        document = {
            "workload": workload, "preset": preset, "footprint": footprint.model_dump(), "estimated_local_batch_size": largest,
            "found": found,
        }  # fmt: skip
        click.echo(json.dumps(document, indent=1))
        return
    click.echo(_describe(workload, preset, settings, footprint, largest, found))


def _describe(
    workload: str, preset: str, settings: Any, footprint: Any, largest: dict[float, int], found: dict[str, Any] | None
) -> str:
    from results.footprint import estimate

    size = settings.local_batch_size
    parts = asdict(estimate(footprint, settings, size))
    lines = [
        f"{workload} · {preset}, {settings.precision}: ESTIMATE for one rank at a local batch of {size}",
        *(f"  {name.removesuffix('_bytes'):<10} {value / GIB:7.2f} GiB" for name, value in parts.items()),
        f"  {'together':<10} {sum(parts.values()) / GIB:7.2f} GiB; passes {footprint.bytes_per_image / 2**20:.1f} MiB an image",
        "  The margin is for what is not counted: CUDA context, cuDNN's workspaces, NCCL, DALI's decoder, fragmentation.",
        *(f"{memory:g} GiB: a local batch of {count} by this estimate" for memory, count in largest.items()),
    ]
    if found is not None:
        lines.append(
            f"{found['device']}: a local batch of {found['local_batch_size']} went through {found['trials']} trials; "
            f"{found['peak_bytes'] / GIB:.2f} GiB at most in torch's hands"
        )
    return "\n".join(lines)
