"""Line rates as people and tc(8) write them: `200mbit`, `100gbit`."""

from __future__ import annotations

import re

from results.yaml_file import ConfigurationError

_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


def parse_rate(text: str) -> float:
    """Bits per second of a rate such as `200mbit` or `1.5gbit`; prefixes are powers of 1000, as in tc(8).

    Raises:
        ConfigurationError: `text` is no rate above zero.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.strip().lower())
    bits_per_s = float(found.group(1)) * _UNITS[found.group(2)] if found else 0.0
    if bits_per_s <= 0:
        raise ConfigurationError(f"{text!r} is not a rate; write for example 200mbit or 100gbit")
    return bits_per_s


def show_rate(bits_per_s: float) -> str:
    """A rate with three significant digits: `189 Mbit/s`."""
    for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if bits_per_s >= factor:
            return f"{bits_per_s / factor:.3g} {prefix}bit/s"
    return f"{bits_per_s:.3g} bit/s"
