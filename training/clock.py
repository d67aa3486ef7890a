"""Named time accounts on one monotonic clock: every moment belongs to exactly one account, so that they add up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

AccountName = Literal["initialization", "training", "evaluation", "checkpoint_and_logging", "restart"]
ON_THE_CLOCK: tuple[AccountName, ...] = ("training", "evaluation", "checkpoint_and_logging", "restart")


class RunClock:
    """Time of one rank, from its construction. The first account is `initialization`."""

    def __init__(self, synchronize: Callable[[], None] | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """`synchronize` waits for the device's queued work; it is called at account boundaries only."""
        self._synchronize = synchronize
        self._now = now
        self._account: AccountName = "initialization"
        self._since_s = now()
        self.seconds_s: dict[AccountName, float] = dict.fromkeys(("initialization", *ON_THE_CLOCK), 0.0)

    def switch(self, account: AccountName) -> None:
        """Charge the time since the last switch to the account that was open, and open `account`."""
        if self._synchronize is not None:
            self._synchronize()
        now_s = self._now()
        self.seconds_s[self._account] += now_s - self._since_s
        self._account, self._since_s = account, now_s

    @contextmanager
    def account(self, name: AccountName) -> Iterator[None]:
        """Open `name` for the block, then go back to the account that was open."""
        before = self._account
        self.switch(name)
        try:
            yield
        finally:
            self.switch(before)

    def add(self, account: AccountName, seconds_s: float) -> None:
        """Charge time that passed in an earlier process of the same run."""
        self.seconds_s[account] += seconds_s

    def on_the_clock_s(self) -> float:
        """Time since run_start, over all accounts but initialization."""
        self.switch(self._account)
        return sum(self.seconds_s[name] for name in ON_THE_CLOCK)
