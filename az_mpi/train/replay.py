"""The replay window: the newest positions, split over the trainers and held in their memory.

Every position of the run has an index, counted from 0 in the order in which segments store them. Trainer k of n holds
those with index = k modulo n, so shards differ by at most one position whoever played them, and a run that resumes
on another number of ranks deals them out anew. Policies are sparse until a batch is made.

Shapes: n positions, C planes, H rows, W columns, A actions, M policy entries in all, K symmetries.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from az_mpi.games.symmetry import permute
from az_mpi.selfplay.record import sparse_policy

HELD_POLICY = np.dtype([("action", "<i2"), ("probability", "<f4")])  # POLICY; more actions than these `search` refuses


def sample_dtype(game, heads):
    """Return the row of a position as it is trained on. heads: {name: `network.heads.head.Head`}."""
    return np.dtype(
        [
            ("index", "<i8"),
            ("state", game.state_dtype, (game.state_size,)),
            ("weight", "<f4"),
            ("policy_count", "<i4"),  # its number of policy entries
            *((name, head.target_dtype) for name, head in heads.items() if head.target_dtype is not None),
        ]
    )


@dataclass
class Samples:
    """Positions to train on: rows `sample_dtype` [n] in the order of their indices, policy POLICY [M], row by row."""

    rows: np.ndarray
    policy: np.ndarray

    @classmethod
    def of(cls, rows, policy):
        """Return the rows, `sample_dtype` [n], with these policies, float [n, A]."""
        rows["policy_count"], entries = sparse_policy(policy)
        return cls(rows, entries)


def to_samples(record, game, heads, settings, first_index):
    """Return the positions of a record as `Samples`, numbered from `first_index`. settings: `config.train`."""
    rows = np.empty(len(record.positions), sample_dtype(game, heads))
    rows["index"] = first_index + np.arange(len(rows))
    for name in ("state", "weight", "policy_count"):
        rows[name] = record.positions[name]
    for name, head in heads.items():
        if head.target_dtype is not None:
            rows[name] = head.target(record, game, settings)
    return Samples(rows, record.policy)


def window_size(settings, positions_made):
    """Return how many of the newest positions are trained on. settings: `config.replay`."""
    grown = int(settings.window_growth * positions_made)
    return min(max(grown, settings.window_min), settings.window_max)


def deal(world, trainers_num, samples, compress=False):
    """Send each position to the trainer that holds its index and return the `Samples` for this rank. Collective.

    Trainers are the first `trainers_num` ranks of the world.
    """
    trainer = samples.rows["index"] % trainers_num
    rows = world.exchange(samples.rows, trainer, compress)
    return Samples(rows, world.exchange(samples.policy, np.repeat(trainer, samples.rows["policy_count"]), compress))


class _Ring:
    """Rows in an array, appended after the newest and dropped from the oldest on, without moving the others.

    Rows are numbered in the order in which they came; those from `begin` to `end` are held, row k at k modulo the
    length of the array.
    """

    def __init__(self, dtype):
        self.array, self.begin, self.end = np.empty(0, dtype), 0, 0

    def append(self, rows):
        """Add rows after the newest; take a larger array, with an eighth in reserve, where there is no room."""
        needed = self.end - self.begin + len(rows)
        if needed > len(self.array):
            held, self.array, self.end = self.parts(), np.empty(needed + needed // 8, self.array.dtype), self.begin
            for part in held:
                self.append(part)
        first = self.end % max(len(self.array), 1)
        fits = min(len(rows), len(self.array) - first)
        self.array[first : first + fits], self.array[: len(rows) - fits] = rows[:fits], rows[fits:]
        self.end += len(rows)

    def parts(self):
        """Return the rows held, oldest first, as two views."""
        first, num = self.begin % max(len(self.array), 1), self.end - self.begin
        return [self.array[first : first + num], self.array[: max(first + num - len(self.array), 0)]]


class Replay:
    """One trainer's shard of the window: two rings, of positions and of their policy entries."""

    def __init__(self, game, heads):
        self.game, self._heads = game, heads
        row = sample_dtype(game, heads)
        # policy_first: the number of the position's first policy entry.
        self._rows = _Ring(np.dtype([*((name, row[name]) for name in row.names), ("policy_first", "<i8")]))
        self._policy = _Ring(HELD_POLICY)

    @property
    def positions_num(self):
        """How many positions are held."""
        return self._rows.end - self._rows.begin

    @property
    def num_bytes(self):
        """The memory that the rings take, in bytes."""
        return self._rows.array.nbytes + self._policy.array.nbytes

    def add(self, samples):
        """Take in `Samples` whose indices follow those held."""
        rows = np.empty(len(samples.rows), self._rows.array.dtype)
        for name in samples.rows.dtype.names:
            rows[name] = samples.rows[name]
        counts = samples.rows["policy_count"]
        rows["policy_first"] = self._policy.end + np.cumsum(counts, dtype=np.int64) - counts
        self._rows.append(rows)
        self._policy.append(samples.policy)

    def forget(self, oldest_index):
        """Drop the positions whose index is below `oldest_index`."""
        rows, policy = self._rows, self._policy
        rows.begin += sum(int(np.searchsorted(part["index"], oldest_index)) for part in rows.parts())
        policy.begin = next((int(part["policy_first"][0]) for part in rows.parts() if len(part)), policy.end)

    def states(self, rng, n):
        """Draw n positions with replacement, not from an empty shard; return their states [n, S]."""
        return self._rows.array["state"][self._draw(rng, n)]

    def _draw(self, rng, n):
        """Return where n positions are that are drawn with replacement, int64 [n]."""
        drawn = rng.integers(self.positions_num, size=n) if n else np.empty(0, np.int64)
        return (self._rows.begin + drawn) % max(len(self._rows.array), 1)

    def sample(self, rng, n):
        """Draw n positions with replacement, each seen through a random symmetry; none from an empty shard.

        Returns {"planes": uint8 [n, C, H, W], "policy": float32 [n, A], "weight": float32 [n], and the target of each
        other head under its name}.
        """
        n, rows, policy = n if self.positions_num else 0, self._rows, self._policy.array
        places = self._draw(rng, n)
        symmetry = rng.integers(len(self.game.symmetry_cells), size=n)
        # Fields, not rows: compiled code knows them whatever a game's states are.
        fields = [rows.array[name] for name in ("state", "policy_first", "policy_count")]
        states, policies = _gather(*fields, policy["action"], policy["probability"], places, self.game.num_actions)
        planes, policies = turn(self.game, self.game.planes(states), policies, symmetry)
        batch = {"planes": planes, "policy": policies, "weight": rows.array["weight"][places]}
        for name in (name for name, head in self._heads.items() if head.target_dtype is not None):
            batch[name] = rows.array[name][places]
            if self._heads[name].is_board:
                batch[name] = turn_cells(self.game, batch[name][:, None], symmetry)[:, 0]
        return batch


