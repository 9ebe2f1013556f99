"""The replay window: the newest positions, split over the trainers and held in their memory.

Every position of the run has an index, counted from 0 in the order in which segments store them. Trainer k of n holds
the positions whose index is k modulo n, so the shards differ by at most one position, and a run can resume on another
number of ranks. Policies are sparse until a batch is made.

Shapes: n positions, C planes, H rows, W columns, A actions, M policy entries in all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from az_mpi.games.base import Game
from az_mpi.games.symmetry import permute, turn_cells
from az_mpi.selfplay.record import Record, sparse_policy

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.mpi.world import World
    from az_mpi.network.heads.head import Head

ILLEGAL = np.float32(-1)  # in place of the probability of an action that is not legal
HELD_POLICY = np.dtype([("action", "<i2"), ("probability", "<f4")])  # POLICY, for fewer actions: `search` refuses more


def sample_dtype(game: Game, heads: Mapping[str, "Head"]) -> np.dtype:
    """Return the dtype of a position to train on. heads: of the network, by name."""
    return np.dtype(
        [
            ("index", "<i8"),
            ("state", game.state_dtype, (game.state_size,)),
            ("ply", "<i4"),
            ("weight", "<f4"),
            ("policy_count", "<i4"),  # its number of policy entries
            *((name, head.target_dtype) for name, head in heads.items() if head.target_dtype is not None),
        ]
    )


@dataclass
class Samples:
    """Positions to train on: rows sample_dtype [n] in the order of their indices; policy POLICY [M], row by row."""

    rows: np.ndarray
    policy: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, policy: np.ndarray) -> "Samples":
        """Return the rows, sample_dtype [n], with these policies, float [n, A]. Sets their `policy_count`."""
        rows["policy_count"], entries = sparse_policy(policy)
        return cls(rows, entries)


def to_samples(
    record: Record, game: Game, heads: Mapping[str, "Head"], settings: "schema.Train", first_index: int
) -> Samples:
    """Return the positions of a record as `Samples`, numbered from `first_index`. settings: `config.train`."""
    rows = np.empty(len(record.positions), sample_dtype(game, heads))
    rows["index"] = first_index + np.arange(len(rows))
    for name in ("ply", "state", "weight", "policy_count"):
        rows[name] = record.positions[name]
    for name, head in heads.items():
        if head.target_dtype is not None:
            rows[name] = head.target(record, game, settings)
    return Samples(rows, record.policy)


def window_size(settings: "schema.Replay", positions_made: int) -> int:
    """Return how many of the newest positions the window holds when the run has made `positions_made`. settings:
    `config.replay`.

    N positions made, c = window_min, beta = window_growth, alpha = window_exponent. With alpha = 1 it is beta N, else
    c (1 + beta ((N / c)^alpha - 1) / alpha) (Wu 2019, "Accelerating Self-Play Learning in Go", appendix). The second
    has the slope beta at N = c, and a smaller one from there on."""
    least, growth, exponent = settings.window_min, settings.window_growth, settings.window_exponent
    grown = growth * positions_made
    if exponent < 1:
        grown = least * (1 + growth * ((positions_made / least) ** exponent - 1) / exponent)
    return min(max(int(grown), least), settings.window_max)


def deal(world: "World", num_trainers: int, samples: Samples, compress: bool = False) -> Samples:
    """Send each position to the trainer that holds its index; return those for this rank. Collective over world.

    The trainers are the first `num_trainers` ranks of the world.
    """
    trainer = samples.rows["index"] % num_trainers
    rows = world.exchange(samples.rows, trainer, compress)
    return Samples(rows, world.exchange(samples.policy, np.repeat(trainer, samples.rows["policy_count"]), compress))


class _Ring:
    """A ring buffer of rows: new rows are appended and the oldest dropped without moving the others.

    Rows are numbered in the order in which they came. The ring holds those from `begin` to `end` - 1, row k at k modulo
    the length of the array.
    """

    def __init__(self, dtype: np.dtype):
        self.array, self.begin, self.end = np.empty(0, dtype), 0, 0

    def append(self, rows):
        """Append rows. If there is no room, move to an array that is an eighth larger than needed."""
        needed = self.end - self.begin + len(rows)
        if needed > len(self.array):
            held = self.parts()  # views of the old array
            self.array, self.end = np.empty(needed + needed // 8, self.array.dtype), self.begin
            for part in held:
                self.append(part)
        first = self.end % max(len(self.array), 1)
        fits = min(len(rows), len(self.array) - first)
        self.array[first : first + fits], self.array[: len(rows) - fits] = rows[:fits], rows[fits:]
        self.end += len(rows)

    def parts(self):
        """Return the rows, oldest first, as two views of the array."""
        first, num = self.begin % max(len(self.array), 1), self.end - self.begin
        return [self.array[first : first + num], self.array[: max(first + num - len(self.array), 0)]]


class Replay:
    """One trainer's shard of the window: two rings, of positions and of their policy entries."""

    def __init__(self, game: Game, heads: Mapping[str, "Head"]):
        self.game, self._heads = game, heads
        row = sample_dtype(game, heads)
        # policy_first: the number, in the other ring, of the first policy entry. Aligned: numpy copies other rows by
        # way of buffers of 50 KB.
        self._rows = _Ring(np.dtype([("policy_first", "<i8"), *((name, row[name]) for name in row.names)], align=True))
        self._policy = _Ring(HELD_POLICY)
        self._lands = np.argsort(game.symmetry_actions, axis=1)  # [k, a]: the action that symmetry k makes of action a

    @property
    def num_positions(self) -> int:
        """The number of positions in this shard."""
        return self._rows.end - self._rows.begin

    @property
    def num_bytes(self) -> int:
        """The memory of the rings in bytes."""
        return self._rows.array.nbytes + self._policy.array.nbytes

    @property
    def largest_bytes(self) -> int:
        """The memory of the larger ring: so much more is needed while it moves to a larger array."""
        return max(self._rows.array.nbytes, self._policy.array.nbytes)

    def add(self, samples: Samples) -> None:
        """Append samples. Their indices are larger than all those in the shard."""
        rows: np.ndarray = np.empty(len(samples.rows), self._rows.array.dtype)
        for name in samples.rows.dtype.names:
            rows[name] = samples.rows[name]
        counts = samples.rows["policy_count"]
        rows["policy_first"] = self._policy.end + np.cumsum(counts, dtype=np.int64) - counts
        self._rows.append(rows)
        self._policy.append(samples.policy)

    def forget(self, oldest_index: int) -> None:
        """Drop the positions whose index is below `oldest_index`."""
        rows, policy = self._rows, self._policy
        rows.begin += sum(int(np.searchsorted(part["index"], oldest_index)) for part in rows.parts())
        policy.begin = next((int(part["policy_first"][0]) for part in rows.parts() if len(part)), policy.end)

    def states(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw n positions with replacement and return their states, [n, S]. The shard must not be empty."""
        return self._rows.array["state"][self._draw(rng, n)]

    def find(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Look for the positions with these indices, int64 [n]. Return (which of them this shard holds, bool [n]; the
        states of these, [m, S]; the moves before them, int32 [m])."""
        rows = self._rows.array
        held = np.concatenate([part["index"] for part in self._rows.parts()])
        at = np.searchsorted(held, indices)
        found = at < len(held)
        found[found] = held[at[found]] == indices[found]
        places = (self._rows.begin + at[found]) % max(len(rows), 1)
        return found, rows["state"][places], rows["ply"][places]

    def _draw(self, rng, n):
        """Return the places of n positions that are drawn with replacement, int64 [n]."""
        drawn = rng.integers(self.num_positions, size=n) if n else np.empty(0, np.int64)
        return (self._rows.begin + drawn) % max(len(self._rows.array), 1)

    def sample(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        """Draw n positions with replacement and turn each by a random symmetry; an empty shard gives none.

        Returns {"planes": the game's planes_dtype [n, C, H, W], "policy": float32 [n, A], ILLEGAL for
        each action that is not legal, "weight": float32 [n]} and the target of each other head under the head's name.
        """
        n, rows, policy = n if self.num_positions else 0, self._rows, self._policy.array
        places = self._draw(rng, n)
        symmetry = rng.integers(len(self.game.symmetry_cells), size=n)
        # Fields, not rows: the dtype of a row depends on the game's states, and `_gather` would be compiled for each.
        fields = [rows.array[name] for name in ("state", "policy_first", "policy_count")]
        states, policies = _gather(*fields, policy["action"], policy["probability"], places, self.game.num_actions)
        # What was played is legal, also where the rules ask for more than the state, such as the moves before it.
        policies[~self.game.legal(states) & (policies == 0)] = ILLEGAL
        planes, policies = turn(self.game, self.game.planes(states), policies, symmetry)
        batch = {"planes": planes, "policy": policies, "weight": rows.array["weight"][places]}
        for name in (name for name, head in self._heads.items() if head.target_dtype is not None):
            batch[name] = target = rows.array[name][places]
            if self._heads[name].is_board:
                batch[name] = turn_cells(target[:, None], self.game.symmetry_cells, symmetry)[:, 0]
            elif self._heads[name].is_action:
                batch[name] = np.where(target < 0, target, self._lands[symmetry, target]).astype(target.dtype)
        return batch


def turn(game: Game, planes: np.ndarray, policy: np.ndarray, symmetry: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return planes [n, C, H, W] and policy [n, A], position i turned by the game's symmetry number symmetry[i]."""
    return turn_cells(planes, game.symmetry_cells, symmetry), permute(
        policy[:, None, :], game.symmetry_actions, symmetry
    )[:, 0]


@njit(cache=True, nogil=True)
def _gather(state, first, count, action, probability, places, num_actions):
    """Return (states [n, S], policies float32 [n, A]) of the rows at `places`, int64 [n].

    state [N, S], first [N] and count [N] are columns of the rows; action and probability those of the policy ring, in
    which entry number k lies at k modulo its length."""
    n = len(places)
    states, policies = np.empty((n, state.shape[1]), state.dtype), np.zeros((n, num_actions), np.float32)
    entries, nums = np.empty(n, np.int64), np.empty(n, np.int64)
    # Two passes are faster: each row is a cache miss, and its policy entries another one that depends on the first.
    for i in range(n):
        row = places[i]
        for j in range(state.shape[1]):  # element by element: the numbers are few, and a slice costs more
            states[i, j] = state[row, j]
        entries[i], nums[i] = first[row] % max(len(action), 1), count[row]
    for i in range(n):
        entry = entries[i]
        for _ in range(nums[i]):
            policies[i, action[entry]] = probability[entry]
            entry = entry + 1 if entry + 1 < len(action) else 0
    return states, policies
