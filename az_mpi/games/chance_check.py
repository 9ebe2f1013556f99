"""The invariants of moves that are drawn by lot, checked in random games.

Shapes: n games, S numbers a state, O outcomes, C planes of H x W.
"""

from __future__ import annotations

import numpy as np

from az_mpi.games import chance
from az_mpi.games.base import Game
from az_mpi.games.state_text import drawn, expect, same

TURNED, LEAVES_MAX = 4, 4096  # games that have a turned image, in a game with chance; ways that chance may go, at most
MASS_WITHIN = 1e-4  # two probabilities that are sums may differ by so much


class Lots:
    """Draws chance's moves in the random games of a check, and checks them on the way.

    The image of a game, turned by a symmetry, is led to the image of what was drawn: to a state that chance can reach
    there, whose planes are the turned ones. Chance must reach it with the same probability.
    """

    def __init__(self, game: Game, rng: np.random.Generator):
        self._game, self._rng = game, rng

    def played(
        self, states: np.ndarray, mirrored: np.ndarray, k: np.ndarray, plies: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return (the states, their images, the symmetries, the plies) after all moves of chance that come first.

        states, mirrored: [n, S]. k: int [n], the symmetry that turns each state into its image; it is 0, and the image
        the state itself, once chance has more than LEAVES_MAX ways. plies: int [n]. Raises AssertionError."""
        game = self._game
        due = chance.due(game, states)
        if not due.any():
            return states, mirrored, k, plies
        expect(
            chance.due(game, mirrored) == due,
            "to_play: a symmetry changes whether a move is drawn by lot",
            game,
            states,
            lambda i: f"its image, by the moves that symmetry {k[i]} gives:\n{drawn(game, mirrored[i])}",
        )
        before, turned = states, np.flatnonzero(due & (k > 0))
        states, mirrored, k, plies = states.copy(), mirrored.copy(), k.copy(), plies.copy()
        alike = due & (k == 0)
        while due.any():
            expect(plies[due] < game.max_plies, "a game is longer than max_plies: chance moves on", game, states[due])
            states[due] = self._drawn(states[due])
            plies[due] += 1
            due = chance.due(game, states)
        mirrored[alike] = states[alike]
        for i in turned:
            image = self._image(before[i], states[i], mirrored[i], k[i])
            if image is None:
                k[i] = 0
            mirrored[i] = states[i] if image is None else image
        return states, mirrored, k, plies

    def _drawn(self, states):
        """Return the states after one move of chance in each, [n, S]."""
        game = self._game
        expect(
            ~game.terminal(states)[0], "to_play: it is chance's move in a state where the game is over", game, states
        )
        chances = game.chances(states)
        expect(same(game.chances(states), chances), "chances gives two answers for the same state", game, states)
        self._check_words(states[0], np.flatnonzero(chances[0]))
        before = states.copy()
        outcomes = chance.draw(game, states, self._rng.random(len(states)))
        after = game.play(states, outcomes)
        expect(same(states, before), "play changed the states that it was given", game, before)
        expect(
            same(game.play(states, outcomes), after),
            "play gives two answers for the same outcome of chance",
            game,
            before,
            lambda i: f"outcome {outcomes[i]}",
        )
        game.show(states[0])
        return after

    def _check_words(self, state, outcomes):
        """Each outcome that can be drawn has a word of its own."""
        words: dict[str, int] = {}
        for outcome in outcomes.tolist():
            word = self._game.outcome_to_text(state, outcome)
            told = None
            if word.split() != [word]:
                told = f"outcome_to_text: outcome {outcome} is {word!r}, not one word"
            elif (other := words.setdefault(word, outcome)) != outcome:
                told = f"outcome_to_text: outcomes {other} and {outcome} are both {word}"
            expect(told is None, told or "", self._game, state[None])

    def _image(self, before, after, mirrored, k):
        """Return the state, [S], that chance can reach from `mirrored`, and that is the image of `after`, which it
        reached from `before`; None if chance has too many ways."""
        game = self._game
        ways, theirs = leaves(game, before), leaves(game, mirrored)
        if ways is None or theirs is None:
            return None
        cells = game.symmetry_cells[k]

        def planes(states):
            return game.planes(states).reshape(len(states), game.planes_shape[0], -1)

        wanted = planes(after[None])[0][:, cells]
        here = (planes(ways[0])[:, :, cells] == wanted).all(axis=(1, 2))
        there = (planes(theirs[0]) == wanted).all(axis=(1, 2))
        masses = float(ways[1][here].sum()), float(theirs[1][there].sum())
        expect(
            abs(masses[0] - masses[1]) < MASS_WITHIN,
            "a symmetry does not map what chance does: symmetry_cells, chances, planes or play is wrong",
            game,
            before[None],
            lambda i: (
                f"probability {masses[0]:.4g} here and {masses[1]:.4g} in its image, by symmetry {k}, for\n"
                f"{drawn(game, after)}"
            ),
        )
        return theirs[0][np.argmax(there)]


def leaves(game: Game, state: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (the states, [m, S], that chance can lead to from a state, [S], before a player moves; the probability of
    each, float64 [m]); None if they are more than LEAVES_MAX."""
    states, weights = state[None], np.ones(1)
    while len(due := np.flatnonzero(chance.due(game, states))):
        rows, outcomes = np.nonzero(chances := game.chances(states[due]))
        if len(rows) + len(states) - len(due) > LEAVES_MAX:
            return None
        after = game.play(states[due][rows], outcomes)
        stay = np.setdiff1d(np.arange(len(states)), due)
        states = np.concatenate([states[stay], after])
        weights = np.concatenate([weights[stay], weights[due][rows] * chances[rows, outcomes]])
    return states, weights
