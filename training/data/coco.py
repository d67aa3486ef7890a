"""Check and index a COCO 2017 folder that the user has, before any run."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

from results.yaml_file import ConfigurationError
from training.data.coco_index import SPLITS, annotation_path, image_folder, read_document
from training.data.faults import FaultList, check_images
from training.data.folder import ImageList, write_manifest

EXPECTED_IMAGES = {"train": 118_287, "val": 5_000}
BORDER_PX = 1.0
"""How far a box may reach beyond the image before it is worth a word."""
IMAGE_KEYS = {"id": int, "file_name": str, "width": int, "height": int}
ANNOTATION_KEYS = {"id": int, "image_id": int, "category_id": int, "bbox": list, "segmentation": (list, dict)}
CATEGORY_KEYS = {"id": int, "name": str}


def prepare(root: Path) -> Path:
    """Check both splits, write ROOT/faults.txt and the manifest, and print one summary; returns the manifest.

    Raises:
        ConfigurationError: a file is missing or is no COCO file, or there are faults that training does not cope with.
    """
    faults = FaultList()
    listed = []
    for split in SPLITS:
        document = read_document(annotation_path(root, split))
        images = _check_document(root, split, document, faults)
        listed.append(images)
        if len(images.files) != EXPECTED_IMAGES[split]:
            print(f"{split}: {len(images.files)} images, COCO 2017 has {EXPECTED_IMAGES[split]}")
    print("\n".join(faults.report(root)))
    faults.raise_serious(root)
    return write_manifest(root, "coco", listed)


def _check_document(root: Path, split: str, document: dict[str, Any], faults: FaultList) -> ImageList:
    name = annotation_path(root, split).name
    images = [image for image in document["images"] if _complete(image, IMAGE_KEYS, name, faults)]
    ids = Counter(image["id"] for image in images)
    faults.extend("duplicate image id", (f"{name}: image {number}" for number, count in ids.items() if count > 1))
    names = Counter(image["file_name"] for image in images)
    faults.extend("image listed twice", (f"{name}: {file}" for file, count in names.items() if count > 1))
    categories = Counter(item["id"] for item in document["categories"] if _complete(item, CATEGORY_KEYS, name, faults))
    faults.extend("duplicate category id", (f"{name}: category {number}" for number, count in categories.items() if count > 1))
    _check_annotations(name, document["annotations"], {image["id"]: image for image in images}, set(categories), faults)
    return _check_files(root, split, images, faults)


def _complete(item: Any, keys: dict[str, Any], name: str, faults: FaultList) -> bool:
    """True when an entry has all keys, with values of the right types."""
    if not isinstance(item, dict) or any(key not in item for key in keys):
        missing = ", ".join(key for key in keys if not isinstance(item, dict) or key not in item)
        faults.add("incomplete entry", f"{name}: {str(item)[:80]} lacks {missing}")
        return False
    for key, kind in keys.items():
        if not isinstance(item[key], kind):
            faults.add("entry of a wrong type", f"{name}: {str(item)[:80]} has {key} of type {type(item[key]).__name__}")
            return False
    return True


def _check_annotations(
    name: str, annotations: list[dict[str, Any]], images: dict[int, dict[str, Any]], categories: set[int], faults: FaultList
) -> None:
    ids: Counter[int] = Counter()
    for item in annotations:
        if not _complete(item, ANNOTATION_KEYS, name, faults):
            continue
        where = f"{name}: annotation {item['id']}"
        ids[item["id"]] += 1
        if item["category_id"] not in categories:
            faults.add("unknown category", f"{where}: category {item['category_id']}")
        if item["image_id"] not in images:
            faults.add("unknown image", f"{where}: image {item['image_id']}")
        else:
            _check_box(where, item["bbox"], images[item["image_id"]], faults)
    faults.extend("duplicate annotation id", (f"{name}: annotation {number}" for number, count in ids.items() if count > 1))


def _check_box(where: str, box: list[Any], image: dict[str, Any], faults: FaultList) -> None:
    if len(box) != 4 or not all(isinstance(value, int | float) and math.isfinite(value) for value in box):
        faults.add("box that is no box", f"{where}: {str(box)[:60]}")
        return
    left, top, width, height = box
    if width <= 0 or height <= 0:
        faults.add("box without area", f"{where}: {box}")
        return
    inside = f"{box} in {image['width']}x{image['height']}"
    if left >= image["width"] or top >= image["height"] or left + width <= 0 or top + height <= 0:
        faults.add("box outside the image", f"{where}: {inside}")
    elif min(left, top) < -BORDER_PX or left + width > image["width"] + BORDER_PX or top + height > image["height"] + BORDER_PX:
        faults.add("box beyond the border", f"{where}: {inside}")


def _check_files(root: Path, split: str, images: list[dict[str, Any]], faults: FaultList) -> ImageList:
    folder = image_folder(root, split)
    if not folder.is_dir():
        raise ConfigurationError(f"image folder {folder} is missing; expected COCO 2017's layout")
    sizes_bytes = {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    sizes = {f"{folder.name}/{image['file_name']}": (image["width"], image["height"]) for image in images}
    missing = [file for file in sizes if Path(file).name not in sizes_bytes]
    faults.extend("missing image", missing)
    present = sorted(set(sizes) - set(missing))
    check_images(root, present, faults, sizes)
    return ImageList(
        root=root, classes=[], files=present, labels=[0] * len(present), sizes_bytes=[sizes_bytes[Path(f).name] for f in present]
    )
