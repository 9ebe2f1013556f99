"""The random numbers of a match that decide its chance moves, such as throws of dice."""

from collections.abc import Sequence

import numpy as np

DICE = 3  # tells these numbers from others of the same seed
BLOCK = 64  # numbers that are drawn at once


class Dice:
    """Numbers in [0, 1), by the set of games and the count of a game's chance moves.

    The games of a set, such as the two of a pair with exchanged seats, have the same numbers: the k-th chance move of
    each uses number k of the set. They depend on the seed and the set alone, so they are the same on any number of
    ranks."""

    def __init__(self, seed: int | Sequence[int]):
        self._seed = [*np.atleast_1d(seed).tolist(), DICE]
        self._sets: dict[int, tuple[np.random.Generator, list[float]]] = {}

    def number(self, of_set: int, k: int) -> float:
        """Return the number of chance move k, from 0 on, of the games of a set."""
        if of_set not in self._sets:
            self._sets[of_set] = np.random.default_rng([*self._seed, of_set]), []
        generator, numbers = self._sets[of_set]
        while len(numbers) <= k:
            numbers += generator.random(BLOCK).tolist()
        return numbers[k]
