"""Moves as UCI writes them: for chess the squares from and to (e2e4, e7e8q), for other games their own notation."""

from typing import Any

import numpy as np

from az_mpi.games import chess_notation
from az_mpi.games.base import Game, legal_words, positions
from az_mpi.games.chess import Rules as Chess
from az_mpi.games.openspiel import OpenSpiel, long_algebraic


class Moves:
    """The moves of a game in its own notation, which must be single words.

    variant: the game's name in UCI. variants: all names that a program may have for it. start_fen: of its first
    position; "": unknown."""

    start_fen = ""

    def __init__(self, game: Game):
        self.game = game
        self.variant = game.name.partition("(")[0].replace(" ", "_")
        kind = type(game)
        # `az_mpi uci` offers its variant before it has loaded a game: it knows the name in the configuration alone,
        # which ends with the class, or is the module of a built-in game.
        self.variants: tuple[str, ...] = (self.variant, kind.__name__, kind.__module__.rpartition(".")[2])

    def word(self, state: np.ndarray, action: int) -> str:
        """Return the word for a legal action of a state, [S]."""
        return self.game.action_to_text(state, action)

    def line(self, state: np.ndarray, actions: list[int]) -> list[str]:
        """Return the words for moves from a position, [S], on."""
        return [self.word(before, action) for before, action in zip(positions(self.game, state, actions), actions)]

    def find(self, state: np.ndarray, text: str) -> int | None:
        """Return the legal action of a position, [S], that a word names; None if there is none."""
        words = {self.word(state, action): action for action in legal_words(self.game, state).values()}
        return words.get(text)


class ChessMoves(Moves):
    """The moves of OpenSpiel's chess in long algebraic notation: castling is the king's move, e1g1."""

    game: Any

    def __init__(self, game: Game):
        super().__init__(game)
        self.variant = "chess"
        self.variants = ("chess",)
        self.start_fen = chess_notation.START

    def word(self, state: np.ndarray, action: int) -> str:
        return long_algebraic(self.game.live(state), action)


class NativeChessMoves(ChessMoves):
    """The moves of native chess. In Chess960 castling is the king's move on to its rook, e1h1; both ways to write it
    are understood."""

    def word(self, state: np.ndarray, action: int) -> str:
        return chess_notation.uci(self.game, state, action)

    def find(self, state: np.ndarray, text: str) -> int | None:
        return chess_notation.find_uci(self.game, state, text)

    def continued(self, state: np.ndarray) -> np.ndarray | None:
        """Return a position, [S], from which a game that is a draw by its past may continue, where the arbiter has not
        ended it; None if no move is left."""
        after = self.game.without_past(state)
        return None if self.game.terminal(after[None])[0][0] else after


def uci_moves(game: Game) -> Moves:
    """Return how UCI writes the moves of a game."""
    if isinstance(game, OpenSpiel) and game.game.get_type().short_name == "chess":
        return ChessMoves(game)
    return NativeChessMoves(game) if isinstance(game, Chess) else Moves(game)
