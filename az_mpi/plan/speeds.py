"""The job of `python -m az_mpi suggest` on all ranks: measures networks from small to large until the time is too short
for one, then the configuration that was chosen. python -m az_mpi.plan.speeds JSON; root prints the result as JSON."""

import json
import sys
from typing import TYPE_CHECKING, Any

from az_mpi.config import load as configuration
from az_mpi.core.printing import print_result
from az_mpi.core.problems import OwnCodeError, Refusal
from az_mpi.doctor import facts, job, trial
from az_mpi.mpi import placement
from az_mpi.mpi.frame import Frame
from az_mpi.plan import sizing

if TYPE_CHECKING:
    from az_mpi.mpi.world import World

SHORT_S = 1.5  # of the trial of each network
SECONDS = 5.0  # of the trial of the configuration that was chosen
SHARE_MAX = 0.01  # of the run's time: a trial takes at most so much of it


def choose(world: "World", game: str, rules: sizing.Rules, hours: float) -> dict[str, Any]:
    """Return {"config": as in a file, "figures": measured with it, "tried": [[blocks and channels, figures, games in
    this time, what they lack] of each network], "notes": lines on the GPUs}. Collective. Raises Refusal on every
    rank."""
    gpus = placement.gpus_by_host(world)
    on_gpus = any(gpus.values())
    room = facts.room(facts.memory())  # before any network is made
    rooms = world.collect(room // world.hosts.count(world.host))

    def measure(data, seconds):
        seconds = min(seconds, SHARE_MAX * hours * 3600)
        what = "measuring a network of {blocks} x {channels}".format(**data["network"])
        with job.watch(what, sys.stderr if world.is_root else None, job.HANG_S + 20 * seconds):
            figures, _ = trial.measure(world, configuration.validate(data, "suggest"), seconds)
        return world.share(figures) | {"memory_bytes": rooms}  # ranks differ in the length of random games

    tried: list[tuple] = []
    for size in sizing.SIZES:
        data = sizing.first(game, rules, size, world.size, on_gpus)
        figures = measure(data, SHORT_S)
        tried.append((size, figures, sizing.games_in(data, figures, hours), sizing.lacks(data, figures, hours)))
        if tried[-1][-1]:
            break
    size, figures, *_ = next((one for one in reversed(tried) if not one[-1]), tried[0])
    data = sizing.first(game, rules, size, world.size, on_gpus)
    data = sizing.at_once(sizing.fill(data, figures, rules, hours), world.size)
    figures = measure(data, SECONDS)
    notes = placement.remarks(world.hosts, gpus)
    return {"config": sizing.fill(data, figures, rules, hours), "figures": figures, "tried": tried, "notes": notes}


def main(text: str) -> int:
    """Measure what the JSON text asks for; root prints what `choose` returns, or {"refused": why}. Return the exit
    status."""
    from az_mpi.mpi.world import World

    world, given = World.start(), json.loads(text)

    def answer():
        try:
            found = choose(world, given["game"], sizing.Rules(*given["rules"]), given["hours"])
        except OwnCodeError:  # perhaps on this rank alone
            raise
        except Refusal as error:
            found = {"refused": str(error)}
        if world.is_root:
            print_result(json.dumps(found))

    return Frame(world).run(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
