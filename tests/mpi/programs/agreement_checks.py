"""A Refusal of some ranks is raised on all and names those ranks; so are sources that differ."""

import sys
from pathlib import Path

from az_mpi.core.problems import NotNow, Refusal
from az_mpi.core.registry import GAMES
from az_mpi.mpi import agreement
from az_mpi.mpi.world import World

folder = Path(sys.argv[1])
OWN = "from az_mpi.games import mnk\nclass Rules(mnk.Rules):\n    number = {}\n"


def refusal(call, *arguments, kind=Refusal):
    try:
        call(world, *arguments)
    except Refusal as error:
        assert type(error) is kind
        return str(error)
    raise AssertionError(f"rank {world.rank}: nothing was refused")


def raising(ranks, kind):
    if world.rank in ranks:
        raise kind(f"not here: {world.rank}")
    return world.rank


def module(name, ranks, number=1):
    """Make a module that only some ranks find; `number` is in its text."""
    own = folder / f"rank{world.rank}"
    own.mkdir(exist_ok=True)
    if world.rank in ranks:
        (own / f"{name}.py").write_text(OWN.format(number))
    sys.path.insert(0, str(own))
    return [("game", GAMES, f"{name}:Rules")]


world = World.start()
everyone = range(world.size)
assert agreement.everywhere(world, lambda: world.rank) == world.rank
assert refusal(agreement.everywhere, lambda: raising([1, 2], Refusal)) == (
    f"not here: 1\n  on rank 1 of {world.size} ({world.host})\nnot here: 2\n  on rank 2 of {world.size} ({world.host})"
)
assert "on rank 0 of" in refusal(agreement.everywhere, lambda: raising([0], NotNow), kind=NotNow)

agreement.same_plugins(world, module("own_same", everyone) + [("game", GAMES, "tictactoe")])
said = refusal(agreement.same_plugins, module("own_missing", [0, 2]))
assert "No module named 'own_missing'" in said and f"on rank 1 of {world.size}" in said
said = refusal(agreement.same_plugins, module("own_other", everyone, number=world.rank // 2))
assert said.startswith("own_other is not the file that root has") and f"on rank 2 of {world.size}" in said
said = refusal(agreement.same_plugins, [("game", GAMES, "tictactoe(size=3)")])
assert "takes no argument size" in said and f"on rank 0, 1, 2 of {world.size}" in said
print("all checks passed")
