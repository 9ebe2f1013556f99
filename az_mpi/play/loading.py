"""Loading a session in a thread, while the program already answers what needs no network."""

import argparse
import sys
import threading
import traceback
from typing import TYPE_CHECKING

from az_mpi.core.exit_codes import DONE, INTERNAL
from az_mpi.core.problems import Refusal

if TYPE_CHECKING:
    from az_mpi.player.session import Session

# The stack of the thread that loads, which is as large as that of a process by default. Where a site sets no limit, a
# thread has 2 MiB otherwise, and compilers need more.
STACK_BYTES = 2**23


class LoadingFailed(Exception):
    """The network cannot be loaded. str() is one line that says why."""


class Loading:
    """Loads the session that a program's options describe, in a thread of its own. what: the program, such as GTP, that
    is for games of two players without chance.

    status: the exit status that the program should end with: DONE unless loading has failed."""

    def __init__(self, given: argparse.Namespace, what: str):
        self.status = DONE
        self._threads = 1
        self._loaded_with = 0
        self._given, self._what = given, what
        self._session: Session | None = None
        self._failure = ""
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start to load, if that has not been started. A failure is printed on standard error, and `session` raises
        it."""
        if self._thread is None:
            before = threading.stack_size(STACK_BYTES)
            self._thread = threading.Thread(target=self._load, daemon=True)
            self._thread.start()
            threading.stack_size(before)

    def session(self) -> "Session":
        """Wait for the session and return it. Raises LoadingFailed."""
        self.begin()
        self._thread.join()
        if self._session and self._loaded_with != self._threads:
            self._load()
        if self._session is None:
            raise LoadingFailed(self._failure)
        return self._session

    def use_threads(self, threads: int) -> None:
        """Let `session` return one whose engine has so many threads of a CPU."""
        self._threads = threads

    def at_size(self, columns: int, rows: int) -> "Session":
        """Return a session on a board of another size. Raises ValueError if the network cannot play there."""
        from az_mpi.play.options import open_session

        return open_session(self._given, True, self._threads, self._what, (columns, rows))[0]

    def _load(self):
        try:
            from az_mpi.play.options import open_session

            threads = self._threads
            self._session, _ = open_session(self._given, True, threads, self._what)
            self._loaded_with = threads
        except BaseException as error:  # of any kind, since the other thread waits for the session
            self.status = error.status if isinstance(error, Refusal) else INTERNAL
            if isinstance(error, Refusal):
                print(error, file=sys.stderr, flush=True)
            else:
                traceback.print_exc()
            why = " ".join(str(error).split()) or type(error).__name__
            self._failure = f"{self._given.run} cannot be loaded: {why}"
