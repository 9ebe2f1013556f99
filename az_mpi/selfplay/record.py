"""Records of finished games: three arrays of rows, which are sent between ranks and stored as they are.

P positions in all, S numbers a state, A actions, M policy entries in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from az_mpi.games.base import Game
    from az_mpi.mpi.world import World


class Column(NamedTuple):
    """One column of a record, as the arrays here and the files of `storage.segment` have it.

    description, unit: for readers of the files; perspective: for whom a value counts, "" where it is none."""

    name: str
    dtype: str
    description: str
    unit: str = ""
    perspective: str = ""


FOR_FIRST, FOR_MOVER = "player 0, who moves first in the initial position", "player to move (positions/to_play)"
RESULT = "from -1, a loss, to 1, a win; 0 is a draw"
GAMES = (
    Column("id", "<u8", "number of the game, unique in the run: 24 bits iteration, 12 bits start, 28 bits index"),
    Column("rank", "<i4", "MPI rank that played it; -1 for an imported game"),
    Column("iteration", "<i4", "iteration in which it began, from 0", "iterations"),
    Column("length", "<i4", "number of its rows in positions, where games are in the same order", "positions"),
    Column("outcome", "<f4", f"result of the game, {RESULT}", perspective=FOR_FIRST),
    Column("truncated", "?", "whether the limit of moves (max_plies) ended it; it counts as a draw"),
)
POSITIONS = (
    Column("game", "<u8", "games/id of its game"),
    Column("ply", "<i4", "moves before this position; 0 in a game's first row, unless it began elsewhere", "moves"),
    Column("to_play", "i1", "player to move: 0 for the one who moves first in the initial position, else 1"),
    Column("action", "<i4", "action that was played, as the game numbers them for the player to move"),
    Column("value", "<f4", f"target of the value: result of the whole game, {RESULT}", perspective=FOR_MOVER),
    Column(
        "root_value",
        "<f4",
        "value of the search at this position, when it was played, from -1 to 1",
        perspective=FOR_MOVER,
    ),
    Column("weight", "<f4", "weight of the position in the training loss; 1 on average over a game"),
    # Not a column of the files: they have policy/offset, its running sum.
    Column("policy_count", "<i4", "number of its rows in policy"),
    # As many numbers as the game's `state_size`, of its `state_dtype`.
    Column("state", "", "position before the move, as the game's class keeps it (az_mpi/games)"),
)
POLICIES = (
    Column("action", "<i4", "action that the search considered, as in positions/action"),
    Column(
        "probability",
        "<f4",
        "target of the policy: the search's probability of this action; those of a position "
        "add up to 1, and actions without a row have 0",
    ),
)
OFFSET = Column(
    "offset",
    "<i8",
    "rows of policy that belong to each position: those of position i are offset[i] to "
    "offset[i + 1] - 1; none after a fast search (search.full_share below 1)",
    "rows of policy",
)
GAME, POLICY = (np.dtype([(column.name, column.dtype) for column in columns]) for columns in (GAMES, POLICIES))


def position_dtype(game: Game) -> np.dtype:
    """Return the dtype of a position; rows are in the order of the games, then of the plies."""
    state = (game.state_dtype, (game.state_size,))
    return np.dtype([(column.name, column.dtype) if column.dtype else (column.name, *state) for column in POSITIONS])


@dataclass
class Record:
    """Finished games: games GAME [n], positions position_dtype [P], policy POLICY [M]."""

    games: np.ndarray
    positions: np.ndarray
    policy: np.ndarray

    @classmethod
    def empty(cls, game: Game) -> Record:
        return cls(np.empty(0, GAME), np.empty(0, position_dtype(game)), np.empty(0, POLICY))

    @classmethod
    def join(cls, game: Game, records: Iterable[Record]) -> Record:
        """Return one record with the games of all records, in order."""
        parts = [cls.empty(game), *records]
        return cls(*(np.concatenate([getattr(r, k) for r in parts]) for k in ("games", "positions", "policy")))

    def select(self, chosen: np.ndarray) -> Record:
        """Return a record of the games for which `chosen`, bool [n], is true."""
        positions = np.repeat(chosen, self.games["length"])
        policy = np.repeat(positions, self.positions["policy_count"])
        return Record(self.games[chosen], self.positions[positions], self.policy[policy])

    def gather(self, world: World, compress: bool = False) -> Record | None:
        """Return the games of all ranks, in rank order, on root; None elsewhere. Collective over world."""
        arrays = [world.gather(rows, compress) for rows in (self.games, self.positions, self.policy)]
        return Record(*arrays) if world.is_root else None

    def copy_to_rank_1(self, world: World, compress: bool = False) -> Record:
        """Return root's record on rank 1, and an empty one elsewhere. Collective over a world of two ranks or more."""
        arrays = [rows if world.is_root else rows[:0] for rows in (self.games, self.positions, self.policy)]
        return Record(*(world.exchange(rows, np.ones(len(rows), np.int64), compress) for rows in arrays))

    def dense_policy(self, num_actions: int) -> np.ndarray:
        """Return the policy targets as float32 [P, A]."""
        dense = np.zeros((len(self.positions), num_actions), np.float32)
        rows = np.repeat(np.arange(len(self.positions)), self.positions["policy_count"])
        dense[rows, self.policy["action"]] = self.policy["probability"]
        return dense


def sparse_policy(policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (the number of entries of each row, int64 [P]; POLICY [M], row by row) of float [P, A]; zeros are left
    out."""
    rows, actions = np.nonzero(policy)
    entries = np.empty(len(actions), POLICY)
    entries["action"], entries["probability"] = actions, policy[rows, actions]
    return np.bincount(rows, minlength=len(policy)), entries


def game_ids(iteration: int, start: int, indices: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return ids that are unique in the run, uint64 [n]: 24 bits iteration, 12 bits start, 28 bits index.

    indices: of the games in the iteration, int [n]. start: the number of this start of the run; 0 for deterministic
    games, which are the same in each start, so that one that is played twice has one id.
    """
    return np.asarray(indices, np.uint64) | np.uint64(iteration << 40 | (start & 0xFFF) << 28)
