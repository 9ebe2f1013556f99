"""A player of matches that always takes the lowest legal action, or the highest."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Scripted:
    """Plays the lowest legal action, or the highest; notes (game, who is to move) of each move."""

    highest: bool
    moves: list

    def seat(self, game, states, indices, moves):
        return _ScriptedSeat(self, game, states.copy(), indices)


@dataclass
class _ScriptedSeat:
    player: Scripted
    game: object
    states: np.ndarray
    indices: np.ndarray

    def choose(self, slots):
        self.player.moves += zip(self.indices[slots].tolist(), self.game.to_play(self.states[slots]).tolist())
        legal = self.game.legal(self.states[slots])
        lowest, highest = np.argmax(legal, axis=1), legal.shape[1] - 1 - np.argmax(legal[:, ::-1], axis=1)
        return highest if self.player.highest else lowest

    def advance(self, slots, actions):
        self.states[slots] = self.game.play(self.states[slots], actions)
