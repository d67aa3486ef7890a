"""A training rank that is asked to stop at a place that the test chooses.

python -m tests.training.ranks.stopped RUN_DIR PLACE RANKS, with RANKS such as `0,1`: those that get SIGTERM. PLACE is one of
    step:N          in the step after N steps
    evaluation      at the start of the first evaluation
    killed          the same, and killed when a checkpoint is written
    frozen:N        the other ranks stand still in the step after N steps, and never come to an agreement
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from typing import Any

import training.__main__ as rank_program
from results import events
from training import stop
from training.process import rank_place
from training.trainer import Trainer


def ask() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def at_step(number: int, act: Any) -> None:
    whole_step = Trainer._step

    def step(trainer: Trainer, *arguments: Any) -> Any:
        if trainer.progress.step == number:
            act()
        return whole_step(trainer, *arguments)

    Trainer._step = step  # type: ignore[method-assign]


def at_evaluation(*, killed: bool) -> None:
    whole_evaluation = Trainer.evaluate

    def evaluate(trainer: Trainer) -> Any:
        ask()
        while not trainer.asked_to_stop():
            time.sleep(0.01)
        while killed:
            if any(event["event"] == "checkpoint" for event in events.read(trainer.run_dir.path)):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.01)
        return whole_evaluation(trainer)

    Trainer.evaluate = evaluate  # type: ignore[method-assign]


def main() -> None:
    place, _, number = sys.argv[2].partition(":")
    mine = rank_place().rank in map(int, sys.argv[3].split(","))
    stop.ASK_EVERY_S = 0.0  # after each step, however fast
    if place == "step" and mine:
        at_step(int(number), ask)
    elif place == "frozen":
        rank_program.StopRequest = functools.partial(stop.StopRequest, agree_within_s=1.0)  # type: ignore[misc]
        later = threading.Timer(1.0, ask)
        at_step(int(number), later.start if mine else lambda: os.kill(os.getpid(), signal.SIGSTOP))
    elif place in ("evaluation", "killed") and mine:
        at_evaluation(killed=place == "killed")
    rank_program.main()


if __name__ == "__main__":
    main()
