#!/usr/bin/env python3
"""Train AlphaZero over MPI: command line -> configuration -> world -> loop -> exit status. See --help."""

import sys
import traceback
from pathlib import Path

from az_mpi import command_line
from az_mpi import config as configuration
from az_mpi.problems import Refusal

DONE, USAGE, INTERNAL, INTERRUPTED = 0, 2, 70, 130


def main(argv):
    """Run the program and return its exit status."""
    speaks = command_line.environment_rank() == 0
    try:
        arguments = command_line.parse(argv)
        if arguments.check_config:
            text = configuration.to_json(load_config(arguments))
            print(text, end="") if speaks else None
            return DONE
    except command_line.PrintAndExit as text:
        print(text, end="") if speaks else None
        return DONE
    except Refusal as error:
        print(error, file=sys.stderr) if speaks else None
        return USAGE
    return start(arguments)


def load_config(arguments):
    """Return the configuration from the file, or from the run's folder where no file is given."""
    overrides, sources = arguments.overrides, arguments.sources
    if arguments.config_file:
        return configuration.load(arguments.config_file, overrides, sources)
    from az_mpi.run_folder import recorded_config

    return recorded_config(arguments.logdir, overrides, sources)


def start(arguments):
    """Join the MPI job and do what was asked. An unexpected exception on any rank ends the whole job."""
    from az_mpi.world import World

    world = World.start()
    try:
        try:
            text = world.from_root(lambda: configuration.to_json(load_config(arguments)))
            config = configuration.loads(text)
            world.chunk_bytes = config.exchange.chunk_bytes
            from az_mpi import modes

            getattr(modes, arguments.mode)(arguments, config, world)
        except Refusal as error:
            print(error, file=sys.stderr) if world.is_root else None
            return USAGE
        return DONE
    except KeyboardInterrupt:
        world.abort(INTERRUPTED)
    except BaseException:
        crash(world, Path(arguments.logdir))


def crash(world, folder):
    """Say which rank failed and why, here and in its log file, and end every rank with status 70."""
    text = f"rank {world.rank} of {world.size} on {world.host} failed; the job ends\n{traceback.format_exc()}"
    print(text, file=sys.stderr, flush=True)
    log = folder / "logs" / f"rank-{world.rank:03d}.log"
    if log.exists():
        with open(log, "a") as file:
            file.write(text)
    world.abort(INTERNAL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
