"""The embedded detection data: whole, the same wherever they are written, and as odd as COCO."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from results.datasets import DATASETS
from training.data import digits_coco
from training.data.coco_index import SPLITS, annotation_path, image_folder, read_index


def document(root: Path, split: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(annotation_path(root, split).read_text())
    return found


def bitmap(annotation: dict[str, Any], image: dict[str, Any]) -> np.ndarray:
    """By COCO's own code."""
    coco = COCO()
    coco.imgs = {image["id"]: image}
    found: np.ndarray = coco.annToMask(annotation)
    return found


def test_scenes_are_written_alike_each_time(scenes_dir: Path, tmp_path: Path) -> None:
    digits_coco.write_scenes(tmp_path / "again", {"train": 12, "val": 5})
    for split, count in (("train", 12), ("val", 5)):
        folder, again = image_folder(scenes_dir, split), image_folder(tmp_path / "again", split)
        names = sorted(path.name for path in again.iterdir())
        assert len(names) == count
        assert filecmp.cmpfiles(folder, again, names, shallow=False) == (names, [], [])
        first = document(tmp_path / "again", split)
        kept = {image["id"] for image in first["images"]}
        assert first["annotations"] == [a for a in document(scenes_dir, split)["annotations"] if a["image_id"] in kept]


def test_polygons_run_lengths_crowds_and_empty_images_occur(scenes_dir: Path) -> None:
    training = document(scenes_dir, "train")
    single = [a for a in training["annotations"] if not a["iscrowd"]]
    crowds = [a for a in training["annotations"] if a["iscrowd"]]
    assert any(isinstance(a["segmentation"], list) for a in single)
    assert any(isinstance(a["segmentation"], dict) for a in single)
    assert crowds
    assert all(isinstance(a["segmentation"], dict) for a in crowds)  # as in COCO
    assert {image["id"] for image in training["images"]} - {a["image_id"] for a in training["annotations"]}
    assert {(image["width"], image["height"]) for image in training["images"]} == set(digits_coco.SIZES_PX)


@pytest.mark.parametrize("split", SPLITS)
def test_boxes_masks_and_areas_agree(scenes_dir: Path, split: str) -> None:
    content = document(scenes_dir, split)
    images = {image["id"]: image for image in content["images"]}
    assert len({a["id"] for a in content["annotations"]}) == len(content["annotations"]) > 20
    for image in images.values():
        with Image.open(image_folder(scenes_dir, split) / image["file_name"]) as stored:
            assert (stored.format, stored.mode, stored.size) == ("JPEG", "RGB", (image["width"], image["height"]))
    for annotation in content["annotations"]:
        mask = bitmap(annotation, images[annotation["image_id"]])
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        edges = [columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]]
        np.testing.assert_allclose(edges, annotation["bbox"], atol=1)
        # Polygons run along pixel borders with corners cut, so COCO's fill differs from the pixels by a few at the rim.
        rim = 2 * (annotation["bbox"][2] + annotation["bbox"][3])
        assert abs(float(mask.sum()) - annotation["area"]) <= (rim if isinstance(annotation["segmentation"], list) else 0)


def test_the_digits_themselves_are_drawn(scenes_dir: Path) -> None:
    """Ink under a mask stands out from the ground around it."""
    content = document(scenes_dir, "train")
    images = {image["id"]: image for image in content["images"]}
    contrasts = []
    for annotation in content["annotations"]:
        image = images[annotation["image_id"]]
        pixels = np.asarray(Image.open(image_folder(scenes_dir, "train") / image["file_name"]).convert("L"), dtype=float)
        mask = bitmap(annotation, image).astype(bool)
        contrasts.append(abs(pixels[mask].mean() - np.median(pixels)))
    assert np.median(contrasts) > 60


def test_validation_scenes_show_other_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every fifth sample relabelled, its label is seen in validation alone."""
    pixels, labels = digits_coco.load_verified()
    told_apart = np.where(np.arange(len(labels)) % 5 == 0, 7, 3).astype(np.uint8)
    monkeypatch.setattr(digits_coco, "load_verified", lambda: (pixels, told_apart))
    monkeypatch.setattr(digits_coco, "CROWD_SHARE", 0.0)  # a crowd shows the digits of one drawn class
    digits_coco.write_scenes(tmp_path / "told", {"train": 6, "val": 6})
    classes = {split: {a["category_id"] for a in document(tmp_path / "told", split)["annotations"]} for split in SPLITS}
    assert classes == {"train": {4}, "val": {8}}


def test_run_lengths_are_cocos() -> None:
    rng = np.random.default_rng(0)
    for mask in (rng.random((9, 7)) < 0.4, np.ones((3, 4), dtype=bool), np.zeros((3, 4), dtype=bool)):
        packed = coco_mask.frPyObjects(digits_coco._run_lengths(mask), *mask.shape)
        np.testing.assert_array_equal(coco_mask.decode(packed), mask)


@pytest.mark.slow
def test_the_whole_data_set_has_the_announced_sizes(tmp_path: Path) -> None:
    root = tmp_path / "digits-coco"
    digits_coco.prepare(root)
    training, validation = (read_index(root, split) for split in SPLITS)
    facts = DATASETS["digits-coco"]
    assert (len(training), len(validation)) == (1200, 240)
    assert int((training.counts() > 0).sum()) == facts.train_samples
    assert len(validation) == facts.validation_samples
    stamp = annotation_path(root, "val").stat().st_mtime_ns
    digits_coco.prepare(root)  # written once
    assert annotation_path(root, "val").stat().st_mtime_ns == stamp
