"""Lines from a file descriptor. One can ask whether there is another line without waiting for it."""

import os
import re
import select
from collections.abc import Callable

LINE_BYTES_MAX = 2**16
_AT_ONCE = 2**16  # bytes of one read


def without_comment(line: str) -> str:
    """Return a line without its comment, which # begins at the line's start or after a blank. Moves may end with #."""
    return re.split(r"(?:^|\s)#", line, maxsplit=1)[0]


class Lines:
    """The lines that arrive at a file descriptor: a pipe, a terminal or a file. Nothing else may read from it. There is
    no thread."""

    def __init__(self, descriptor: int = 0):
        self.descriptor = descriptor
        self._bytes = b""
        self._ended = False

    def next(self) -> str | None:
        """Wait for a line and return it without its end; None at the end of input. A line is cut after LINE_BYTES_MAX
        bytes, and its characters that are not ASCII become question marks."""
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
        """Wait for input, at most longest_s seconds. Return whether there is any, be it a part of a line or the end of
        input."""
        if self._bytes or self._ended:
            return True
        return bool(select.select([self.descriptor], [], [], max(longest_s, 0.0))[0])

    def waiting(self) -> bool:
        """Return at once whether there is input, see `wait`."""
        return self.wait(0.0)

    def ends(self, is_last: Callable[[str], bool]) -> bool:
        """Return at once whether input has ended, or the next line is a word that ends the program. A number may be
        before the word, and a comment behind it."""
        while b"\n" not in self._bytes and not self._ended and len(self._bytes) <= LINE_BYTES_MAX:
            if not select.select([self.descriptor], [], [], 0)[0]:
                return False
            self._read()
        first, newline, _ = self._bytes.partition(b"\n")
        words = without_comment(first.decode("ascii", "replace")).split()
        if not newline and not (self._ended and words):
            return self._ended
        is_command = len(words) == 1 or len(words) == 2 and words[0].isdecimal()
        return is_command and is_last(words[-1])

    def _read(self):
        try:
            read = os.read(self.descriptor, _AT_ONCE)
        except BlockingIOError:  # the program that opened the descriptor has made it so that reads do not wait
            select.select([self.descriptor], [], [])
            return
        except OSError:  # for example, the terminal was closed
            read = b""
        self._bytes, self._ended = self._bytes + read, not read
