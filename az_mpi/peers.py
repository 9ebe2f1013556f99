"""How MPI tells of a dead rank, and what the program calls it."""

import functools


class PeerLost(Exception):
    """A rank of the job has died, or another rank has said so. What the survivors do then: `World.recover`."""


def collective(method):
    """Let the errors by which MPI tells of a dead rank be raised as PeerLost."""

    @functools.wraps(method)
    def call(*arguments, **named):
        try:
            return method(*arguments, **named)
        except Exception as error:
            if _tells_of_a_loss(error):
                raise PeerLost(str(error)) from error
            raise

    return call


def _tells_of_a_loss(error):
    from mpi4py import MPI

    lost = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED)
    return isinstance(error, MPI.Exception) and error.Get_error_class() in lost
