"""Options that several commands share: how and where ranks are started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from launch.runner import Placement

F = TypeVar("F", bound=Callable[..., Any])
SITE_VARIABLE = "TRAINSCALE_SITE"


def site_option(function: F) -> F:
    """`--site FILE`."""
    return click.option(
        "--site",
        "site_file",
        type=click.Path(path_type=Path),
        envvar=SITE_VARIABLE,
        metavar="FILE",
        help=f"Site profile: device names, partition, modules, container, binding; ${SITE_VARIABLE} does as well.",
    )(function)


def placement_options(function: F) -> F:
    """`--launcher`, `--host`, `--hostfile` and `--site`."""
    function = site_option(function)
    function = click.option("--hostfile", type=click.Path(path_type=Path), metavar="FILE", help="Hosts as Open MPI writes them.")(
        function
    )
    function = click.option(
        "--host", "hosts", multiple=True, metavar="NAME[:SLOTS]", help="Repeat for each; default: the allocation, or this host."
    )(function)
    return click.option(
        "--launcher", metavar="NAME", help="mpirun, local, srun or horovodrun; default: the site's, else mpirun."
    )(function)


def make_placement(
    launcher: str | None, hosts: tuple[str, ...] | list[str], hostfile: Path | None, site_file: Path | None
) -> Placement:
    """The placement that these options ask for.

    Raises:
        ConfigurationError: a file is missing or wrong.
    """
    from launch.job import read_hostfile
    from launch.runner import Placement
    from launch.site import load_site

    site = load_site(site_file)
    named = [*hosts, *(read_hostfile(hostfile) if hostfile else [])]
    return Placement(launcher=launcher or (site.launcher if site_file else "mpirun"), hosts=named, site=site)
