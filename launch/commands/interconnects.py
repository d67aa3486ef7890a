"""`trainscale interconnects`: the configurations that there are, and what each sets."""

from __future__ import annotations

import json
from pathlib import Path

import click

from launch.commands.options import site_option


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]…")
@site_option
@click.option("--json", "as_json", is_flag=True)
def command(names: tuple[str, ...], site_file: Path | None, as_json: bool) -> None:
    """Show every variable that an interconnect configuration sets for NCCL, UCX, Open MPI and gloo; all of them by default."""
    from launch.interconnect import load_interconnect
    from launch.interconnect import names as known
    from launch.site import load_site

    site = load_site(site_file)
    # A site need not have the devices of every configuration; those named are answered for.
    found = [site.fit(load_interconnect(name)) for name in names] or [load_interconnect(name) for name in known()]
    if as_json:
        shown = [{**one.model_dump(mode="json"), "environment": one.environment()} for one in found]
        click.echo(json.dumps(shown, indent=1))
        return
    for one in found:
        click.echo(f"{one.name}: {one.description}")
        for name, value in sorted(one.environment().items()):
            click.echo(f"  {name}={value}")
