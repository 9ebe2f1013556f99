#!/usr/bin/env python3
"""Train AlphaZero over MPI: command line -> configuration -> world -> mode -> exit status. See --help."""

import ctypes
import gc
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

# Signals that come while the modules below load are held back until `start` handles them.
HELD = (signal.SIGUSR1, signal.SIGUSR2)
if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)

from az_mpi.config import command_line  # noqa: E402
from az_mpi.config import load as configuration  # noqa: E402
from az_mpi.core import printing  # noqa: E402
from az_mpi.core.exit_codes import DONE, INTERNAL, INTERRUPTED, RESUMABLE  # noqa: E402
from az_mpi.core.files import have_home, keep_private, open_plain, passes  # noqa: E402
from az_mpi.core.printing import environment_rank, print_once  # noqa: E402
from az_mpi.core.problems import OwnCodeError, Refusal, need_current_folder  # noqa: E402
from az_mpi.core.signals import Requests, Stopped, TrainingFailed  # noqa: E402
from az_mpi.liveness import watchdog  # noqa: E402
from az_mpi.storage.run_folder import config_of  # noqa: E402

if TYPE_CHECKING:
    from az_mpi.config.schema import Config
    from az_mpi.mpi.world import World


def main(argv: list[str]) -> int:
    """Run the program and return its exit status; once it has joined an MPI job, `leave` ends the process instead."""
    printing.prepare()
    return printing.finish(lambda: obey(argv))


def obey(argv: list[str]) -> int:
    """Do what the command line says and return the exit status. Raises OutputFailed."""
    rank = environment_rank()
    try:
        need_current_folder()
        arguments = command_line.parse(argv)
        if not arguments.check_config:
            printing.outlive_output()
            status = start(arguments)
            # A training has its log and its files; of other modes what they print is the result.
            leave(status or (0 if arguments.mode == "train" else printing.unwritten()))
        return print_once(check(config_of(arguments), rank), sys.stdout, DONE, rank)
    except command_line.PrintAndExit as text:
        return print_once(text, sys.stdout, DONE, rank)
    except Refusal as error:
        return print_once(f"{error}\n", sys.stderr, error.status, rank)
    except Exception:  # of --check_config: a plug-in, for example
        traceback.print_exc()
        return INTERNAL


def check(config: "Config", rank: int) -> str:
    """Return a configuration as text if a run could start with it, as far as that is known without MPI. Raises Refusal.

    Rank 0 checks for all."""
    if rank == 0:
        have_home()
        from az_mpi import modes

        for remark in modes.check(config):
            print(f"note: not on this host: {remark}", file=sys.stderr, flush=True)
    return configuration.to_json(config)


def leave(status: int) -> None:
    """End this process with an exit status, without Python's own clean-up, which takes a second on each rank."""
    from az_mpi.mpi.world import World

    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)  # output of C libraries such as NCCL
        World.finish()
    except Exception:
        status = status or INTERNAL  # for example, a result could not be printed
        traceback.print_exc()
    finally:
        os._exit(status)


def start(arguments: command_line.Arguments) -> int:
    """Join the MPI job, run the mode and return the exit status. An unexpected exception on a rank ends the job."""
    keep_private()
    have_home()
    requests = Requests()
    if arguments.mode == "train":
        requests.listen()  # before MPI and torch load, which can take long
        watchdog.start(environment_rank())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)

    from az_mpi.mpi import root_host
    from az_mpi.mpi.peers import PeerLost
    from az_mpi.mpi.world import World

    world = World.start()
    watchdog.joined()
    try:
        config = configuration.loads(world.from_root(lambda: configuration.to_json(config_of(arguments))))
        world.chunk_bytes = config.exchange.chunk_bytes
        if arguments.mode == "train":
            world = root_host.order(world, config.train.root_host)
        gc.disable()  # it would search all that torch loads for garbage, again and again
        from az_mpi import modes

        gc.freeze()
        gc.enable()
        getattr(modes, arguments.mode)(arguments, config, world, requests)
        return DONE
    except OwnCodeError as error:  # perhaps on this rank alone
        crash(world, arguments.logdir, error.status, str(error))
        return error.status
    except Refusal as error:  # raised on every rank
        if world.is_root:
            print(error, file=sys.stderr, flush=True)
        return error.status
    except Stopped:  # raised on every rank
        return RESUMABLE
    except TrainingFailed:  # raised on every rank, root has said why
        return INTERNAL
    except PeerLost as error:  # before the run began, or no rank could go on
        world.revoke()
        print(f"rank {world.rank} of {world.size} on {world.host}: another rank was lost: {error}", file=sys.stderr)
        return RESUMABLE
    except KeyboardInterrupt:
        world.abort(INTERRUPTED)
        return INTERRUPTED
    except BaseException as error:
        # Errors of a file system that may pass are not internal: the same command goes on afterwards.
        status = RESUMABLE if passes(error) else INTERNAL
        crash(world, arguments.logdir, status, traceback.format_exc())
        return status


def crash(world: "World", folder: Path, status: int, why: str) -> None:
    """Print which rank failed and why, also to its log file, and end all ranks with exit status `status`."""
    text = f"rank {world.rank} of {world.size} on {world.host} failed; the job ends\n{why.rstrip()}\n"
    try:
        print(text, file=sys.stderr, flush=True)
        logging.shutdown()
        log = Path(folder) / "logs" / f"rank-{world.rank:03d}.log"
        with open(open_plain(log, os.O_WRONLY | os.O_APPEND), "w", errors="backslashreplace") as file:
            file.write(text)  # only if there is one
    except OSError:
        pass  # a full disk may be the cause; the other ranks must not wait
    finally:
        world.abort(status)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)  # at its end Python would restore their default actions
    sys.exit(status)
