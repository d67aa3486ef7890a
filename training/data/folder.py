"""Images in the ImageNet folder layout: ROOT/{train,val}/CLASS/*.jpg, and the manifest that `prepare` leaves beside them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from results.model import write_atomically
from results.yaml_file import ConfigurationError

SUFFIXES = {".jpg", ".jpeg"}
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageList:
    """The images of one split, sorted by class and name; parallel lists."""

    root: Path
    """The data set's folder."""
    classes: list[str]
    files: list[str]
    """Paths relative to `root`."""
    labels: list[int]
    sizes_bytes: list[int]

    def without(self, left_out: Iterable[str]) -> ImageList:
        """The list less some files."""
        gone = set(left_out)
        kept = [index for index, name in enumerate(self.files) if name not in gone]
        return ImageList(
            root=self.root,
            classes=self.classes,
            files=[self.files[index] for index in kept],
            labels=[self.labels[index] for index in kept],
            sizes_bytes=[self.sizes_bytes[index] for index in kept],
        )


def list_split(root: Path, split: str) -> ImageList:
    """The images under ROOT/SPLIT.

    Raises:
        ConfigurationError: the folder is missing, holds no class folders, or a class has no images.
    """
    folder = root / split
    if not folder.is_dir():
        raise ConfigurationError(f"data folder {folder} is missing; expected ROOT/{split}/CLASS/*.jpg (trainscale data prepare)")
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise ConfigurationError(f"data folder {folder} has no class folders; expected {folder}/CLASS/*.jpg")
    files, labels, sizes_bytes = [], [], []
    for label, name in enumerate(classes):
        images = sorted(
            (entry.name, entry.stat().st_size)
            for entry in os.scandir(folder / name)
            if Path(entry.name).suffix.lower() in SUFFIXES
        )
        if not images:
            raise ConfigurationError(f"class folder {folder / name} has no .jpg or .jpeg files")
        files += [f"{split}/{name}/{image}" for image, _ in images]
        sizes_bytes += [size for _, size in images]
        labels += [label] * len(images)
    return ImageList(root=root, classes=classes, files=files, labels=labels, sizes_bytes=sizes_bytes)


def write_manifest(root: Path, name: str, splits: Iterable[ImageList] | None = None) -> Path:
    """Record name and size of every image, and which of them cannot be read, in ROOT/manifest.json; returns its path.

    `splits` are the lists of images where they do not lie in class folders.
    """
    splits = [list_split(root, split) for split in ("train", "val")] if splits is None else list(splits)
    document = {
        "name": name,
        "files": {file: size for images in splits for file, size in zip(images.files, images.sizes_bytes, strict=True)},
        "unreadable": sorted(file for images in splits for file in screen(root, images.files)),
    }
    write_atomically(root / MANIFEST, json.dumps(document, indent=0, sort_keys=True) + "\n")
    return root / MANIFEST


def write_once(root: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill a folder that then becomes `root`, unless `root` has its manifest already; returns the manifest.

    The folder is written beside `root` and renamed, so that a killed `prepare` leaves no half data set behind.
    """
    if not (root / MANIFEST).exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{root.name}-") as folder:
            partial = Path(folder) / root.name
            write(partial)
            if root.exists():
                shutil.rmtree(root)
            partial.rename(root)
    return root / MANIFEST


def data_digest(root: Path) -> str:
    """SHA-256 of the manifest; empty where `prepare` was never run."""
    path = root / MANIFEST
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def check_readable(images: ImageList, *, skip_broken: bool) -> ImageList:
    """The list as it is, or without unreadable files when the user says so.

    Files that the manifest knows with their size are taken from it; all others are opened.

    Raises:
        ConfigurationError: there are unreadable files and `skip_broken` is false; each is named.
    """
    path = images.root / MANIFEST
    known = json.loads(path.read_text()) if path.is_file() else {"files": {}, "unreadable": []}
    changed = [file for file, size in zip(images.files, images.sizes_bytes, strict=True) if known["files"].get(file) != size]
    broken = set(screen(images.root, changed))
    broken |= (set(known["unreadable"]) & set(images.files)) - set(changed)
    if not broken:
        return images
    if not skip_broken:
        shown = ", ".join(str(images.root / file) for file in sorted(broken)[:5])
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        raise ConfigurationError(
            f"unreadable images: {shown}{more}; mend or delete them, or leave them out with --set input.skip_broken_images=true"
        )
    return images.without(broken)


def screen(root: Path, files: list[str]) -> list[str]:
    """Those of `files` that cannot be decoded whole. A look at both ends of each file settles nearly all of them."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        verdicts = list(pool.map(lambda file: _is_broken(root / file), files))
    return [file for file, broken in zip(files, verdicts, strict=True) if broken]


def _is_broken(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
            stream.seek(max(0, path.stat().st_size - 64))
            tail = stream.read()
    except OSError:
        return True
    if head[:3] == b"\xff\xd8\xff" and b"\xff\xd9" in tail:
        return False
    return not _decodes(path)


def _decodes(path: Path) -> bool:
    """The thorough way, for files that look odd: JPEGs with bytes after their end, and PNGs named .jpg, decode well."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError):
        return False
    return True
