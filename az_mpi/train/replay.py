"""The replay window: the newest positions, split over the trainers and held in their memory.

Every position of the run has an index, counted from 0 in the order in which segments store them. Trainer k of n holds
those with index = k modulo n, so shards differ by at most one position whoever played them, and a run that resumes
on another number of ranks deals them out anew.

Shapes: n positions, C planes, H rows, W columns, A actions, K symmetries.
"""

import numpy as np
from numba import njit

from az_mpi.games.symmetry import permute


def sample_dtype(game):
    """Return the row of a position as it is trained on."""
    return np.dtype(
        [
            ("index", "<i8"),
            ("state", game.state_dtype, (game.state_size,)),
            ("policy", "<f4", (game.num_actions,)),
            ("value", "<f4"),
            ("weight", "<f4"),
        ]
    )


def to_samples(record, game, first_index, root_value_share):
    """Return the positions of a record as rows of `sample_dtype`, numbered from `first_index`.

    The value target is (1 - root_value_share) z + root_value_share q, of the outcome and the search's root value.
    """
    rows = np.empty(len(record.positions), sample_dtype(game))
    rows["index"] = first_index + np.arange(len(rows))
    rows["policy"] = record.dense_policy(game.num_actions)
    rows["state"], rows["weight"] = record.positions["state"], record.positions["weight"]
    outcome, root_value = record.positions["value"], record.positions["root_value"]
    rows["value"] = (1 - root_value_share) * outcome + root_value_share * root_value
    return rows


def window_size(settings, positions_made):
    """Return how many of the newest positions are trained on. settings: `config.replay`."""
    grown = int(settings.window_growth * positions_made)
    return min(max(grown, settings.window_min), settings.window_max)


def deal(world, trainers_num, rows, compress=False):
    """Send each row to the trainer that holds its index and return the rows for this rank. Collective.

    Trainers are the first `trainers_num` ranks of the world. rows: `sample_dtype` [n].
    """
    return world.exchange(rows, rows["index"] % trainers_num, compress)


class Replay:
    """One trainer's shard of the window."""

    def __init__(self, game):
        self.game = game
        self._buffer = np.empty(0, sample_dtype(game))
        self._start, self._end = 0, 0  # of the rows held, in the buffer

    @property
    def rows(self):
        """The rows held, oldest first, `sample_dtype` [n]: a view, until the next `add`."""
        return self._buffer[self._start : self._end]

    def add(self, rows):
        """Take in new rows in the order of their indices, which follow those held."""
        held, needed = self.rows, self._end - self._start + len(rows)
        if self._start + needed > len(self._buffer):
            # A new array for each change would take the window's memory two to three times over.
            if needed > 0.9 * len(self._buffer):
                self._buffer = np.empty(needed + needed // 4, held.dtype)
            # As bytes: numpy would first copy rows of fields that move within one array.
            self._buffer[: len(held)].view(np.uint8)[:] = held.view(np.uint8)
            self._start, self._end = 0, len(held)
        self._buffer[self._end : self._start + needed] = rows
        self._end = self._start + needed

    def forget(self, oldest_index):
        """Drop the rows whose index is below `oldest_index`."""
        self._start += int(np.searchsorted(self.rows["index"], oldest_index))

    def sample(self, rng, n):
        """Draw n positions with replacement, each seen through a random symmetry; none from an empty shard.

        Returns (planes uint8 [n, C, H, W], policy float32 [n, A], value float32 [n], weight float32 [n]).
        """
        n = n if len(self.rows) else 0
        drawn = rng.integers(len(self.rows), size=n) if n else np.empty(0, np.int64)
        symmetry = rng.integers(len(self.game.symmetry_cells), size=n)
        # Fields, not rows: compiled code knows them whatever a game's states are.
        fields = [self.rows[name] for name in ("state", "policy", "value", "weight")]
        states, policy, value, weight = _gather(*fields, drawn)
        planes, policy = turn(self.game, self.game.planes(states), policy, symmetry)
        return planes, policy, value, weight


def turn(game, planes, policy, symmetry):
    """Return planes [n, C, H, W] and policy [n, A] seen through symmetry k = symmetry[i] of the game each."""
    flat = planes.reshape(*planes.shape[:2], planes.shape[2] * planes.shape[3])
    turned = permute(flat, game.symmetry_cells, symmetry).reshape(planes.shape)
    return turned, permute(policy[:, None, :], game.symmetry_actions, symmetry)[:, 0]


@njit(cache=True, nogil=True)
def _gather(state, policy, value, weight, drawn):
    """Return rows `drawn`, int64 [n], of the columns state [N, S], policy [N, A], value [N] and weight [N]."""
    n = len(drawn)
    states, policies = np.empty((n, state.shape[1]), state.dtype), np.empty((n, policy.shape[1]), policy.dtype)
    values, weights = np.empty(n, value.dtype), np.empty(n, weight.dtype)
    for i in range(n):
        # Element by element: rows lie far apart, and a slice each would cost more than its few numbers.
        for j in range(state.shape[1]):
            states[i, j] = state[drawn[i], j]
        for a in range(policy.shape[1]):
            policies[i, a] = policy[drawn[i], a]
        values[i], weights[i] = value[drawn[i]], weight[drawn[i]]
    return states, policies, values, weights
