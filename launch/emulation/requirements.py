"""What the emulated cluster needs of the machine, and the one line that says what is missing."""

from __future__ import annotations

import os

from launch.emulation.packages import missing_packages
from results.yaml_file import ConfigurationError


def missing() -> str | None:
    """Why there can be no emulated cluster here, with the way out, in one line; None when nothing is missing."""
    if os.geteuid() != 0:
        return "the emulated cluster makes network namespaces and needs root; run it with sudo, or as root in a container"
    if packages := missing_packages():
        install = " ".join(["apt-get", "install", "--no-install-recommends", *packages])
        return f"the emulated cluster needs Debian packages; run: {install}"
    return None


def check() -> None:
    """Raise ConfigurationError with the line of `missing`, if any."""
    if (why := missing()) is not None:
        raise ConfigurationError(why)
