"""A thread that writes logs and metrics, so that a file system that hangs does not stop the rank."""

import queue
import threading


class BackgroundWriter:
    """A thread that calls `do(item)` for one item after another; `do` handles its own errors.

    It is a daemon: a file system that never answers must not keep a finished program alive.
    """

    def __init__(self, name, do):
        self._do, self._items, self._unfinished_num = do, queue.SimpleQueue(), 0
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, item):
        """Queue an item, not None."""
        with self._changed:
            self._unfinished_num += 1
        self._items.put(item)

    def flush(self, within_s):
        """Wait at most this long until all is done; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished_num, within_s)

    def close(self, within_s):
        """Let the thread end when all is done; wait and return as `flush` does."""
        self._items.put(None)
        return self.flush(within_s)

    def _work(self):
        while (item := self._items.get()) is not None:
            self._do(item)
            with self._changed:
                self._unfinished_num -= 1
                self._changed.notify_all()
