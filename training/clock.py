"""Named time accounts on one monotonic clock: every moment belongs to exactly one account, so that they add up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

AccountName = Literal["initialization", "training", "evaluation", "checkpoint_and_logging", "restart"]
ON_THE_CLOCK: tuple[AccountName, ...] = ("training", "evaluation", "checkpoint_and_logging", "restart")


class RunClock:
    """Time of one rank, from its construction. The first account is `initialization`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._synchronize: Callable[[], None] | None = None
        self._now = now
        self._account: AccountName | None = "initialization"
        self._since_s = now()
        self.seconds_s: dict[AccountName, float] = dict.fromkeys(("initialization", *ON_THE_CLOCK), 0.0)

    def synchronize_with(self, device: Any) -> None:
        """Wait for a GPU's queued work at account boundaries (and only there); a torch.device."""
        if device.type == "cuda":
            import torch

            self._synchronize = torch.cuda.synchronize

    def switch(self, account: AccountName | None) -> None:
        """Charge the time since the last switch to the account that was open, and open `account`; None stops the clock."""
        if self._synchronize is not None:
            self._synchronize()
        now_s = self._now()
        if self._account is not None:
            self.seconds_s[self._account] += now_s - self._since_s
        self._account, self._since_s = account, now_s

    def stop(self) -> None:
        """The run is over: what follows belongs to no account."""
        self.switch(None)

    def elapsed_s(self) -> float:
        """Time in all accounts up to now."""
        self.switch(self._account)
        return sum(self.seconds_s.values())

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

    def so_far_s(self) -> dict[AccountName, float]:
        """Time in each account up to now; changes nothing, so that any thread may ask."""
        account, since_s = self._account, self._since_s
        found = dict(self.seconds_s)
        if account is not None:
            found[account] += self._now() - since_s
        return found

    def on_the_clock_s(self) -> float:
        """Time since run_start, over all accounts but initialization."""
        self.switch(self._account)
        return sum(self.seconds_s[name] for name in ON_THE_CLOCK)
