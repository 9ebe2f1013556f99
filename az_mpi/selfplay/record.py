"""Records of finished games: four arrays of rows, which are sent between ranks and stored as they are.

P positions in all, S numbers a state, A actions, M policy entries in all, C chance moves in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from az_mpi.core.players import CHANCE

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
    Column("truncated", "?", "whether the limit of moves (max_plies) ended it; with two players or more it is a draw"),
)
SCORE = Column("score", "<f4", "result of the game in its own unit")  # of games that have one
POSITIONS = (
    Column("game", "<u8", "games/id of its game"),
    Column(
        "ply",
        "<i4",
        "moves before this position, those of chance included; 0 in a game's first row, unless it began elsewhere, or "
        "chance moved first",
        "moves",
    ),
    Column("to_play", "i1", "player to move: 0 for the one who moves first in the initial position, then 1, and so on"),
    Column("action", "<i4", "action that was played, as the game numbers them for the player to move"),
    # With three players or more, results of all of them: of the player to move, of the one after that, and so on.
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
CHANCES = (
    Column("game", "<u8", "games/id of its game"),
    Column("ply", "<i4", "moves before it, those of chance included", "moves"),
    Column("outcome", "<i4", "what was drawn, as the game numbers the outcomes"),
)
GAME, POLICY, CHANCE_MOVE = (
    np.dtype([(column.name, column.dtype) for column in columns]) for columns in (GAMES, POLICIES, CHANCES)
)


def position_dtype(game: Game) -> np.dtype:
    """Return the dtype of a position; rows are in the order of the games, then of the plies."""
    shaped = {"state": (game.state_dtype, (game.state_size,))}
    if game.num_players > 2:
        shaped["value"] = (np.dtype(np.float32), (game.num_players,))
    return np.dtype([(column.name, *shaped.get(column.name, (column.dtype,))) for column in POSITIONS])


def game_dtype(game: Game) -> np.dtype:
    """Return the dtype of a game: GAME, and its score if the game has one."""
    return np.dtype([*GAME.descr, (SCORE.name, SCORE.dtype)]) if game.score_name else GAME


@dataclass
class Record:
    """Finished games: games game_dtype [n], positions position_dtype [P], policy POLICY [M], chance CHANCE_MOVE [C] in
    the order of the games, then of the plies."""

    games: np.ndarray
    positions: np.ndarray
    policy: np.ndarray
    chance: np.ndarray = field(default_factory=lambda: np.empty(0, CHANCE_MOVE))

    @classmethod
    def empty(cls, game: Game) -> Record:
        return cls(np.empty(0, game_dtype(game)), np.empty(0, position_dtype(game)), np.empty(0, POLICY))

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """The arrays, in the order of the fields."""
        return self.games, self.positions, self.policy, self.chance

    @classmethod
    def join(cls, game: Game, records: Iterable[Record]) -> Record:
        """Return one record with the games of all records, in order."""
        return cls(*map(_joined, zip(*(record.parts for record in (cls.empty(game), *records)))))

    def select(self, chosen: np.ndarray) -> Record:
        """Return a record of the games for which `chosen`, bool [n], is true."""
        positions = np.repeat(chosen, self.games["length"])
        policy = np.repeat(positions, self.positions["policy_count"])
        chance = np.isin(self.chance["game"], self.games["id"][chosen])
        return Record(self.games[chosen], self.positions[positions], self.policy[policy], self.chance[chance])

    def moves(self, number: int) -> list[tuple[int, int, int]]:
        """Return the moves of the game with this id, [(ply, who moves, action)], chance's among them: CHANCE moves, and
        the outcome is the action. A game that began elsewhere has those from there on."""
        rows, drawn = (part[part["game"] == number] for part in (self.positions, self.chance))
        moves = list(zip(rows["ply"].tolist(), rows["to_play"].tolist(), rows["action"].tolist()))
        return sorted(moves + [(ply, CHANCE, outcome) for _, ply, outcome in drawn.tolist()])

    def gather(self, world: World, compress: bool = False) -> Record | None:
        """Return the games of all ranks, in rank order, on root; None elsewhere. Collective over world."""
        arrays = [world.gather(rows, compress) for rows in self.parts]
        return Record(*arrays) if world.is_root else None

    def copy_to_rank_1(self, world: World, compress: bool = False) -> Record:
        """Return root's record on rank 1, and an empty one elsewhere. Collective over a world of two ranks or more."""
        arrays = [rows if world.is_root else rows[:0] for rows in self.parts]
        return Record(*(world.exchange(rows, np.ones(len(rows), np.int64), compress) for rows in arrays))

    def dense_policy(self, num_actions: int) -> np.ndarray:
        """Return the policy targets as float32 [P, A]."""
        dense = np.zeros((len(self.positions), num_actions), np.float32)
        rows = np.repeat(np.arange(len(self.positions)), self.positions["policy_count"])
        dense[rows, self.policy["action"]] = self.policy["probability"]
        return dense


def _joined(parts):
    """Return rows of one dtype, [n] each, as one array: as bytes, since NumPy compares all fields of all arrays."""
    kind = parts[0].dtype
    return np.concatenate([np.ascontiguousarray(part, kind).view(np.uint8) for part in parts]).view(kind)


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
