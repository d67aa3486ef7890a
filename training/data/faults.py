"""What is wrong with a data set: every fault named in one file, counted by kind in one summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from results.model import write_atomically
from results.yaml_file import ConfigurationError
from training.data.folder import screen

FILE_NAME = "faults.txt"

HARMLESS = {
    "grey image": "decoded to three equal channels",
    "CMYK image": "converted to RGB",
    "PNG named as a JPEG": "decoded by its content",
    "box without area": "left out",
    "box beyond the border": "clipped",
}
"""Kinds that training copes with, and how. All others must be mended."""


@dataclass(slots=True)
class FaultList:
    """Faults as (kind, where) in the order found."""

    found: list[tuple[str, str]] = field(default_factory=list)

    def add(self, kind: str, where: str) -> None:
        """One fault; `where` names the file, image or annotation."""
        self.found.append((kind, where))

    def extend(self, kind: str, places: Iterable[str]) -> None:
        """Many of one kind."""
        self.found += [(kind, where) for where in places]

    def counts(self) -> Counter[str]:
        """Faults of each kind."""
        return Counter(kind for kind, _ in self.found)

    def report(self, root: Path) -> list[str]:
        """Write ROOT/faults.txt and return the summary, a line for each kind; a file of an earlier check is replaced."""
        path = root / FILE_NAME
        write_atomically(path, "".join(f"{kind}: {where}\n" for kind, where in self.found))
        lines = [
            f"{count} x {kind}" + (f" ({HARMLESS[kind]})" if kind in HARMLESS else "")
            for kind, count in sorted(self.counts().items(), key=lambda item: (item[0] in HARMLESS, item[0]))
        ]
        return [*lines, f"every fault is named in {path}"] if lines else ["no faults"]

    def raise_serious(self, root: Path) -> None:
        """Fail where there is a fault that training does not cope with.

        Raises:
            ConfigurationError: one line with the count of each such kind, and the first of them.
        """
        serious = [(kind, where) for kind, where in self.found if kind not in HARMLESS]
        if serious:
            counts = ", ".join(f"{count} x {kind}" for kind, count in sorted(Counter(kind for kind, _ in serious).items()))
            kind, where = serious[0]
            raise ConfigurationError(f"{counts}; first: {kind}: {where}; all are named in {root / FILE_NAME}")


def check_images(root: Path, files: list[str], faults: FaultList, sizes: dict[str, tuple[int, int]] | None = None) -> None:
    """Open each image: unreadable ones, other formats and colours than the name says, sizes (width, height) unlike `sizes`."""
    unreadable = set(screen(root, files))
    faults.extend("unreadable image", sorted(unreadable))
    readable = [file for file in files if file not in unreadable]
    with ThreadPoolExecutor(max_workers=8) as pool:
        for file, facts in zip(readable, pool.map(lambda name: _facts(root / name), readable), strict=True):
            form, mode, size = facts
            if form == "PNG":
                faults.add("PNG named as a JPEG", file)
            elif form != "JPEG":
                faults.add(f"image in format {form}", file)
            if mode == "CMYK":
                faults.add("CMYK image", file)
            elif mode in ("L", "LA", "1"):
                faults.add("grey image", file)
            if sizes is not None and sizes.get(file, size) != size:
                width, height = sizes[file]
                faults.add("size unlike the annotations", f"{file} is {size[0]}x{size[1]}, annotated as {width}x{height}")


def _facts(path: Path) -> tuple[str, str, tuple[int, int]]:
    from PIL import Image

    with Image.open(path) as image:
        return image.format or "unknown", image.mode, image.size
