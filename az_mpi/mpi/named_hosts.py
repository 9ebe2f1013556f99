"""The hosts that a configuration names, `train.root_host` and `selfplay.weights`: whether they are in the job."""

import os
import sys
from typing import TYPE_CHECKING

from az_mpi.core.host_names import is_here
from az_mpi.core.problems import Refusal

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.mpi.world import World

RESTARTS = "AZ_MPI_RESTARTS"  # in the environment of ranks: how often launch has started the job again


def ranks_of(world: "World", name: str) -> list[bool]:
    """Return for each rank whether it is on the host of this name. Collective."""
    return world.collect(is_here(name))


def missing(world: "World", key: str, name: str, cure: str) -> None:
    """Refuse a name that is none of the hosts. But a job that launch or Slurm has started again may have lost that
    host: then root says so and the job continues. Collective. Raises Refusal on every rank.

    key: of the configuration, which has this name. cure: the last line of the refusal, which says how to fix it."""
    hosts = ", ".join(dict.fromkeys(world.hosts))
    if not any(os.environ.get(variable, "0") != "0" for variable in (RESTARTS, "SLURM_RESTART_COUNT")):
        raise Refusal(f'{key}: "{name}" is none of the hosts of this job: {hosts}\n  {cure}')
    if world.is_root:
        print(
            f"note: {key} names {name}, which is none of the hosts of this job ({hosts})", file=sys.stderr, flush=True
        )


def check_weights(settings: "schema.Selfplay", world: "World") -> None:
    """Check that `selfplay.weights` have an effect: the run is deterministic, and each of them is for another host of
    this job. Collective. Raises Refusal on every rank. settings: `config.selfplay`."""
    if not settings.weights:
        return
    refuse_weights_without_quota(settings)
    names = list(settings.weights)
    there = world.collect([is_here(name) for name in names])
    for rank, mine in enumerate(there):
        if sum(mine) > 1:
            twice = " and ".join(name for name, here in zip(names, mine) if here)
            raise Refusal(f"selfplay.weights: {twice} are one host, {world.hosts[rank]}\n  give it one weight")
    for name, column in zip(names, zip(*there)):
        if not any(column):
            missing(
                world,
                "selfplay.weights",
                name,
                "name these, by a full or a short name or by an IPv4 address; a host that is not named counts 1",
            )


def refuse_weights_without_quota(settings: "schema.Selfplay") -> None:
    """Raise Refusal if there are weights that cannot count, since ranks have no shares of the games. Not collective."""
    if settings.weights and not settings.deterministic:
        raise Refusal(
            "selfplay.weights: they count only with selfplay.deterministic; without it there are no shares: "
            "each rank plays as fast as it\n  can, so that a fast host plays more games by itself\n"
            "  leave them out: --set 'selfplay.weights={}'; or --set selfplay.deterministic=true for fixed "
            "shares, for which\n  fast ranks wait"
        )
