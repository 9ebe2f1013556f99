"""Checks that every rank has what it needs, and the same as root. Every public function is collective."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from az_mpi.core import registry
from az_mpi.core.problems import SHOWN_MAX, NotHere, NotNow, Refusal
from az_mpi.mpi.world import World

Made = TypeVar("Made")
KINDS = {kind.__name__: kind for kind in (NotNow, NotHere, Refusal)}  # the most general one last


def everywhere(world: World, make: Callable[[], Made]) -> Made:
    """Return this rank's `make()`. If `make` raises Refusal on some rank, every rank raises one, with each of the texts
    and its ranks. If it is a NotNow or NotHere, so is the one that every rank raises."""
    problem = None
    try:
        made = make()
    except Refusal as error:
        problem = [str(error), next(name for name, kind in KINDS.items() if isinstance(error, kind))]
    found = {}  # the ranks with each problem
    for rank, said in enumerate(world.collect(problem)):
        if said:
            found.setdefault(tuple(said), []).append(rank)
    if found:
        text = "\n".join(
            f"{text}\n  {_where(world, ranks)}" if world.size > 1 else text
            for (text, _), ranks in list(found.items())[:SHOWN_MAX]
        )
        raise KINDS[next(iter(found))[1]](text)
    return made  # there is one: a problem of this rank would be among those found


def same_plugins(world: World, plugins: Sequence[tuple[str, registry.Registry, str]]) -> None:
    """Load what a configuration names in registries. Raises Refusal if a rank lacks it, or has another source of it
    than root. plugins: (key, registry, name) each."""

    def check():
        for _, found, name in plugins:
            found.check(name)

    everywhere(world, check)
    sources = registry.sources(name for _, _, name in plugins)
    found = world.collect({place: source.sha256 for place, source in sources.items()})
    for place, digest in found[0].items():
        if ranks := [rank for rank, other in enumerate(found) if other[place] != digest]:
            raise Refusal(
                f"{place} is not the file that root has\n  {_where(world, ranks)}\n"
                "  every rank must load the same source: put it on a shared file system, or copy root's"
            )


def _where(world, ranks):
    hosts = ", ".join(dict.fromkeys(world.hosts[rank] for rank in ranks))
    return f"on rank {', '.join(map(str, ranks))} of {world.size} ({hosts})"
