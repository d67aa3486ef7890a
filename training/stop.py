"""A run that is asked to stop: each rank hears of it by a signal, and all stop after the same step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from training.communicator import Communicator

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""SIGUSR1 is what mpirun and srun hand on to their ranks without ending them."""
AGREE_WITHIN_S = 25.0
"""Between the signal and the step after which all ranks stop. A peer that does not answer must not hold the others until Slurm
kills them (KillWait, 30 s), or nobody is left to say how the run ended."""
ASK_EVERY_S = 1.0


class StopAgreed(Exception):
    """All ranks stop here."""


class StopRequest:
    """Whether this rank was asked to stop.

    Until `hold` there is nothing to lose, and the process leaves at once. From then on the request waits for the agreement of
    the ranks, and leaves without it after `AGREE_WITHIN_S`.

    A thread listens, since Python runs handlers in the main thread alone, and that may stand in an exchange with a dead peer.
    """

    def __init__(self, leave: Callable[[], object], agree_within_s: float = AGREE_WITHIN_S) -> None:
        self._leave, self._agree_within_s = leave, agree_within_s
        self._held, self._asked, self._over = threading.Event(), threading.Event(), threading.Event()
        self._acting = threading.Lock()
        self._action: Callable[[], None] | None = None

    def listen(self) -> None:
        """Take the signals; called once, in the main thread."""
        heard, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _no_more_than_wake)
        threading.Thread(target=self._watch, args=(heard,), name="stop request", daemon=True).start()

    def _watch(self, heard: int) -> None:
        # Signals of others come here too: torch's loader wants to know of its workers' ends.
        while os.read(heard, 1)[0] not in SIGNALS:
            continue
        self._asked.set()
        leave_at_s = time.monotonic() + self._agree_within_s
        self._act()
        if not self._held.is_set() or not self._over.wait(max(leave_at_s - time.monotonic(), 0.0)):
            self._leave()

    def _act(self) -> None:
        with self._acting:
            action, self._action = self._action, None
            if action is not None:
                action()

    @contextmanager
    def at_once(self, action: Callable[[], None]) -> Iterator[None]:
        """Within this context a request is answered by `action` without delay, in another thread; its end waits for that."""
        with self._acting:
            self._action = action
        if self.asked():
            self._act()
        try:
            yield
        finally:
            with self._acting:
                self._action = None

    def hold(self) -> None:
        """From now on there is work that a checkpoint must keep."""
        self._held.set()

    def asked(self) -> bool:
        """This rank was asked to stop; others may not have been."""
        return self._asked.is_set()

    def over(self) -> None:
        """The ranks have agreed, or the run has ended by itself: what is left to do may take its time."""
        self._over.set()


def _no_more_than_wake(number: int, frame: FrameType | None) -> None:
    return


@dataclass(frozen=True, slots=True)
class Agreed:
    """What all ranks know after the same step."""

    stop: bool = False
    """Some rank was asked to."""
    evaluated: bool = False
    """The metrics of an evaluation beside training are there."""


class StepAgreement:
    """How ranks of which only some know of something agree to act on it after the same step.

    The question costs an exchange of three numbers, so it is put about once in `ASK_EVERY_S`. Ranks must put it after the same
    step, and their clocks differ: with the answer each learns the longest time that a rank took since the last question, and
    all reckon from that after how many steps comes the next.
    """

    def __init__(self, communicator: Communicator, asked: Callable[[], bool], evaluated: Callable[[], bool]) -> None:
        self._communicator, self._asked, self._evaluated = communicator, asked, evaluated
        self._steps = self._left = 1
        self._since_s = time.monotonic()

    def begin(self) -> None:
        """Steps begin: what passed since the last one, such as an evaluation, says nothing of their time."""
        self._left = self._steps
        self._since_s = time.monotonic()

    def after_step(self) -> Agreed:
        """What some rank knows; the same on each of them."""
        self._left -= 1
        if self._left:
            return Agreed()
        now_s = time.monotonic()
        own = [float(self._asked()), float(self._evaluated()), now_s - self._since_s]
        asked, evaluated, longest_s = self._communicator.largest(own)
        # Doubled at most, since the first step of a run is no measure of the others.
        self._steps = max(1, min(2 * self._steps, int(ASK_EVERY_S * self._steps / max(longest_s, 1e-6))))
        self._left, self._since_s = self._steps, now_s
        return Agreed(stop=bool(asked), evaluated=bool(evaluated))
