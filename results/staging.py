"""The copy of a data set on a node's own scratch: what `launch` asks for, and what a run did."""

from __future__ import annotations

from pathlib import Path

from pydantic import NonNegativeFloat, NonNegativeInt

from results.model import Document

VARIABLE = "TRAINSCALE_SCRATCH"
"""A node-local folder, the same path on every node; set by `launch` where the ranks are to copy the data set there first.

It belongs to the site and not to what was asked of the run: a run that is gone on with elsewhere stages there, or not at all.
"""


class StagedData(Document):
    """What one host did before the clock started."""

    host: str
    path: Path
    """The copy that its ranks read."""
    files: NonNegativeInt
    size_bytes: NonNegativeInt
    copied: bool
    """False: a whole copy was there already."""
    seconds_s: NonNegativeFloat
    """Until the copy was there and looked through, waiting for another run's copying included."""
