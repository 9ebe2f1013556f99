"""A thread that writes logs and metrics, so that a file system that hangs does not stop the rank."""

import queue
import threading
from collections.abc import Callable
from typing import Any


class BackgroundWriter:
    """A thread that calls `do(item)` for one item after another; `do` must not raise.

    It is a daemon, since a file system that hangs must not keep a finished program alive.
    """

    def __init__(self, name: str, do: Callable[[Any], object]):
        self._do = do
        self._items = queue.SimpleQueue()
        self._num_unfinished = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, item: Any) -> None:
        """Queue an item, not None."""
        with self._changed:
            self._num_unfinished += 1
        self._items.put(item)

    def flush(self, within_s: float) -> bool:
        """Wait at most this long until all items are done; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._num_unfinished, within_s)

    def close(self, within_s: float) -> bool:
        """Let the thread end once all items are done. Wait for that, and return whether they are, as `flush` does."""
        self._items.put(None)
        return self.flush(within_s)

    def _work(self):
        while (item := self._items.get()) is not None:
            self._do(item)
            with self._changed:
                self._num_unfinished -= 1
                self._changed.notify_all()
