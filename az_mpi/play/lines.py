"""Lines from a file descriptor, of which one can ask whether there are more without waiting for them."""

import os
import select

LINE_BYTES_MAX = 2**16
_AT_ONCE = 2**16


class Lines:
    """The lines that come in at a file descriptor: a pipe, a terminal or a file. No thread, and nothing else may read
    there."""

    def __init__(self, descriptor: int = 0):
        self.descriptor, self._bytes, self._ended = descriptor, b"", False

    def next(self) -> str | None:
        """Wait for a line and return it without its end; None at the end of input. What is over LINE_BYTES_MAX in a
        line is dropped, and characters that are not ASCII become question marks."""
        line = None
        while b"\n" not in self._bytes and not self._ended:
            if len(self._bytes) > LINE_BYTES_MAX:
                line, self._bytes = line or self._bytes[:LINE_BYTES_MAX], b""
            self._read()
        if self._ended and not self._bytes and line is None:
            return None
        first, _, self._bytes = self._bytes.partition(b"\n")
        return (line or first[:LINE_BYTES_MAX]).decode("ascii", "replace").replace("\ufffd", "?")

    def wait(self, longest_s: float) -> bool:
        """Return whether there is something that `next` would begin with, or the end of input, after at most
        longest_s seconds."""
        if self._bytes or self._ended:
            return True
        return bool(select.select([self.descriptor], [], [], max(longest_s, 0.0))[0])

    def waiting(self) -> bool:
        """Return what `wait` would, at once."""
        return self.wait(0.0)

    def ends(self, last: str) -> bool:
        """Return at once whether input has ended, or the next line is the word `last`, perhaps with a number before
        it."""
        while b"\n" not in self._bytes and not self._ended and len(self._bytes) <= LINE_BYTES_MAX:
            if not select.select([self.descriptor], [], [], 0)[0]:
                return False
            self._read()
        first, newline, _ = self._bytes.partition(b"\n")
        words = first.partition(b"#")[0].decode("ascii", "replace").split()
        if not newline and not (self._ended and words):
            return self._ended
        return words == [last] or len(words) == 2 and words[0].isdecimal() and words[1] == last

    def _read(self):
        try:
            read = os.read(self.descriptor, _AT_ONCE)
        except BlockingIOError:  # whoever opened it has said so
            select.select([self.descriptor], [], [])
            return
        except OSError:  # such as a terminal that is gone
            read = b""
        self._bytes, self._ended = self._bytes + read, not read
