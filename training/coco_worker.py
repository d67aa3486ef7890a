"""COCO's arithmetic in a process of its own, so that training goes on meanwhile.

`python -m training.coco_worker ANNOTATIONS` takes pickled (kinds, detections) from its parent and answers each with a line of
JSON; it ends when its parent does. It imports no torch.
"""

from __future__ import annotations

import json
import pickle
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.coco_eval import CocoEvaluator, Kind, PackedDetections


class CocoWorker:
    """The parent's side: one evaluation at a time."""

    def __init__(self, annotations: Path) -> None:
        # A process and not a thread: most of the arithmetic holds Python's lock, which the training loop needs.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "training.coco_worker", str(annotations)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def start(self, packed: PackedDetections, kinds: Sequence[Kind]) -> None:
        """Begin the next evaluation.

        Raises:
            RuntimeError: the process has ended.
        """
        try:
            pickle.dump((tuple(kinds), packed), self._questions)
            self._questions.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def ready(self) -> bool:
        """`take` would not wait."""
        return bool(select.select([self._answers], [], [], 0)[0])

    def take(self) -> dict[Kind, np.ndarray]:
        """COCO's twelve numbers of each kind; waits for them.

        Raises:
            RuntimeError: the process has ended.
        """
        line = self._answers.readline()
        if not line:
            raise self._ended()
        return {kind: np.array(numbers) for kind, numbers in json.loads(line).items()}

    def _ended(self) -> RuntimeError:
        return RuntimeError(f"the process that evaluates COCO's metrics ended with status {self._process.wait()}")


def main() -> int:
    """Exit status 0 when the parent has no more questions."""
    evaluator = CocoEvaluator(Path(sys.argv[1]))
    while True:
        try:
            kinds, packed = pickle.load(sys.stdin.buffer)
        except EOFError:
            return 0
        answer = {kind: evaluator.evaluate(packed, kind).tolist() for kind in kinds}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
