"""The frame of every program that runs on all ranks of an MPI job: it calls the program's work on each rank and turns
what the work raises into a text and an exit status. It loads MPI only once a command line has been read."""

import argparse
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from az_mpi.core.arguments import Parser
from az_mpi.core.exit_codes import DONE, INTERNAL, INTERRUPTED, RESUMABLE
from az_mpi.core.files import passes
from az_mpi.core.printing import OutputFailed
from az_mpi.core.problems import OwnCodeError, Refusal
from az_mpi.core.signals import Stopped, TrainingFailed

if TYPE_CHECKING:
    from az_mpi.mpi.world import World


class Frame:
    """The frame of a program on this rank, which has joined the job.

    world: the ranks as messages number them. The work may set it to a world that has them in another order.
    """

    # Whether the caller ends the process at once, without the clean-up of Python and MPI, which waits for other ranks.
    ends_process = False

    def __init__(self, world: "World"):
        self.world = world

    def note(self, text: str) -> None:
        """Keep the text about a failure of this rank, which has been printed, before the job ends. Here it is not kept;
        a subclass may raise OSError."""

    def run(self, do: Callable[[], int | None]) -> int:
        """Return the exit status of `do()`, which every rank calls; None is DONE. Collective.

        A Refusal that all ranks raise is printed once. OwnCodeError, which one rank alone may raise, and any exception
        that is not expected end the whole job. Raises OutputFailed."""
        from az_mpi.mpi.peers import PeerLost

        try:
            return do() or DONE
        except OwnCodeError as error:
            return self._fail(error.status, str(error))
        except Refusal as error:
            if self.world.is_root:
                print(error, file=sys.stderr, flush=True)
            return error.status
        except Stopped:  # raised on every rank; root has said why, as below
            return RESUMABLE
        except TrainingFailed:
            return INTERNAL
        except PeerLost as error:  # before a run began, or no rank could continue
            return self._lose(error)
        except KeyboardInterrupt:
            return self._end(INTERRUPTED)
        except OutputFailed as error:
            self._end(error.status)
            raise
        except BaseException as error:
            # Errors of a file system that may pass are not internal: the same command can succeed afterwards.
            return self._fail(RESUMABLE if passes(error) else INTERNAL, traceback.format_exc())

    def _fail(self, status, why):
        """Say that this rank failed and why, and end the job."""
        text = f"{self._name()} failed; the job ends\n{why.rstrip()}\n"
        try:
            print(text, end="", file=sys.stderr, flush=True)
            self.note(text)
        except OSError:
            pass  # a full disk may be the cause; the other ranks must not wait
        finally:
            self._end(status)
        return status

    def _lose(self, error):
        """Say that another rank was lost, and end: each rank by itself if it can, otherwise the job."""
        self.world.revoke()
        print(f"{self._name()}: another rank was lost: {error}", file=sys.stderr, flush=True)
        return RESUMABLE if self.ends_process else self._end(RESUMABLE)

    def _end(self, status):
        """End the job if another rank may be waiting for this one; otherwise return the exit status."""
        if self.world.size > 1 or self.ends_process:
            self.world.abort(status)
        return status

    def _name(self):
        return f"rank {self.world.rank} of {self.world.size} on {self.world.host}"


def run_command(parser: Parser, arguments: list[str], do: "Callable[[World, argparse.Namespace], int | None]") -> int:
    """Read the command line, join the job, and return the exit status of do(world, what was given), which every rank
    calls. Raises OutputFailed; Refusal, on every rank, if the command line is wrong or the job cannot be joined."""
    given = parser.parse_args(arguments)
    from az_mpi.mpi.world import World

    world = World.start()
    return Frame(world).run(lambda: do(world, given))
