"""`data prepare coco` and `imagenet`: every fault of a folder named, before any run, and what training copes with."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from results.yaml_file import ConfigurationError
from tests.training.support import ROOT, make_spec
from tests.training.test_detection_data import batches, opened
from training.data import coco, imagenet
from training.data.classification import open_classification
from training.data.coco_index import read_index
from training.data.folder import data_digest
from training.workload import Shard


def prepare(name: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launch.cli", "data", "prepare", name, "--root", str(root)],
        cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=240,
    )  # fmt: skip


class Folder:
    """A COCO folder of a few scenes, to be damaged."""

    def __init__(self, root: Path, whole: Path) -> None:
        self.root = root
        shutil.copytree(whole, root)
        (root / "manifest.json").unlink()
        self.path = root / "annotations/instances_train2017.json"
        self.document: dict[str, Any] = json.loads(self.path.read_text())

    def save(self) -> None:
        self.path.write_text(json.dumps(self.document))

    def image(self, number: int) -> Path:
        return self.root / "train2017" / self.document["images"][number]["file_name"]

    def save_as(self, number: int, mode: str, form: str) -> None:
        with Image.open(self.image(number)) as stored:
            converted = stored.convert(mode)
        converted.save(self.image(number), format=form)


@pytest.fixture
def folder(scenes_dir: Path, tmp_path: Path) -> Folder:
    return Folder(tmp_path / "coco", scenes_dir)


def faults(root: Path) -> list[str]:
    return (root / "faults.txt").read_text().splitlines()


def test_every_fault_is_named_and_counted(folder: Folder) -> None:
    images, annotations = folder.document["images"], folder.document["annotations"]
    folder.image(0).unlink()
    folder.image(1).write_bytes(folder.image(1).read_bytes()[:400])
    folder.image(2).write_text("this is no picture")
    folder.save_as(3, "L", "JPEG")
    folder.save_as(4, "CMYK", "JPEG")
    folder.save_as(5, "RGB", "PNG")
    images[6] |= {"width": images[6]["width"] + 9}
    twin = next(
        image for image in images[11:20] if (image["width"], image["height"]) == (images[7]["width"], images[7]["height"])
    )
    twin |= {"id": images[7]["id"]}
    images[10] |= {"file_name": images[9]["file_name"]}
    images.append({"id": 5_000})
    images.append({"id": 5_001, "file_name": 7, "width": 1, "height": 1})
    single = [a for a in annotations if a["image_id"] > 20 and not a["iscrowd"]]
    single[0] |= {"bbox": [10.0, 10, 0, 5]}
    single[1] |= {"bbox": [500.0, 10, 20, 20]}
    single[2] |= {"bbox": [-5.0, 10, 20, 20]}
    single[3] |= {"bbox": [1.0, 2]}
    single[4] |= {"bbox": [float("nan"), 1, 2, 3]}
    single[5] |= {"category_id": 77}
    single[6] |= {"image_id": 999_999}
    single[8] |= {"id": single[7]["id"]}
    del single[9]["bbox"]
    folder.document["categories"].append({"id": 1, "name": "again"})
    folder.save()
    done = prepare("coco", folder.root)
    assert done.returncode == 2
    expected = {
        "missing image": 1, "unreadable image": 2, "grey image": 1, "CMYK image": 1, "PNG named as a JPEG": 1,
        "size unlike the annotations": 1, "duplicate image id": 1, "image listed twice": 1, "incomplete entry": 2,
        "entry of a wrong type": 1, "box without area": 1, "box outside the image": 1, "box beyond the border": 1,
        "box that is no box": 2, "unknown category": 1, "duplicate annotation id": 1, "duplicate category id": 1,
    }  # fmt: skip
    found = faults(folder.root)
    counts = Counter(line.split(": ")[0] for line in found)
    # The image whose id was given away has its annotations left over, beside the one sent nowhere.
    assert counts.pop("unknown image") >= 1
    assert counts == expected
    for kind, count in expected.items():
        assert f"{count} x {kind}" in done.stderr
    for number in (0, 1, 2, 3, 4, 5, 6):
        assert any(folder.image(number).name in line for line in found)
    for kind, where in (
        ("box without area", single[0]["id"]), ("box outside the image", single[1]["id"]),
        ("box beyond the border", single[2]["id"]), ("unknown category", single[5]["id"]),
        ("unknown image", single[6]["id"]), ("duplicate annotation id", single[7]["id"]),
    ):  # fmt: skip
        assert any(line.startswith(f"{kind}: instances_train2017.json: annotation {where}") for line in found)
    assert "Traceback" not in done.stderr
    assert "faults.txt" in done.stderr.splitlines()[-1]
    assert not (folder.root / "manifest.json").exists()


def test_what_training_copes_with_is_told_and_passes(folder: Folder) -> None:
    folder.save_as(3, "L", "JPEG")
    folder.save_as(4, "CMYK", "JPEG")
    folder.save_as(5, "RGB", "PNG")
    single = [a for a in folder.document["annotations"] if a["image_id"] > 20 and not a["iscrowd"]]
    single[0] |= {"bbox": [10.0, 10, 0, 5]}
    single[2] |= {"bbox": [-5.0, 10, 20, 20]}
    folder.save()
    done = prepare("coco", folder.root)
    assert done.returncode == 0, done.stderr
    assert "train: 107 images, COCO 2017 has 118287" in done.stdout
    for words in (
        "1 x grey image (decoded to three equal channels)", "1 x CMYK image (converted to RGB)",
        "1 x PNG named as a JPEG (decoded by its content)", "1 x box without area (left out)",
        "1 x box beyond the border (clipped)",
    ):  # fmt: skip
        assert words in done.stdout
    assert len(faults(folder.root)) == 5
    assert data_digest(folder.root)
    # And so it does: the box without area is gone, the other ends at the border.
    index = read_index(folder.root, "train")
    assert len(index.boxes) == sum(not a["iscrowd"] for a in folder.document["annotations"]) - 1
    assert float(index.boxes.min()) == 0
    for name in ("ssd", "maskrcnn"):
        found = batches(opened(folder.root, name, "dali")[1])
        assert sum(batch.samples for batch in found) == 103
    boxes = torch.cat([target["boxes"] for batch in found for target in batch.targets[: batch.samples]])
    assert len(boxes) == len(index.boxes)
    assert float(boxes.min()) == 0


def test_a_whole_folder_has_no_faults(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.root / "faults.txt").write_text("of an earlier check")
    coco.prepare(folder.root)
    assert "no faults" in capsys.readouterr().out
    assert faults(folder.root) == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda root: (root / "annotations/instances_val2017.json").unlink(), "instances_val2017.json is missing"),
        (lambda root: (root / "annotations/instances_val2017.json").write_text("{"), "is no JSON"),
        (lambda root: (root / "annotations/instances_val2017.json").write_text("[1]"), "holds list"),
        (lambda root: (root / "annotations/instances_val2017.json").write_text('{"info": 1}'), "has no list images"),
        (lambda root: shutil.rmtree(root / "val2017"), "val2017 is missing"),
    ],
)
def test_a_wrong_folder_is_named(folder: Folder, damage: Callable[[Path], None], words: str) -> None:
    damage(folder.root)
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        coco.prepare(folder.root)


def imagenet_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three classes of three images under ImageNet's names, and facts to match."""
    rng = np.random.default_rng(0)
    for split, number in (("train", 3), ("val", 1)):
        for name in ("n01440764", "n01443537", "n02105855"):
            (root / split / name).mkdir(parents=True)
            for count in range(number):
                Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(
                    root / split / name / f"{name}_{count}.JPEG"
                )
    monkeypatch.setattr(imagenet, "CLASSES", 3)
    facts = imagenet.DATASETS["imagenet"]
    assert (facts.train_samples, facts.validation_samples) == (1_281_167, 50_000)  # ILSVRC2012
    from dataclasses import replace

    monkeypatch.setitem(imagenet.DATASETS, "imagenet", replace(facts, train_samples=9, validation_samples=3))
    return root


