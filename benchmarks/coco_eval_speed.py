"""faster-coco-eval beside pycocotools on 5,000 images of 100 detections, and what gathering them from ranks costs in memory.

Both evaluate the same random detections against the same random truth, in one process, one after the other. Gathering runs on
4 mpirun ranks: bytes that resident memory grew to at most on the first rank and on the last, when all ranks get everything and
when only the first does.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from training.coco_eval import CocoEvaluator, PackedDetections, results

IMAGES, FOUND, TRUTHS = 5_000, 100, 7
CATEGORIES = 80
SIDES_PX = (640, 480)
RANKS = 4
MASK_BYTES = 217
"""Of a mask's run lengths: the mean of diamonds as large as these boxes."""


def random_boxes(count: int, rng: np.random.Generator) -> np.ndarray:
    """[count, 4] left, top, width, height."""
    sides = rng.uniform(10, 200, (count, 2))
    return np.concatenate([rng.uniform(0, 1, (count, 2)) * (np.array(SIDES_PX) - sides), sides], axis=1)


def write_truth(path: Path, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An annotation file of boxes; returns them [images, truths, 4] with their categories."""
    boxes = random_boxes(IMAGES * TRUTHS, rng)
    categories = rng.integers(1, CATEGORIES + 1, len(boxes))
    annotations = [
        {
            "id": n + 1, "image_id": n // TRUTHS + 1, "category_id": int(categories[n]), "bbox": box, "area": box[2] * box[3],
            "iscrowd": 0,
        }
        for n, box in enumerate(boxes.tolist())
    ]  # fmt: skip
    width, height = SIDES_PX
    images = [{"id": n + 1, "file_name": f"{n}.jpg", "width": width, "height": height} for n in range(IMAGES)]
    kinds = [{"id": n, "name": str(n)} for n in range(1, CATEGORIES + 1)]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": kinds}))
    return boxes.reshape(IMAGES, TRUTHS, 4), categories.reshape(IMAGES, TRUTHS)


def random_detections(images: int, rng: np.random.Generator, mask_bytes: int = 0) -> PackedDetections:
    """FOUND detections in each image."""
    count = images * FOUND
    return PackedDetections(
        image_ids=np.repeat(np.arange(1, images + 1), FOUND),
        categories=rng.integers(1, CATEGORIES + 1, count).astype(np.int32),
        scores=rng.random(count).astype(np.float32),
        boxes=random_boxes(count, rng).astype(np.float32),
        mask_sizes=np.zeros((count if mask_bytes else 0, 2), dtype=np.int32),
        mask_ends=mask_bytes * np.arange(1, (count if mask_bytes else 0) + 1),
        masks=bytes(mask_bytes * count),
    )


def judge_s(annotations: Path, found: PackedDetections) -> tuple[float, np.ndarray]:
    """Seconds that pycocotools takes, loading included, and its twelve numbers."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    items = results(found, "bbox")
    start_s = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        evaluation = COCOeval(truth, truth.loadRes(items), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return time.perf_counter() - start_s, np.asarray(evaluation.stats)


def gather(way: str) -> None:
    """One rank of the measurement; prints how much its memory grew."""
    from results.settings import CommunicationSettings
    from training.communicator import connect
    from training.process import rank_place

    place = rank_place()
    communicator = connect("horovod", place, CommunicationSettings(backend="horovod"))
    own = random_detections(IMAGES // RANKS, np.random.default_rng(place.rank), MASK_BYTES)
    communicator.barrier()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gathered = communicator.gather_objects(own) if way == "all" else communicator.gather_objects_to_first(own)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"{way} {place.rank} {len(gathered)} {grown / 1024:.0f}", flush=True)
    communicator.barrier()
    communicator.close()


def grown_mib(way: str) -> dict[int, int]:
    """By rank."""
    from launch.mpi import find_mpi

    command = [str(find_mpi().mpirun), "--oversubscribe", "--bind-to", "none", "-np", str(RANKS)]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += [sys.executable, "-c", f"from benchmarks.coco_eval_speed import gather; gather('{way}')"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    rows = [line.split() for line in told.splitlines() if line.startswith(f"{way} ")]
    return {int(row[1]): int(row[3]) for row in rows}


def main() -> None:
    """Print the ratio, whether the numbers agree, and the memory of gathering."""
    for way, words in (("all", "to all ranks"), ("first", "to the first rank alone")):
        grown = grown_mib(way)
        print(f"  gathering {IMAGES} x {FOUND} with masks {words}: first rank +{grown[0]} MiB, last rank +{grown[RANKS - 1]} MiB")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        annotations = Path(folder) / "truth.json"
        boxes, categories = write_truth(annotations, rng)
        found = random_detections(IMAGES, rng)
        # Some are right, so that there is a curve to compute.
        found.boxes.reshape(IMAGES, FOUND, 4)[:, :TRUTHS] = boxes + rng.normal(0, 4, boxes.shape)
        found.categories.reshape(IMAGES, FOUND)[:, :TRUTHS] = categories
        start_s = time.perf_counter()
        ours = CocoEvaluator(annotations).evaluate(found, "bbox")
        ours_s = time.perf_counter() - start_s
        theirs_s, theirs = judge_s(annotations, found)
    print(
        f"  box AP of {IMAGES} images: faster-coco-eval {ours_s:.1f} s, pycocotools {theirs_s:.1f} s, ratio "
        f"{theirs_s / ours_s:.1f}; largest difference of the twelve numbers {np.abs(ours - theirs).max():.1e}"
    )
