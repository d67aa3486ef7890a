"""Prepare the next items in a thread while the present one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_END = object()


def prefetched(items: Iterable[T], depth: int) -> Iterator[T]:
    """`items` in order, up to `depth` of them made ahead of time; an error in making one is raised here.

    A consumer that stops early ends the thread.
    """
    ready: queue.Queue[object] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_END)
        except BaseException as error:
            put(_Failure(error))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if item is _END:
                return
            if isinstance(item, _Failure):
                raise item.error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
