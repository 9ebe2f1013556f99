"""Chess and Chess960, by the rules of FIDE. `chess_board` has the moves, `chess_state` the layout of a state, and
`chess_notation` FEN, UCI and algebraic notation."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.games import chess_notation, chess_reading
from az_mpi.games.base import require
from az_mpi.games.board_data import Board
from az_mpi.games.chess_board import ACTION_KINDS, OWN, ZERO, can_move, mark_legal
from az_mpi.games.chess_state import (
    BYTE,
    COUNTS,
    FLAGS,
    HISTORY_MAX,
    PLANES_BESIDE,
    PLANES_EACH,
    PLIES,
    REPEATED,
    RIGHTS,
    SAFE,
    SHORT,
    WORDS,
    fill_planes,
    is_drawn,
    key_of,
    play_move,
    set_up,
    target_of,
    worth,
)
from az_mpi.games.piece_figures import CHESS
from az_mpi.games.position_game import PositionGame

if TYPE_CHECKING:
    from collections.abc import Sequence

PLIES_IN_PLAY = 2048  # where no training limits a game; each search keeps paths of that length
USUAL = {"chess960": False, "history": 0, "max_plies": 512, "truncated": "draw"}
TRUNCATED = "draw", "material"
_PIECES = "pawns", "knights", "bishops", "rooks", "queens", "king"
_SIDES = "the player to move", "the other player"
_ALL_TIMES = np.uint64(3)


class Rules(PositionGame):
    """Chess by the rules of FIDE. The third time of a position and 50 moves without a capture or a pawn move are draws
    at once; so are stalemate and too little material for a mate (bare kings, with one knight or with bishops that are
    all on one colour).

    An action is 73 * square + kind, as in AlphaZero (Silver et al. 2018): the square from which the piece moves, as the
    player to move sees the board, and 8 directions by 7 distances, 8 jumps of a knight, 9 promotions to less than a
    queen. Castling is the king's move on to its own rook, as in Chess960. In text moves are in algebraic notation; UCI
    is understood too. Player 0 is White.

    history: earlier positions that the network sees, 0 to 8. chess960: the first action is the number of the start
    position, 0 to 959; 518 is that of chess. max_plies: a longer game is a draw, or with truncated='material' half a
    win for the player whose pieces count more (`chess_state.worth`).
    """

    action_kinds = ACTION_KINDS
    num_actions, state_size, state_dtype = 64 * ACTION_KINDS, WORDS, np.dtype(np.uint64)
    symmetry_cells = np.arange(64, dtype=np.int32)[None]
    symmetry_actions = np.arange(64 * ACTION_KINDS, dtype=np.int32)[None]
    other_view = np.arange(64, dtype=np.int32).reshape(8, 8)[::-1].reshape(-1)

    def __init__(self, history: int = 0, chess960: bool = False, max_plies: int = 512, truncated: str = "draw"):
        require("history", history, 0, HISTORY_MAX)
        require("max_plies", max_plies, 1, 20_000)
        if type(chess960) is not bool:
            raise ValueError(f"chess960 is {chess960!r}; allowed: True, False")
        if truncated not in TRUNCATED:
            raise ValueError(f"truncated is {truncated!r}; allowed: {', '.join(TRUNCATED)}")
        self.history, self.chess960, self.max_plies = history, chess960, max_plies
        self.by_material = truncated == "material"
        self.setups = chess_notation.start_positions() if chess960 else np.zeros((1, 8), np.uint8)
        given = {"chess960": chess960, "history": history, "max_plies": max_plies, "truncated": truncated}
        parts = ",".join(f"{name}={value!r}" for name, value in given.items() if value != USUAL[name])
        self.name = f"chess({parts})" if parts else "chess"
        self.planes_shape = (PLANES_EACH * (1 + history) + PLANES_BESIDE, 8, 8)
        self._names = functools.lru_cache(maxsize=1)(self._name_actions)  # callers ask for all actions of a state

    def initial(self, n: int) -> np.ndarray:
        states = super().initial(n)
        if not self.chess960:
            states[:] = chess_notation.from_fen(chess_notation.START)
        return states

    def untruncated(self) -> Rules:
        truncated = TRUNCATED[int(self.by_material)]
        return Rules(self.history, self.chess960, max(self.max_plies, PLIES_IN_PLAY), truncated)

    def apply(self, state: np.ndarray, action: int) -> None:
        if self.chess960 and state[OWN] == ZERO:
            set_up(state, self.setups[action])
        else:
            play_move(state, action)

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        if self.chess960 and state[OWN] == ZERO:
            for number in range(len(self.setups)):
                legal[number] = True
        else:
            rights, target = state[FLAGS] >> RIGHTS & BYTE, target_of(state[FLAGS])
            mark_legal(state[0], state[1], state[2], state[3], state[4], rights, target, legal)

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        if self.chess960 and state[OWN] == ZERO:
            return False, 0.0
        rights, target = state[FLAGS] >> RIGHTS & BYTE, target_of(state[FLAGS])
        can, in_check = can_move(state[0], state[1], state[2], state[3], state[4], rights, target)
        if not can:
            return True, -1.0 if in_check else 0.0
        if is_drawn(state):
            return True, 0.0
        if np.int64(state[COUNTS] >> PLIES & SHORT) < self.max_plies:
            return False, 0.0
        return True, 0.5 * np.sign(worth(state)) if self.by_material else 0.0

    def current_player(self, state: np.ndarray) -> int:
        return np.int64(state[FLAGS] & np.uint64(1))

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        fill_planes(state, planes, self.history)

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        """Return a hash of what the network sees. It does not see the colour of the player to move, so that a position
        and its mirror image for the other player are evaluated once."""
        return key_of(state, self.history), 0

    def is_cut(self, state: np.ndarray) -> bool:
        return bool(self.legal(state[None]).any()) and not is_drawn(state)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        texts = []
        for plies in range(1 + self.history):
            ago = "" if plies == 0 else f"{plies} {'ply' if plies == 1 else 'plies'} before: "
            texts += [f"{ago}{piece} of {side}" for side in _SIDES for piece in _PIECES]
            texts.append(f"{ago}1 everywhere if the position was there before")
        texts += [f"rooks with which {side} may castle" for side in _SIDES]
        texts.append("the square on which a pawn may be taken en passant")
        texts.append("the first 64 n / 100 squares, row by row, n plies after the last capture or pawn move")
        rows = "row 0 is the top row of the board, which is 8 in text, and column 0 the left one, which is a; "
        return texts, rows + "player 1 sees it with the rows turned over, so that pawns of the player to move move up"

    def board(self, state: np.ndarray) -> Board:
        pieces = chess_notation.pieces_of(np.asarray(state))
        players = np.array([["P" if one.isupper() else one for one in row] for row in pieces])
        owners = np.select([players == "P", players != " "], [0, 1], -1).astype(np.int8)
        return Board(owners, pieces, columns=tuple("abcdefgh"), rows=tuple("87654321"), figures=CHESS, light=0)

    def show(self, state: np.ndarray) -> str:
        return f"{self.board(state).named_text()}\n{self.state_to_text(state)}"

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        state = np.ascontiguousarray(state)
        return self._names(state.tobytes())[int(action)]

    def _name_actions(self, key):
        return chess_notation.all_san(self, np.frombuffer(key, np.uint64))

    def text_to_action(self, state: np.ndarray, text: str) -> int:
        action = chess_notation.find(self, np.asarray(state), text.strip())
        return super().text_to_action(state, text) if action is None else action

    def texts_to_actions(self, states: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        """Return the legal actions that texts name, int64 [n], -1 where there is none: see `chess_reading`."""
        return chess_reading.find_all(states, texts)

    def state_to_text(self, state: np.ndarray) -> str:
        return chess_notation.to_fen(np.asarray(state))

    def text_to_state(self, text: str) -> np.ndarray:
        return chess_notation.from_fen(text, self.chess960)

    def without_past(self, state: np.ndarray) -> np.ndarray:
        """Return a position, [S], as if it was there for the first time, just after a capture: to play on where only
        its past has made it a draw, which in a match the arbiter declares."""
        again = np.array(state)
        again[COUNTS] &= ~(BYTE | BYTE << SAFE)
        again[FLAGS] &= ~(_ALL_TIMES << REPEATED)
        return again
