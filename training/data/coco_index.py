"""A COCO annotation file, read once into compact arrays: what training needs to know of each image before it is opened."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import from_json

from results.yaml_file import ConfigurationError
from training.data.folder import ImageList

SPLITS = ("train", "val")
SMALLEST_SIDE_PX = 0.1
"""Boxes thinner than this are left out; the threshold of DALI's COCO reader."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CocoIndex:
    """The images of one split in the order of their ids, and their objects (crowds are left out)."""

    folder: Path
    """Where the images lie."""
    annotations: Path
    """The JSON file."""
    ids: np.ndarray
    """[images] int64."""
    files: list[str]
    sizes: np.ndarray
    """[images, 2] int32: width and height in pixels."""
    category_ids: list[int]
    """Sorted; the contiguous label of a category is its place in this list, from 1."""
    category_names: list[str]
    offsets: np.ndarray
    """[images + 1] int64: objects of image i are offsets[i] to offsets[i + 1] in the arrays below."""
    boxes: np.ndarray
    """[objects, 4] float32: left, top, right, bottom in pixels, clipped to the image."""
    categories: np.ndarray
    """[objects] int64 category ids."""
    segmentations: list[Any]
    """Polygons or run lengths of each object as the file has them; empty where they were not asked for."""

    def __len__(self) -> int:
        return len(self.files)

    def objects(self, image: int) -> slice:
        """Where the objects of image number `image` are."""
        return slice(int(self.offsets[image]), int(self.offsets[image + 1]))

    def counts(self) -> np.ndarray:
        """[images] number of objects."""
        return np.diff(self.offsets)

    def segmentation(self, image: int, place: int) -> Any:
        """Polygons or run lengths of object number `place` of an image."""
        return self.segmentations[self.objects(image)][place]

    def subset(self, images: np.ndarray) -> CocoIndex:
        """Only these images, by number, with their objects."""
        counts = self.counts()[images]
        places = [np.arange(self.offsets[image], self.offsets[image + 1]) for image in images]
        objects = np.concatenate([np.zeros(0, dtype=np.int64), *places])
        return dataclasses.replace(
            self,
            ids=self.ids[images],
            files=[self.files[image] for image in images],
            sizes=self.sizes[images],
            offsets=np.cumsum([0, *counts]),
            boxes=self.boxes[objects],
            categories=self.categories[objects],
            segmentations=[self.segmentations[place] for place in objects] if self.segmentations else [],
        )

    def labels(self, categories: np.ndarray) -> np.ndarray:
        """Contiguous labels, from 1, of category ids."""
        return np.searchsorted(np.asarray(self.category_ids), categories) + 1


def annotation_path(root: Path, split: str) -> Path:
    """The annotation file of a split, by COCO 2017's names."""
    return root / "annotations" / f"instances_{split}2017.json"


def image_folder(root: Path, split: str) -> Path:
    """The image folder of a split, by COCO 2017's names."""
    return root / f"{split}2017"


def read_document(path: Path) -> dict[str, Any]:
    """The three lists of a COCO annotation file.

    Raises:
        ConfigurationError: the file is missing, no JSON, or no COCO instances file.
    """
    try:
        document = from_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigurationError(
            f"annotation file {path} is missing; expected COCO 2017's layout, ROOT/annotations/{path.name} and ROOT/"
            "{train,val}2017/*.jpg (trainscale data prepare)"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"annotation file {path} cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"annotation file {path} is no JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(
            f"annotation file {path} holds {type(document).__name__}, expected COCO's images, annotations, …"
        )
    for key in ("images", "annotations", "categories"):
        if not isinstance(document.get(key), list):
            raise ConfigurationError(f"annotation file {path} has no list {key}; is it an instances_*.json of COCO?")
    return document


def read_index(root: Path, split: str, *, segmentations: bool = False) -> CocoIndex:
    """Read the annotations of a split.

    Raises:
        ConfigurationError: the file is missing or wrong, or names images that are not in the folder.
    """
    path = annotation_path(root, split)
    document = read_document(path)
    try:
        index = _index(path, image_folder(root, split), document, segmentations)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ConfigurationError(
            f"annotation file {path} is not as COCO writes it ({type(error).__name__}: {error}); trainscale data prepare names "
            "every fault"
        ) from error
    present = _names(index.folder)
    missing = [name for name in index.files if name not in present]
    if missing:
        raise ConfigurationError(
            f"{len(missing)} images of {path.name} are not in {index.folder}, first {missing[0]}; "
            "trainscale data prepare names them all"
        )
    return index


def _index(path: Path, folder: Path, document: dict[str, Any], segmentations: bool) -> CocoIndex:
    images = sorted(document["images"], key=lambda image: image["id"])
    ids = np.array([image["id"] for image in images], dtype=np.int64)
    if len(np.unique(ids)) != len(ids):
        raise ValueError("an image id occurs twice")
    categories = sorted(document["categories"], key=lambda category: category["id"])
    known = {category["id"] for category in categories}
    by_image = defaultdict(list)
    for item in document["annotations"]:
        if item["category_id"] not in known:
            raise ValueError(f"annotation {item['id']} has unknown category {item['category_id']}")
        if not item.get("iscrowd") and min(item["bbox"][2:]) >= SMALLEST_SIDE_PX:
            by_image[item["image_id"]].append(item)
    unknown = by_image.keys() - set(ids.tolist())
    if unknown:
        raise ValueError(f"annotations of image {min(unknown)}, which is not in the list of images")
    ordered = [item for image in images for item in by_image.get(image["id"], ())]
    boxes = np.array([item["bbox"] for item in ordered], dtype=np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    sizes = np.array([(image["width"], image["height"]) for image in images], dtype=np.int32).reshape(-1, 2)
    counts = [len(by_image.get(image["id"], ())) for image in images]
    clipped = boxes.clip(0, np.repeat(np.tile(sizes, 2), counts, axis=0))
    outside = np.flatnonzero((clipped[:, 2:] <= clipped[:, :2]).any(axis=1))
    if len(outside):
        raise ValueError(f"annotation {ordered[outside[0]]['id']} lies outside its image")
    return CocoIndex(
        folder=folder,
        annotations=path,
        ids=ids,
        files=[image["file_name"] for image in images],
        sizes=sizes,
        category_ids=[category["id"] for category in categories],
        category_names=[category["name"] for category in categories],
        offsets=np.cumsum([0, *counts]),
        boxes=clipped,
        categories=np.array([item["category_id"] for item in ordered], dtype=np.int64),
        segmentations=[item["segmentation"] for item in ordered] if segmentations else [],
    )


def _names(folder: Path) -> set[str]:
    if not folder.is_dir():
        raise ConfigurationError(f"image folder {folder} is missing; expected COCO 2017's layout (trainscale data prepare)")
    return {entry.name for entry in os.scandir(folder)}


def list_coco_images(root: Path, split: str) -> ImageList:
    """The images that a split's annotations name, for the manifest.

    Raises:
        ConfigurationError: as `read_index`.
    """
    return image_list(root, split, read_index(root, split))


def image_list(root: Path, split: str, index: CocoIndex) -> ImageList:
    """The images of an index as the manifest knows them."""
    folder = image_folder(root, split)
    sizes_bytes = {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
    return ImageList(
        root=root,
        classes=index.category_names,
        files=[f"{folder.name}/{name}" for name in index.files],
        labels=[0] * len(index.files),
        sizes_bytes=[sizes_bytes[name] for name in index.files],
    )
