"""`trainscale sweep`: every run of an experiment; asked again, it does what is left."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from launch.commands.options import make_placement, placement_options


@click.command()
@click.argument("experiment_file", type=click.Path(path_type=Path), metavar="EXPERIMENT.yaml")
@click.option("--runs", type=click.Path(path_type=Path), help="Folder of run directories; default: runs/<experiment's name>.")
@placement_options
@click.option("--report", "with_report", is_flag=True, help="End with the report, and write report.html beside the runs.")
@click.option("--dry-run", is_flag=True, help="Print every command and file, and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome of each run as JSON, and nothing else.")
def command(
    experiment_file: Path,
    runs: Path | None,
    launcher: str | None,
    hosts: tuple[str, ...],
    hostfile: Path | None,
    site_file: Path | None,
    with_report: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Do what is missing of an experiment: finished runs stay, interrupted ones go on, failed ones are tried again."""
    from launch.commands.run import describe
    from launch.embedded import ensure_embedded
    from launch.experiment import load_experiment, plan
    from launch.show import make_display
    from launch.sweep import sweep
    from results.rundir import RunDirectory

    experiment = load_experiment(experiment_file)
    folder = (runs or Path("runs") / experiment.name).absolute()
    specs = plan(experiment, folder, keep_seeds=not dry_run)
    placement = make_placement(launcher or experiment.launcher, hosts or experiment.hosts, hostfile, site_file)
    if dry_run:
        texts = [describe(spec, RunDirectory(folder / spec.run_id), placement, as_json=as_json) for spec in specs]
        click.echo(f"[{', '.join(texts)}]" if as_json else "\n\n".join(texts))
        return
    ensure_embedded(specs)
    outcomes = sweep(specs, folder, placement, make_display(quiet=as_json), experiment.fabric_check)
    if as_json:
        click.echo(json.dumps(outcomes, indent=1))
    if with_report:
        show_report(folder)
    sys.exit(exit_status(outcomes.values()))


def exit_status(statuses: Collection[str]) -> int:
    """5 when a run was interrupted, 4 when one did not finish otherwise."""
    if "interrupted" in statuses:
        return 5
    return 4 if any(status != "finished" for status in statuses) else 0


def show_report(folder: Path) -> None:
    """Print the report of a folder of runs, and write it as `report.html` beside them."""
    from launch.commands.report import command as report

    click.echo()
    page = folder / "report.html"
    arguments: list[Any] = [str(folder), "--html", str(page)]
    report.main(args=arguments, prog_name="trainscale report", standalone_mode=False)
