"""Records of finished games: three arrays of rows, which are sent between ranks and stored as they are.

P positions in all, S numbers a state, A actions, M policy entries in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from az_mpi.games.base import Game
    from az_mpi.mpi.world import World

GAME = np.dtype(
    [
        ("id", "<u8"),  # unique in the run, see `game_ids`
        ("rank", "<i4"),  # that played it
        ("iteration", "<i4"),  # in which it began
        ("length", "<i4"),  # its number of rows in `positions`
        ("outcome", "<f4"),  # for player 0, who moves first in the initial position, in [-1, 1]
        ("truncated", "?"),  # ended by the move cap, scored as a draw
    ]
)
POLICY = np.dtype([("action", "<i4"), ("probability", "<f4")])


def position_dtype(game: Game) -> np.dtype:
    """Return the dtype of a position; rows are in the order of the games, then of the plies."""
    return np.dtype(
        [
            ("game", "<u8"),  # the game's id
            ("ply", "<i4"),  # the moves before it; 0 in the first row, unless the game began elsewhere
            ("to_play", "i1"),
            ("action", "<i4"),  # that was played
            ("value", "<f4"),  # outcome of the game for the player to move
            ("root_value", "<f4"),  # `Search.value` of the root, for the player to move
            ("weight", "<f4"),  # of the position in the loss
            ("policy_count", "<i4"),  # its number of rows in `policy`
            ("state", game.state_dtype, (game.state_size,)),
        ]
    )


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


def game_ids(iteration: int, attempt: int, indices: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return ids that are unique in the run, uint64 [n]: 24 bits iteration, 12 bits attempt, 28 bits index.

    indices: of the games in the iteration, int [n]. attempt: the number of this start of the run; 0 for deterministic
    games, which are the same in each start, so that one that is played twice has one id.
    """
    return np.asarray(indices, np.uint64) | np.uint64(iteration << 40 | (attempt & 0xFFF) << 28)
