"""Published numbers, each with its source; official, unofficial and estimated ones are never in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import PositiveFloat, PositiveInt, model_validator

from results.model import Document
from results.yaml_file import ConfigurationError, load_document, nearest

FOLDER = Path(__file__).parent
RCP_FILE = FOLDER / "rcp.yaml"


class PublishedFigure(Document):
    """What was published of one configuration."""

    workload: Literal["resnet50", "ssd", "maskrcnn"]
    system: str
    nodes: PositiveInt
    accelerators: PositiveInt
    """Over all nodes."""
    interconnect: str = ""
    """Empty where the source does not state it, or on one node."""
    minutes: PositiveFloat | None = None
    """Time to train."""
    speedup: PositiveFloat | None = None
    """Time-to-train speedup over one node."""
    samples_per_s: PositiveFloat | None = None
    global_batch_size: PositiveInt | None = None
    epochs: PositiveFloat | None = None
    """To the quality target."""
    source: str = ""
    """Where it differs from the file's."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.minutes is None and self.speedup is None and self.samples_per_s is None:
            raise ValueError("a figure needs minutes, a speedup or samples_per_s")
        return self


class Published(Document):
    """One file of published numbers."""

    title: str
    kind: Literal["official", "unofficial", "estimated"]
    """official: an MLPerf result; unofficial: published elsewhere; estimated: calculated, never measured."""
    round: str
    """MLPerf round; empty for none."""
    source: str
    url: str
    figures: list[PublishedFigure]


def names() -> list[str]:
    """Names of all files, without their ending."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path != RCP_FILE)


def load_published(name: str) -> list[Published]:
    """The files whose name is `name` or starts with it: `mlperf-v0.6` gives those of that round.

    Raises:
        ConfigurationError: no file has such a name.
    """
    found = [known for known in names() if known == name or known.startswith(f"{name}-")]
    if not found:
        raise ConfigurationError(f"no published numbers are called {name}{nearest(name, names())}")
    return [load_document(FOLDER / f"{known}.yaml", Published) for known in found]
