"""How many cores each rank of a host uses, from where it may run and from the quotas of its cgroups."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from az_mpi.core.host_facts import cpu_quotas


class Allowed(NamedTuple):
    """What a rank may use of its host: the numbers of the cores on which it may run, and the quotas of its cgroups,
    {group: cores}."""

    host: str
    cores: list[int]
    quotas: dict[str, float]

    @classmethod
    def here(cls, host: str) -> "Allowed":
        """Return what this process may use. host: as it calls itself."""
        return cls(host, sorted(os.sched_getaffinity(0)), cpu_quotas())

    def quota(self) -> float | None:
        """Return the smallest quota if it is less than the cores on which the rank may run, otherwise None."""
        quota = min(self.quotas.values(), default=None)
        return quota if quota is not None and quota < len(self.cores) else None


def share(mine: Allowed, everyone: Sequence[Allowed]) -> int:
    """Return how many cores a rank uses, at least 1: the least of the cores on which it may run, divided by the ranks
    that share them, and of each of its quotas, divided by the ranks that share it; rounded down.

    everyone: what each rank may use, `mine` among them.
    """
    here = [other for other in everyone if other.host == mine.host]
    limits = [len(mine.cores) // sum(bool(set(mine.cores) & set(other.cores)) for other in here)]
    limits += [int(quota // sum(group in other.quotas for other in here)) for group, quota in mine.quotas.items()]
    return max(1, min(limits))


def in_words(cores: int, allowed: Allowed) -> str:
    """Return a rank's number of cores for a table, with the quota that limits it, if one does."""
    quota = allowed.quota()
    return f"{cores}" if quota is None else f"{cores}, quota {quota:.4g}"
