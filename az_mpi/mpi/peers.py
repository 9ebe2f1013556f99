"""How MPI reports a dead rank, and the exception that the program raises for it."""

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from mpi4py import MPI


KNOWN_S = 5.0  # for a loss to become known
Method = TypeVar("Method", bound=Callable[..., Any])


class PeerLost(Exception):
    """A rank of the job has died, or another rank has reported that. Survivors continue with `World.recover`."""


def collective(method: Method) -> Method:
    """Make a method raise PeerLost for errors by which MPI reports a dead rank. Its object has a `comm`."""

    @functools.wraps(method)
    def call(*arguments, **named):
        try:
            return method(*arguments, **named)
        except Exception as error:
            if _is_loss(error, arguments[0].comm):
                raise PeerLost(str(error)) from error
            raise

    return cast(Method, call)


def is_lost(comm: "MPI.Comm") -> bool:
    """Return whether a rank of a communicator is known to be dead. Lets MPI make progress, for the next call."""
    if comm.Is_revoked() or comm.Get_failed().Get_size():
        return True
    comm.Iprobe()
    return False


def lost(comm: "MPI.Comm") -> bool:
    """Return whether a rank of a communicator is known to be dead; wait at most KNOWN_S for it."""
    end = time.monotonic() + KNOWN_S
    while time.monotonic() < end:
        if is_lost(comm):
            return True
        time.sleep(0.01)
    return False


def _is_loss(error, comm):
    from mpi4py import MPI

    if not isinstance(error, MPI.Exception):
        return False
    if error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED):
        return True
    # A non-blocking collective whose next message is to a dead rank reports an unspecific error (libnbc in Open MPI
    # 5.0.11: "Error in NBC_Start_round() (-1)").
    return error.Get_error_class() == MPI.ERR_OTHER and lost(comm)