def odd(path: Path, mode: str, form: str) -> None:
    with Image.open(path) as image:
        converted = image.convert(mode)
    converted.save(path, format=form)


def test_imagenets_own_odd_files_are_listed_and_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """n02105855_2933.JPEG is a PNG file, and 22 training images are CMYK."""
    root = imagenet_folder(tmp_path, monkeypatch)
    odd(root / "train/n02105855/n02105855_0.JPEG", "RGB", "PNG")
    odd(root / "train/n01440764/n01440764_1.JPEG", "CMYK", "JPEG")
    odd(root / "val/n01440764/n01440764_0.JPEG", "L", "JPEG")
    imagenet.prepare(root)
    assert faults(root) == [
        "CMYK image: train/n01440764/n01440764_1.JPEG", "PNG named as a JPEG: train/n02105855/n02105855_0.JPEG",
        "grey image: val/n01440764/n01440764_0.JPEG",
    ]  # fmt: skip
    assert "1 x CMYK image (converted to RGB)" in capsys.readouterr().out
    settings = make_spec(root, classes=3, local_batch_size=3, evaluation__local_batch_size=3).settings
    data = open_classification(root, settings, Shard(index=0, count=1), torch.device("cpu"), 1)
    assert sum(batch.samples for batch in data.training.epoch(1)) == 9
    assert sum(int(batch.samples) for batch in data.validation) == 3


def test_a_wrong_imagenet_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = imagenet_folder(tmp_path, monkeypatch)
    (root / "train/n01440764/n01440764_1.JPEG").unlink()
    (root / "val/n02105855/n02105855_0.JPEG").write_bytes(b"\xff\xd8\xff")
    (root / "val/n00000001").mkdir()
    shutil.copy(root / "val/n01440764/n01440764_0.JPEG", root / "val/n00000001/one.JPEG")
    with pytest.raises(ConfigurationError, match=r"2 x wrong number of images") as caught:
        imagenet.prepare(root)
    assert str(root / "faults.txt") in str(caught.value)
    assert faults(root) == [
        "wrong number of images: train has 8, expected 9",
        "wrong number of classes: val has 4 class folders, expected 3",
        "wrong number of images: val has 4, expected 3",
        "unreadable image: val/n02105855/n02105855_0.JPEG",
    ]
    assert not (root / "manifest.json").exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    done = prepare("imagenet", tmp_path / "nothing")
    assert done.returncode == 2
    assert f"{tmp_path}/nothing/train is missing" in done.stderr
