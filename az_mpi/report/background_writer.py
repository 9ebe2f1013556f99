"""Writing what a run goes on without (logs, metrics) in a thread: where its file system hangs, the rank does not."""

import queue
import threading


class BackgroundWriter:
    """Has a thread call `do(item)` for one item after the other; `do` handles its own errors.

    The thread is a daemon: a file system that never answers must not keep a program alive that has ended.
    """

    def __init__(self, name, do):
        self._do, self._items, self._unfinished_num = do, queue.SimpleQueue(), 0
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, item):
        """Let the thread do this, which is not None, after all that came before."""
        with self._changed:
            self._unfinished_num += 1
        self._items.put(item)

    def flush(self, within_s):
        """Wait until all is done, for so long at most, and return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished_num, within_s)

    def close(self, within_s):
        """End the thread when all is done; wait and return as `flush` does."""
        self._items.put(None)
        return self.flush(within_s)

    def _work(self):
        while (item := self._items.get()) is not None:
            self._do(item)
            with self._changed:
                self._unfinished_num -= 1
                self._changed.notify_all()
