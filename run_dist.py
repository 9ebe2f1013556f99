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
from az_mpi.core.exit_codes import DONE, INTERNAL  # noqa: E402
from az_mpi.core.files import have_home, keep_private, open_plain  # noqa: E402
from az_mpi.core.printing import environment_rank, print_once  # noqa: E402
from az_mpi.core.problems import Refusal, need_current_folder  # noqa: E402
from az_mpi.core.signals import Requests  # noqa: E402
from az_mpi.liveness import watchdog  # noqa: E402
from az_mpi.mpi.frame import Frame  # noqa: E402
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
            leave(status or (0 if arguments.mode in command_line.TRAINING else printing.unwritten()))
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
    """Join the MPI job, run the mode and return the exit status, see `Frame`. Raises Refusal if the job is refused."""
    keep_private()
    have_home()
    requests = Requests()
    if arguments.mode in command_line.TRAINING:
        requests.listen()  # before MPI and torch load, which can take long
        watchdog.start(environment_rank())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)

    from az_mpi.mpi.world import World

    frame = LoggedFrame(World.start(), arguments.logdir)
    watchdog.joined()
    return frame.run(lambda: work(arguments, requests, frame))


def work(arguments: command_line.Arguments, requests: Requests, frame: Frame) -> None:
    """Give every rank the configuration, order the ranks, and run the mode. Collective over `frame.world`."""
    from az_mpi.mpi import root_host

    world = frame.world
    config = configuration.loads(world.from_root(lambda: configuration.to_json(config_of(arguments))))
    world.chunk_bytes = config.exchange.chunk_bytes
    if arguments.mode in command_line.TRAINING:
        frame.world = root_host.order(world, config.train.root_host)
    gc.disable()  # it would search all that torch loads for garbage, many times
    from az_mpi import modes

    gc.freeze()
    gc.enable()
    getattr(modes, arguments.mode)(arguments, config, frame, requests)


class LoggedFrame(Frame):
    """The frame of this program, whose ranks have logs in the folder of their run."""

    ends_process = True  # by `leave`

    def __init__(self, world: "World", folder: Path):
        super().__init__(world)
        self.folder = folder

    def note(self, text: str) -> None:
        """Append the text to this rank's log, if it has one."""
        logging.shutdown()
        log = Path(self.folder) / "logs" / f"rank-{self.world.rank:03d}.log"
        with open(open_plain(log, os.O_WRONLY | os.O_APPEND), "w", errors="backslashreplace") as file:
            file.write(text)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)  # at its end Python would restore their default actions
    sys.exit(status)
