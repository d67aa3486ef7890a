"""`trainscale doctor`: what is missing here and the command that brings it."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launch.commands.options import make_placement, placement_options

if TYPE_CHECKING:
    from launch.doctor import Finding, Question
    from launch.doctor.allocation import Row
    from launch.runner import Placement

MARKS = {"ok": ("green", "ok     "), "warning": ("yellow", "warning"), "broken": ("red", "broken ")}


@click.command()
@click.option("--interconnect", metavar="NAME|FILE", help="Its devices must be there, active and at their rate.")
@placement_options
@click.option("--data-dir", type=click.Path(path_type=Path), help="A data set that must be there.")
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of run directories."
)
@click.option("--all-nodes", is_flag=True, help="On every node of the allocation or of --host, and what differs between them.")
@click.option("--leave-in", type=click.Path(path_type=Path), hidden=True, help="What --all-nodes starts on each node.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    interconnect: str | None,
    launcher: str | None,
    hosts: tuple[str, ...],
    hostfile: Path | None,
    site_file: Path | None,
    data_dir: Path | None,
    runs: Path,
    all_nodes: bool,
    leave_in: Path | None,
    as_json: bool,
) -> None:
    """Look at this machine: a line for each part, ok, warning or broken, with the command that mends it.

    Exit status 1 when anything is broken.
    """
    from launch.doctor import Machine, Question, examine, on_this_node, worst

    if all_nodes and not (launcher or hosts or hostfile or site_file) and "SLURM_JOB_ID" in os.environ:
        launcher = "srun"  # it needs no MPI, which may be what is broken
    placement = make_placement(launcher, hosts, hostfile, site_file)
    asked = Question(
        site=placement.site,
        interconnect=placement.interconnect(interconnect) if interconnect else None,
        hosts=placement.hosts,
        over_ssh=placement.launcher != "srun",
        runs=runs.absolute(),
        data=data_dir.absolute() if data_dir else None,
    )
    if leave_in is not None:
        from launch.doctor.allocation import leave

        leave(leave_in, on_this_node(Machine(), asked))
        return
    if all_nodes:
        sys.exit(_all_nodes(placement, asked, _passed(interconnect, site_file, asked), as_json=as_json))
    findings = examine(asked=asked)
    _show(findings, as_json=as_json)
    sys.exit(1 if worst(findings) == "broken" else 0)


def _passed(interconnect: str | None, site_file: Path | None, asked: Question) -> list[str]:
    """The options that the doctor on each node is given."""
    tokens = ["--runs", str(asked.runs)]
    if interconnect:
        own_file = interconnect.endswith((".yaml", ".yml"))
        tokens += ["--interconnect", str(Path(interconnect).absolute()) if own_file else interconnect]
    tokens += ["--site", str(site_file.absolute())] if site_file else []
    return [*tokens, *(["--data-dir", str(asked.data)] if asked.data else [])]


def _all_nodes(placement: Placement, asked: Question, passed: list[str], *, as_json: bool) -> int:
    from launch.doctor import Machine, allocation, nodes, slurm, worst

    machine = Machine()
    folder = allocation.new_folder(asked.runs)
    count = allocation.expected_nodes(placement.hosts)
    names = nodes.names(machine, placement.hosts)
    job = allocation.make_job(count, placement.hosts, placement.site, passed, folder)
    found = allocation.ask(job, allocation.get_starter(placement.launcher, placement.site), folder)
    rows = allocation.compare(found)
    here = [
        *allocation.missing(names, found, folder),
        *slurm.findings(machine, placement.site),
        *nodes.findings(machine, names, needed=asked.over_ssh and bool(placement.hosts)),
    ]
    if as_json:
        document: dict[str, Any] = {
            "nodes": [dataclasses.asdict(row) for row in rows],
            "here": [dataclasses.asdict(f) for f in here],
        }
        click.echo(json.dumps(document, indent=1))
    else:
        _table(rows, len(found))
        _show(here, as_json=False)
        click.echo(f"each node's lines: {folder}")
    return 1 if "broken" in {row.level for row in rows} or worst(here) == "broken" else 0


def _table(rows: list[Row], count: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "", "part", "nodes", "found", "remedy", title=f"{count} node{'s' if count > 1 else ''}", title_justify="left", box=None
    )
    for row in rows:
        colour, mark = MARKS[row.level]
        names = "all" if len(row.nodes) == count else ", ".join(row.nodes)
        table.add_row(Text(mark, style=colour), *map(Text, (row.part, names, row.found, row.remedy)))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)


def _show(findings: list[Finding], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=1))
        return
    for finding in findings:
        colour, mark = MARKS[finding.level]
        click.echo(f"{click.style(mark, fg=colour)}  {finding.part}: {finding.found}")
        if finding.remedy:
            click.echo(f"         -> {finding.remedy}")
