"""Commands that run on all ranks of an MPI job, or without mpirun on one."""

import argparse
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from az_mpi.core.arguments import Parser
from az_mpi.core.exit_codes import DONE, INTERNAL, INTERRUPTED, RESUMABLE
from az_mpi.core.printing import OutputFailed, environment_rank, print_once
from az_mpi.core.problems import OwnCodeError, Refusal

if TYPE_CHECKING:
    from az_mpi.mpi.world import World


def on_ranks(parser: Parser, arguments: list[str], do: "Callable[[World, argparse.Namespace], None]") -> int:
    """Read the command line, join the job, call do(world, what was given) on every rank, and return the exit status.

    A Refusal that all ranks raise is printed once. Any other exception ends the whole job. Raises OutputFailed."""
    try:
        given = parser.parse_args(arguments)
    except Refusal as error:
        return print_once(f"{error}\n", sys.stderr, error.status, environment_rank())
    from az_mpi.mpi.peers import PeerLost
    from az_mpi.mpi.world import World

    world = World.start()
    try:
        do(world, given)
        return DONE
    except OwnCodeError as error:  # perhaps on this rank alone
        print(
            f"rank {world.rank} of {world.size} on {world.host} failed; the job ends\n{error}",
            file=sys.stderr,
            flush=True,
        )
        return _abort(world, error.status)
    except Refusal as error:
        return print_once(f"{error}\n", sys.stderr, error.status, world.rank)
    except PeerLost as error:
        print(f"rank {world.rank} of {world.size} on {world.host}: another rank was lost: {error}", file=sys.stderr)
        return _abort(world, RESUMABLE)
    except KeyboardInterrupt:
        return _abort(world, INTERRUPTED)
    except OutputFailed as error:
        _abort(world, error.status)
        raise
    except BaseException:
        print(
            f"rank {world.rank} of {world.size} on {world.host} failed; the job ends\n{traceback.format_exc()}",
            file=sys.stderr,
            flush=True,
        )
        return _abort(world, INTERNAL)


def _abort(world, status):
    if world.size > 1:
        world.abort(status)
    return status
