"""How MPI tells of a dead rank, and what the program calls it."""

import functools
import time


class PeerLost(Exception):
    """A rank of the job has died, or another rank has said so. What the survivors do then: `World.recover`."""


def collective(method):
    """Let the errors by which MPI tells of a dead rank be raised as PeerLost. The method's object has a `comm`."""

    @functools.wraps(method)
    def call(*arguments, **named):
        try:
            return method(*arguments, **named)
        except Exception as error:
            if _tells_of_a_loss(error, arguments[0].comm):
                raise PeerLost(str(error)) from error
            raise

    return call


def is_lost(comm):
    """Return whether a rank of a communicator is known to be dead by now. It lets MPI progress, for the next call."""
    if comm.Is_revoked() or comm.Get_failed().Get_size():
        return True
    comm.Iprobe()
    return False


def lost(comm, within_s=2.0):
    """Return whether a rank of a communicator is known to be dead, at the latest after `within_s` seconds."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if is_lost(comm):
            return True
        time.sleep(0.01)
    return False


def _tells_of_a_loss(error, comm):
    from mpi4py import MPI

    if not isinstance(error, MPI.Exception):
        return False
    if error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED):
        return True
    # A non-blocking collective whose next message is to a dead rank says only that something failed (libnbc in Open MPI
    # 5.0.11: "Error in NBC_Start_round() (-1)").
    return error.Get_error_class() == MPI.ERR_OTHER and lost(comm)
