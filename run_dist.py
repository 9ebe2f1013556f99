#!/usr/bin/env python3
"""Train AlphaZero over MPI: command line -> configuration -> world -> mode -> exit status. See --help."""

import sys
import time
import traceback
from pathlib import Path

from az_mpi import command_line
from az_mpi import config as configuration
from az_mpi.problems import Refusal

DONE, USAGE, INTERNAL, RESUMABLE, INTERRUPTED = 0, 2, 70, 75, 130
LAST_WORDS_S = 1.0


def main(argv):
    """Run the program and return its exit status."""
    try:
        arguments = command_line.parse(argv)
        if not arguments.check_config:
            return start(arguments)
        return finish(DONE, configuration.to_json(load_config(arguments)), sys.stdout)
    except command_line.PrintAndExit as text:
        return finish(DONE, text, sys.stdout)
    except Refusal as error:
        return finish(USAGE, f"{error}\n", sys.stderr)


def finish(status, text, stream):
    """Let one rank print what every rank knows without MPI; return the exit status."""
    if command_line.environment_rank() == 0:
        print(text, end="", file=stream, flush=True)
    elif status:
        # mpirun ends the others when the first rank fails: leave rank 0 the time to speak.
        time.sleep(LAST_WORDS_S)
    return status


def load_config(arguments):
    """Return the configuration from the file, or from the run's folder where no file is given."""
    overrides, sources = arguments.overrides, arguments.sources
    if arguments.config_file:
        return configuration.load(arguments.config_file, overrides, sources)
    from az_mpi.run_folder import recorded_config

    return recorded_config(arguments.logdir, overrides, sources)


def start(arguments):
    """Join the MPI job and do what was asked. An unexpected exception on any rank ends the whole job."""
    from az_mpi.pulse import Stopped, TrainingFailed
    from az_mpi.world import World

    world = World.start()
    try:
        config = configuration.loads(world.from_root(lambda: configuration.to_json(load_config(arguments))))
        world.chunk_bytes = config.exchange.chunk_bytes
        from az_mpi import modes

        getattr(modes, arguments.mode)(arguments, config, world)
        return DONE
    except Refusal as error:  # raised on every rank
        if world.is_root:
            print(error, file=sys.stderr, flush=True)
        return USAGE
    except Stopped:  # raised on every rank
        return RESUMABLE
    except TrainingFailed:  # raised on every rank, root has said why
        return INTERNAL
    except KeyboardInterrupt:
        world.abort(INTERRUPTED)
    except BaseException:
        crash(world, arguments.logdir)


def crash(world, folder):
    """Say which rank failed and why, here and in its log file, and end every rank with status 70."""
    text = f"rank {world.rank} of {world.size} on {world.host} failed; the job ends\n{traceback.format_exc()}"
    try:
        print(text, file=sys.stderr, flush=True)
        with open(Path(folder) / "logs" / f"rank-{world.rank:03d}.log", "r+") as file:  # only if there is one
            file.seek(0, 2)
            file.write(text)
    except OSError:
        pass  # a full disk may be why we are here; the others must not wait for us
    finally:
        world.abort(INTERNAL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
