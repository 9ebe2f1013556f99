"""OpenSpiel (the package open_spiel) as a second implementation of the rules."""

import numpy as np
import pytest


def agree(game, name, theirs, num_games, seed=0, legal_there=lambda other, ours: other.legal_actions()):
    """Play random games beside OpenSpiel's game `name`, and compare who moves, the legal moves and the results at every
    position. theirs(state, player, actions, their state) returns the numbers there of some actions, int [n].
    legal_there(their state, numbers of our legal actions) returns the legal ones there."""
    pyspiel = pytest.importorskip("pyspiel")
    rules, rng, plies = pyspiel.load_game(name), np.random.default_rng(seed), 0
    others, states = [rules.new_initial_state() for _ in range(num_games)], game.initial(num_games)
    while len(states):
        legal, player, (ended, value) = game.legal(states), game.to_play(states), game.terminal(states)
        actions = np.argmax((1 - rng.random(legal.shape)) * legal, axis=1)
        for i, other in enumerate(others):
            assert other.is_terminal() == ended[i], f"\n{other}"
            if ended[i]:
                assert other.returns()[player[i]] == value[i], f"\n{other}"
                continue
            assert other.current_player() == player[i]
            ours = np.flatnonzero(legal[i])
            numbers = np.asarray(theirs(states[i], player[i], ours, other))
            assert sorted(numbers) == sorted(legal_there(other, set(numbers))), f"\n{other}"
            other.apply_action(int(numbers[ours == actions[i]][0]))
        others = [other for i, other in enumerate(others) if not ended[i]]
        states, plies = game.play(states[~ended], actions[~ended]), plies + 1
    return plies


# Some games in `make test`, a thousand in `make test-long`.
NUM_GAMES = pytest.mark.parametrize("num_games", [32, pytest.param(1000, marks=pytest.mark.slow)])


def same(state, player, actions, other):
    """Say that actions have the same numbers."""
    return actions


def perft(game, depth):
    """Return the number of ways to play 1, 2, ... `depth` plies from the start."""
    states, counts = game.initial(1), []
    for _ in range(depth):
        row, action = np.nonzero(game.legal(states) & ~game.terminal(states)[0][:, None])
        states = game.play(states[row], action)
        counts.append(len(states))
    return counts
