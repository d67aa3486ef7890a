"""`trainscale plan`: what training would be on many ranks, without any of them."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("workload", required=False)
@click.option("--preset", metavar="NAME|FILE", help="Default: every preset of the workload.")
@click.option("--nodes", multiple=True, type=click.IntRange(1), default=(1, 2, 4, 8), show_default=True, help="Repeat for each.")
@click.option("--ranks-per-node", type=click.IntRange(1), default=4, show_default=True)
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="A key of the preset, for example local_batch_size=64."
)
@click.option(
    "--images-per-s", type=click.FloatRange(min=0, min_open=True),
    help="Of one rank alone; default: published for a V100 where the preset is MLPerf's.",
)  # fmt: skip
@click.option(
    "--measure", is_flag=True, help="Measure memory and parameters of settings that are not a preset's own (with torch)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the plans as JSON, and nothing else.")
def command(
    workload: str | None,
    preset: str | None,
    nodes: tuple[int, ...],
    ranks_per_node: int,
    assignments: tuple[str, ...],
    images_per_s: float | None,
    measure: bool,
    as_json: bool,
) -> None:
    """Work out shapes, batches, learning rates, schedule, shards, exchange and memory of WORKLOAD (default: of all).

    Nothing is started and no GPU, torch or data set is needed. What one run executes is shown by `trainscale run --dry-run`.
    """
    from launch import catalog
    from launch.footprint import known_footprint, measure_footprint
    from launch.plan_table import render
    from launch.training_plan import make_plan
    from results.yaml_file import ConfigurationError

    if preset and not workload:
        raise ConfigurationError(f"--preset {preset}: of which workload? There is: {', '.join(catalog.workloads())}")
    overrides = catalog.parse_overrides(assignments)
    plans = []
    for name in [workload] if workload else catalog.workloads():
        for chosen in [preset] if preset else catalog.presets(name):
            footprint = None
            for count in nodes:
                settings = catalog.settings(name, chosen, overrides, count * ranks_per_node)
                footprint = known_footprint(name, chosen, settings) or footprint
                if measure and footprint is None:
                    footprint = measure_footprint(name, chosen, settings)
                plan = make_plan(
                    name, chosen, settings, nodes=count, ranks_per_node=ranks_per_node, footprint=footprint,
                    images_per_s=images_per_s,
                )  # fmt: skip
                plans.append(plan)
    if as_json:
        click.echo(json.dumps([plan.model_dump(mode="json") for plan in plans], indent=1))
    else:
        click.echo(render(plans), nl=False)
