"""Who writes games: root, or in large jobs one rank for each group of `storage.ranks_per_writer` ranks.

A group is a block of consecutive ranks, and the first of them writes. Segments of an exchange are numbered in the order
of the groups, so that the games of a run are in the same order on disk as with one writer.
"""

from dataclasses import dataclass, field

from az_mpi.mpi.world import World
from az_mpi.run.run_files import RunFiles


def ranks_that_write(num_ranks: int, ranks_per_writer: int) -> list[int]:
    """Return the ranks that write games, each the first of its group; the last group also has what is left over."""
    return [k * ranks_per_writer for k in range(max(num_ranks // ranks_per_writer, 1))]


@dataclass
class Writers:
    """The writers of a world, and this rank's group. Made for one set of ranks."""

    group: World  # the ranks whose games this rank's writer writes; its root is the writer
    ranks: list[int]  # the world's rank of each writer
    index: int  # of this rank's writer
    _next: dict[int, int] = field(default_factory=dict)  # {iteration: number of the next segment}, the same everywhere

    @classmethod
    def make(cls, world: World, ranks_per_writer: int) -> "Writers":
        """Return the writers of a world. Collective."""
        ranks = ranks_that_write(world.size, ranks_per_writer)
        index = min(world.rank // ranks_per_writer, len(ranks) - 1)
        return cls(world if len(ranks) == 1 else world.part(index), ranks, index)

    @property
    def are_several(self) -> bool:
        return len(self.ranks) > 1

    @property
    def is_one(self) -> bool:
        """Whether this rank writes."""
        return self.group.is_root

    @property
    def rank(self) -> int:
        """The world's rank of this rank's writer."""
        return self.ranks[self.index]

    def next_number(self, world: World, files: RunFiles, iteration: int) -> int | None:
        """Return the number of this group's next segment of an iteration. None: the only writer chooses; -1: root
        cannot read the folder any more, and nothing may be written. Collective over world."""
        if not self.are_several:
            return None
        if iteration not in self._next:
            self._next[iteration] = world.from_root(lambda: files.next_number(iteration))
        first = self._next[iteration]
        if first < 0:
            return -1
        # Nobody asks for earlier iterations again, and a job can have very many.
        self._next = {i: number for i, number in self._next.items() if i >= iteration - 1}
        self._next[iteration] = first + len(self.ranks)
        return first + self.index
