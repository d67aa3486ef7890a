"""`trainscale compare`: two systems, two interconnects, or one before and after maintenance."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from results.compare import ComparisonOfTwo
    from results.run import Run


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--runs", "runs_dir", type=click.Path(path_type=Path), default="runs", show_default=True, help="Where names are looked up."
)
@click.option(
    "--fail-below", type=click.FloatRange(min=0), metavar="PCT", help="Exit with status 1 if B has less than PCT% of A's speed."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(first: str, second: str, runs_dir: Path, fail_below: float | None, as_json: bool) -> None:
    """Compare time to train of A and B: folders of runs, or names of interconnects or systems among the runs.

    A difference is claimed only where each side has at least four runs and the intervals do not overlap. --fail-below looks
    at the scores alone, so that a check does not pass for want of runs.
    """
    from results.compare import compare

    found = compare(_side(first, runs_dir), _side(second, runs_dir), (first, second))
    slow = found.below(fail_below) if fail_below is not None else []
    if as_json:
        from results.report.json import finite

        document = finite(asdict(found)) | {"fail_below_percent": fail_below, "passed": None if fail_below is None else not slow}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from results.report.two import render

        click.echo(render(found, color=sys.stdout.isatty()), nl=False)
        if fail_below is not None:
            click.echo(_outcome(found, fail_below, len(slow)))
    if slow:
        sys.exit(1)


def _outcome(found: ComparisonOfTwo, fail_below: float, slow: int) -> str:
    if slow:
        return f"FAILED: B has less than {fail_below:g}% of A's speed in {slow} of {len(found.pairs)} rows"
    return f"Passed: B has at least {fail_below:g}% of A's speed in all {len(found.pairs)} rows"


def _side(name: str, runs_dir: Path) -> list[Run]:
    """Runs of a folder, or of an interconnect or system among those of `runs_dir`."""
    from results.archive import load
    from results.yaml_file import ConfigurationError, nearest

    if Path(name).exists():
        return load([Path(name)]).runs
    if not runs_dir.exists():
        raise ConfigurationError(f"{name} is no folder, and there is no folder {runs_dir} to look it up in; use --runs")
    runs = load([runs_dir]).runs
    found = [run for run in runs if name in (run.interconnect, run.system)]
    if not found:
        known = {run.interconnect for run in runs} | {run.system for run in runs}
        raise ConfigurationError(f"{name} is no folder, interconnect or system of the runs in {runs_dir}{nearest(name, known)}")
    return found
