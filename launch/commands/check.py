"""`trainscale check`: MLCommons' compliance checker on a run's log, and what a submission folder still lacks."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--round", "mlperf_round", default="1.0.0", show_default=True, metavar="ROUND", help="MLPerf round, such as 0.6.0 or 1.0.0."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: Path, mlperf_round: str, as_json: bool) -> None:
    """Check the MLPerf log of RUN, a run directory or a log file, by the rules of a round.

    Exit status 1 if the log is not compliant.
    """
    from results.archive import UnusableRecord
    from results.readiness import check_run
    from results.yaml_file import ConfigurationError

    if not run.exists():
        raise ConfigurationError(f"{run}: no such run directory or log")
    try:
        found = check_run(run, mlperf_round)
    except UnusableRecord as error:
        raise ConfigurationError(f"{run}: {error}") from error
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        click.echo(f"{found.log}: {'SUCCESS' if found.compliant else 'NOT COMPLIANT'} by the rules of {found.mlperf_round}")
        for line in found.checker_lines:
            click.echo(f"  {line}")
        click.echo("Missing for a submission:")
        for line in found.missing:
            click.echo(f"  - {line}")
    if not found.compliant:
        sys.exit(1)