def turn(game, planes, policy, symmetry):
    """Return planes [n, C, H, W] and policy [n, A] seen through symmetry k = symmetry[i] of the game each."""
    return turn_cells(game, planes, symmetry), permute(policy[:, None, :], game.symmetry_actions, symmetry)[:, 0]


def turn_cells(game, planes, symmetry):
    """Return planes [n, C, H, W] seen through symmetry k = symmetry[i] of the game each."""
    flat = planes.reshape(*planes.shape[:2], planes.shape[2] * planes.shape[3])
    return permute(flat, game.symmetry_cells, symmetry).reshape(planes.shape)


@njit(cache=True, nogil=True)
def _gather(state, first, count, action, probability, places, num_actions):
    """Return (states, policies float32 [n, A]) of the rows at `places`, int64 [n], of the columns state [N, S], first
    and count [N]; policy entry number k lies at k modulo their length in action and probability."""
    n = len(places)
    states, policies = np.empty((n, state.shape[1]), state.dtype), np.zeros((n, num_actions), np.float32)
    entries, nums = np.empty(n, np.int64), np.empty(n, np.int64)
    # In two passes: each waits for memory that lies far apart, and the second one for what the first one finds there.
    for i in range(n):
        row = places[i]
        for j in range(state.shape[1]):  # element by element: a slice each would cost more than its few numbers
            states[i, j] = state[row, j]
        entries[i], nums[i] = first[row] % max(len(action), 1), count[row]
    for i in range(n):
        entry = entries[i]
        for _ in range(nums[i]):
            policies[i, action[entry]] = probability[entry]
            entry = entry + 1 if entry + 1 < len(action) else 0
    return states, policies
