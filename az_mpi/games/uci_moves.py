"""Moves as UCI writes them: for chess the squares from and to (e2e4, e7e8q), for other games their own notation."""

from typing import Any

import numpy as np

from az_mpi.games import chess_notation
from az_mpi.games.base import Game, legal_words, positions
from az_mpi.games.chess import TRUNCATED
from az_mpi.games.chess import Rules as Chess
from az_mpi.games.openspiel import OpenSpiel, long_algebraic

TO_ROOK = {"e1h1": "e1g1", "e1a1": "e1c1", "e8h8": "e8g8", "e8a8": "e8c8"}


class Moves:
    """The moves of a game in its own notation, which must be single words.

    variant: the game's name in UCI. variants: all names that a program may have for it. start_fen: of its first
    position; "": unknown. chess960: whether castling is written as the king's move on to its rook; it may be changed.
    """

    start_fen = ""
    chess960 = False

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

    def after(self, state: np.ndarray, action: int) -> np.ndarray:
        """Return the state, [S], after a legal action."""
        return self.game.play(state[None], np.array([action]))[0]

    def place(self, actions: list[int]) -> str:
        """Return what follows `position` for the position after actions from the game's first one on."""
        words = self.line(self.game.initial(1)[0], actions)
        return f"startpos moves {' '.join(words)}" if words else "startpos"

    def position(self, text: str) -> np.ndarray:
        """Return the state, [S], that a text describes, a FEN in chess. Raises ValueError if the game has none."""
        read = getattr(self.game, "text_to_state", None)
        if read is None:
            raise ValueError(f"{self.game.name} has no positions as text")
        return read(text)

    def continued(self, state: np.ndarray) -> np.ndarray | None:
        """Return a position, [S], from which a game that is over by the rules may continue, where the arbiter has not
        ended it; None if no move is left."""
        return None

    def beyond(self, state: np.ndarray) -> "tuple[Moves, np.ndarray] | None":
        """Return a position, [S], in which the game's own rules have no moves, in other rules that have some, with the
        words for these; None if there are no such rules."""
        return None


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

    def find(self, state: np.ndarray, text: str) -> int | None:
        found = super().find(state, text)
        castles = found is None and text in TO_ROOK  # as Chess960 has it: no other move takes an own rook
        return super().find(state, TO_ROOK[text]) if castles else found

    def continued(self, state: np.ndarray) -> np.ndarray | None:
        """After a third repetition or 50 moves: the same position without history and count."""
        board, mover, castling, passant, *_ = self.game.state_to_text(state).split()
        after = self.position(f"{board} {mover} {castling} {passant} 0 1")
        return None if self.game.terminal(after[None])[0][0] else after

    def beyond(self, state: np.ndarray) -> "tuple[Moves, np.ndarray]":
        """With too few pieces for a mate OpenSpiel has no moves. Native chess has them."""
        native = NativeChessMoves(Chess())
        return native, native.position(self.game.state_to_text(state))


class NativeChessMoves(ChessMoves):
    """The moves of native chess. With `chess960`, as for the game chess(chess960=True), castling is written as the
    king's move on to its rook, e1h1; both ways to write it are understood."""

    def __init__(self, game: Game):
        super().__init__(game)
        self.chess960 = self.game.chess960

    def word(self, state: np.ndarray, action: int) -> str:
        return chess_notation.uci(self.game, state, action, self.chess960)

    def place(self, actions: list[int]) -> str:
        if not (self.game.chess960 and actions):
            return super().place(actions)
        first = self.after(self.game.initial(1)[0], actions[0])
        words = self.line(first, actions[1:])
        return f"fen {self.game.state_to_text(first)}" + " moves ".join(["", " ".join(words)] if words else [""])

    def beyond(self, state: np.ndarray) -> "tuple[Moves, np.ndarray]":
        return self, state

    def find(self, state: np.ndarray, text: str) -> int | None:
        return chess_notation.find_uci(self.game, state, text)

    def continued(self, state: np.ndarray) -> np.ndarray | None:
        """Return a position, [S], from which a game that is a draw by its past may continue, where the arbiter has not
        ended it; None if no move is left."""
        after = self.game.without_past(state)
        return None if self.game.terminal(after[None])[0][0] else after


def start_of(game: Game) -> np.ndarray:
    """Return the state, [S], that UCI calls startpos. In Chess960 it is that of chess, since the other start positions
    come as FEN."""
    return game.text_to_state(chess_notation.START) if isinstance(game, Chess) else game.initial(1)[0]


def with_chess960(game: Game) -> Game:
    """Return chess with the start positions and castling of Chess960, in which a network of chess plays too."""
    if not isinstance(game, Chess) or game.chess960:
        return game
    return Chess(game.history, True, game.max_plies, TRUNCATED[int(game.by_material)])


def uci_moves(game: Game) -> Moves:
    """Return how UCI writes the moves of a game."""
    if isinstance(game, OpenSpiel) and game.game.get_type().short_name == "chess":
        return ChessMoves(game)
    return NativeChessMoves(game) if isinstance(game, Chess) else Moves(game)
