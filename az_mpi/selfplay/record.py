"""What a finished game is: three arrays of rows that travel and are stored as they are.

P positions in all, S numbers a state, A actions, M policy entries in all.
"""

from dataclasses import dataclass

import numpy as np

GAME = np.dtype(
    [
        ("id", "<u8"),  # unique for ever, see `game_ids`
        ("rank", "<i4"),  # who played it
        ("iteration", "<i4"),  # when it was begun
        ("length", "<i4"),  # positions of the game, also its number of rows in `positions`
        ("outcome", "<f4"),  # for the player who began, in [-1, 1]
        ("truncated", "?"),  # ended by the move cap, scored as a draw
    ]
)
POLICY = np.dtype([("action", "<i4"), ("probability", "<f4")])


def position_dtype(game):
    """Return the row of a position of `game`; rows follow each other game by game, ply by ply."""
    return np.dtype(
        [
            ("game", "<u8"),  # the game's id
            ("ply", "<i4"),
            ("to_play", "i1"),
            ("action", "<i4"),  # what was played here
            ("value", "<f4"),  # the game's outcome for the player to move
            ("root_value", "<f4"),  # the search's mean value for the player to move
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
    def empty(cls, game):
        return cls(np.empty(0, GAME), np.empty(0, position_dtype(game)), np.empty(0, POLICY))

    @classmethod
    def join(cls, game, records):
        """Return one record with the games of all, in order."""
        parts = [cls.empty(game), *records]
        return cls(*(np.concatenate([getattr(r, k) for r in parts]) for k in ("games", "positions", "policy")))

    def select(self, chosen):
        """Return a record of the games where `chosen`, bool [n], is true."""
        positions = np.repeat(chosen, self.games["length"])
        policy = np.repeat(positions, self.positions["policy_count"])
        return Record(self.games[chosen], self.positions[positions], self.policy[policy])

    def gather(self, world, compress=False):
        """Return the record of all ranks' games, in rank order, on root; None elsewhere. Collective."""
        arrays = [world.gather(rows, compress) for rows in (self.games, self.positions, self.policy)]
        return Record(*arrays) if world.is_root else None

    def from_root(self, world, compress=False):
        """Return root's record on rank 1 and one without games elsewhere. Collective over two ranks or more."""
        arrays = [rows if world.is_root else rows[:0] for rows in (self.games, self.positions, self.policy)]
        return Record(*(world.exchange(rows, np.ones(len(rows), np.int64), compress) for rows in arrays))

    def dense_policy(self, num_actions):
        """Return the policy targets as float32 [P, A]."""
        dense = np.zeros((len(self.positions), num_actions), np.float32)
        rows = np.repeat(np.arange(len(self.positions)), self.positions["policy_count"])
        dense[rows, self.policy["action"]] = self.policy["probability"]
        return dense


def sparse_policy(policy):
    """Return (the number of entries of each row, int64 [P]; POLICY [M], row by row) of float [P, A]; zeros are left
    out."""
    rows, actions = np.nonzero(policy)
    entries = np.empty(len(actions), POLICY)
    entries["action"], entries["probability"] = actions, policy[rows, actions]
    return np.bincount(rows, minlength=len(policy)), entries


def game_ids(iteration, attempt, indices):
    """Return ids that no other game of the run has, uint64: 24 bits iteration, 12 bits attempt, 28 bits index.

    indices: which game of the iteration. attempt: which start of the run; 0 for games that come out the same
    whenever they are played, so that a game played twice is known for one.
    """
    return np.asarray(indices, np.uint64) | np.uint64(iteration << 40 | (attempt & 0xFFF) << 28)
