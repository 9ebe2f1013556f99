"""Moves as UCI writes them: for chess the squares from and to (e2e4, e7e8q), for other games their own notation."""

import numpy as np

from az_mpi.games.openspiel import OpenSpiel, long_algebraic
from az_mpi.play.session import Session


class Moves:
    """The moves of a game in its own notation, which must be single words.

    variant: the game's name in UCI. start_fen: of its first position; "": unknown."""

    start_fen = ""

    def __init__(self, session: Session):
        self.session = session
        self.variant = session.game.name.partition("(")[0].replace(" ", "_")

    def word(self, state: np.ndarray, action: int) -> str:
        """Return the word for a legal action of a state, [S]."""
        return self.session.game.action_to_text(state, action)

    def line(self, actions: list[int]) -> list[str]:
        """Return the words for moves from the present position on."""
        return [self.word(state, action) for state, action in zip(self.session.positions(actions), actions)]

    def find(self, text: str) -> int | None:
        """Return the legal action that a word names; None if there is none."""
        words = {self.word(self.session.state, action): action for action in self.session.legal().values()}
        return words.get(text)


class ChessMoves(Moves):
    """The moves of OpenSpiel's chess in long algebraic notation: castling is the king's move, e1g1."""

    def __init__(self, session: Session, game: OpenSpiel):
        super().__init__(session)
        self.game = game
        self.variant = "chess"
        self.start_fen = self.game.live(session.states[0]).board().to_fen()

    def word(self, state: np.ndarray, action: int) -> str:
        return long_algebraic(self.game.live(state), action)


def moves_of(session: Session) -> Moves:
    """Return the moves of a session's game."""
    game = session.game
    if isinstance(game, OpenSpiel) and game.game.get_type().short_name == "chess":
        return ChessMoves(session, game)
    return Moves(session)
