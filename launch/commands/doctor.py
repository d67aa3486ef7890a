"""`trainscale doctor`: what is missing here and the command that brings it."""

from __future__ import annotations

import dataclasses
import json
import sys

import click

MARKS = {"ok": ("green", "ok     "), "warning": ("yellow", "warning"), "broken": ("red", "broken ")}


@click.command()
@click.option("--json", "as_json", is_flag=True)
def command(as_json: bool) -> None:
    """Look at this machine: a line for each part, ok, warning or broken, with the command that mends it."""
    from launch.doctor import examine

    findings = examine()
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            colour, mark = MARKS[finding.level]
            click.echo(f"{click.style(mark, fg=colour)}  {finding.part}: {finding.found}")
            if finding.remedy:
                click.echo(f"         -> {finding.remedy}")
    sys.exit(1 if any(finding.level == "broken" for finding in findings) else 0)
