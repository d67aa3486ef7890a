"""The embedded data, and the three input sources over them."""

from __future__ import annotations

import filecmp
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from results.yaml_file import ConfigurationError
from tests.training.support import make_spec
from training.data import digits
from training.data.classification import open_classification
from training.data.folder import check_readable, data_digest, list_split
from training.workload import Shard

CPU = torch.device("cpu")


def test_digits_are_all_there_and_splits_share_no_sample(digits_dir: Path) -> None:
    train, val = list_split(digits_dir, "train"), list_split(digits_dir, "val")
    assert (len(train.files), len(val.files)) == (1437, 360)  # 1,797 samples of sklearn.datasets.load_digits
    samples = [Path(file).stem for file in train.files + val.files]
    assert len(set(samples)) == 1797
    from sklearn.datasets import load_digits

    target = load_digits().target
    assert all(target[int(Path(f).stem)] == label for f, label in zip(val.files, val.labels, strict=True))


def test_digits_are_written_alike_each_time_and_once(digits_dir: Path, tmp_path: Path) -> None:
    again = tmp_path / "digits"
    digits.prepare(again)
    assert data_digest(again) == data_digest(digits_dir) != ""
    names = list_split(again, "train").files[:50]
    assert filecmp.cmpfiles(again, digits_dir, names, shallow=False) == (names, [], [])
    stamp = (again / names[0]).stat().st_mtime_ns
    digits.prepare(again)
    assert (again / names[0]).stat().st_mtime_ns == stamp


def epoch_labels(root: Path, source: str, shard: Shard, epochs: int, seed: int = 3) -> list[list[int]]:
    """Labels that a rank trains on, epoch by epoch; padding is cut off."""
    settings = make_spec(root, local_batch_size=8, input__source=source).settings
    training = open_classification(root, settings, shard, CPU, seed).training
    found = []
    for epoch in range(1, epochs + 1):
        labels: list[int] = []
        for batch in training.epoch(epoch):
            assert batch.inputs.shape[1:] == (3, 64, 64)
            labels += batch.targets[: batch.samples].tolist()
        found.append(labels)
    return found


@pytest.mark.parametrize("source", ["dali", "torch"])
def test_ranks_share_each_epoch_without_gap_or_overlap(few_digits_dir: Path, source: str) -> None:
    expected = Counter(list_split(few_digits_dir, "train").labels)
    ranks = [epoch_labels(few_digits_dir, source, Shard(index=index, count=3), 2) for index in range(3)]
    for epoch in range(2):
        assert Counter(label for rank in ranks for label in rank[epoch]) == expected
    assert ranks[0][0] != ranks[0][1]  # reshuffled


@pytest.mark.parametrize("source", ["dali", "torch"])
def test_order_depends_on_the_seed_alone(few_digits_dir: Path, source: str) -> None:
    one = Shard(index=0, count=1)
    assert epoch_labels(few_digits_dir, source, one, 1) == epoch_labels(few_digits_dir, source, one, 1)
    assert epoch_labels(few_digits_dir, source, one, 1) != epoch_labels(few_digits_dir, source, one, 1, seed=4)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_source_announces_the_batches_it_yields(few_digits_dir: Path, count: int) -> None:
    # Starting DataLoader workers takes seconds, so torch is tried with few ranks.
    for source in ("dali", "synthetic", *(["torch"] if count <= 2 else [])):
        settings = make_spec(few_digits_dir, local_batch_size=7, input__source=source).settings
        shards = [Shard(index=index, count=count) for index in range(count)]
        sizes = []
        for shard in shards:
            training = open_classification(few_digits_dir, settings, shard, CPU, 1).training
            batches = list(training.epoch(1))
            assert len(batches) == training.batches_per_epoch
            sizes.append([(batch.samples, batch.global_samples) for batch in batches])
        totals = [sum(rank[step][0] for rank in sizes) for step in range(len(sizes[0]))]
        assert totals == [pair[1] for pair in sizes[0]]
        assert sum(totals) == training.samples_per_epoch


def test_dali_and_torch_decode_and_normalise_alike(few_digits_dir: Path) -> None:
    pictures = {}
    for source in ("dali", "torch"):
        settings = make_spec(few_digits_dir, input__source=source).settings
        validation = open_classification(few_digits_dir, settings, Shard(index=0, count=1), CPU, 1).validation
        pictures[source] = torch.cat([batch.inputs for batch in validation])
    assert pictures["dali"].shape == pictures["torch"].shape == (31, 3, 64, 64)
    # Two JPEG decoders may differ by a few of 255 levels; 0.02 is about one level after normalisation.
    assert float((pictures["dali"] - pictures["torch"]).abs().mean()) < 0.02


def test_truncated_jpeg_and_text_named_jpg_are_named(few_digits_dir: Path, tmp_path: Path) -> None:
    import shutil

    root = tmp_path / "broken"
    shutil.copytree(few_digits_dir, root)
    whole = list_split(root, "train").files
    (root / whole[0]).write_bytes((root / whole[0]).read_bytes()[:300])
    (root / "train/3/note.jpg").write_text("this is no picture")
    with pytest.raises(ConfigurationError, match="unreadable images") as caught:
        check_readable(list_split(root, "train"), skip_broken=False)
    assert whole[0] in str(caught.value)
    assert "train/3/note.jpg" in str(caught.value)
    kept = check_readable(list_split(root, "train"), skip_broken=True)
    assert set(kept.files) == set(whole) - {whole[0]}


@pytest.mark.parametrize(("missing", "words"), [("train", "is missing"), ("classes", "no class folders"), ("images", "no .jpg")])
def test_a_wrong_folder_is_named(tmp_path: Path, missing: str, words: str) -> None:
    if missing == "classes":
        (tmp_path / "train").mkdir()
    if missing == "images":
        (tmp_path / "train" / "0").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=words) as caught:
        list_split(tmp_path, "train")
    assert str(tmp_path / "train") in str(caught.value)


def test_png_named_jpg_is_kept(few_digits_dir: Path, tmp_path: Path) -> None:
    """ImageNet's n02105855_2933.JPEG is a PNG file."""
    from PIL import Image

    target = tmp_path / "train" / "0"
    target.mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(target / "a.jpg", format="PNG")
    images = list_split(tmp_path, "train")
    assert check_readable(images, skip_broken=False) == images
