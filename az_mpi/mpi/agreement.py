"""What every rank must have, and have alike. Every function is collective."""

from az_mpi.core import registry
from az_mpi.core.problems import NotNow, Refusal


def everywhere(world, make):
    """Return this rank's `make()`. Raises Refusal, or NotNow, on every rank where `make` raises one on any of them."""
    made = problem = None
    try:
        made = make()
    except Refusal as error:
        problem = [str(error), error.status]
    found = world.collect(problem)
    if ranks := [rank for rank, said in enumerate(found) if said]:
        text, status = found[ranks[0]]
        raise (NotNow if status == NotNow.status else Refusal)(f"{text}\n  {_where(world, ranks)}")
    return made


def same_plugins(world, plugins):
    """Load what a configuration names in registries, and refuse what a rank lacks, or has another source of.

    plugins: (key, registry, name) each."""
    everywhere(world, lambda: [found.check(name) for _, found, name in plugins] and None)
    sources = registry.sources(name for _, _, name in plugins)
    found = world.collect({place: source.sha256 for place, source in sources.items()})
    for place, digest in found[0].items():
        if ranks := [rank for rank, other in enumerate(found) if other[place] != digest]:
            raise Refusal(f"{place} is not the file that root has\n  {_where(world, ranks)}\n"
                          "  every rank must load the same source: put it on a shared file system, or copy root's")


def _where(world, ranks):
    hosts = ", ".join(dict.fromkeys(world.hosts[rank] for rank in ranks))
    return f"on rank {', '.join(map(str, ranks))} of {world.size} ({hosts})"
