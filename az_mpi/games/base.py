"""What every game provides: rules over batches of states, with no state of their own.

Shapes: B batch, S numbers a state, A actions, C planes, H rows, W columns, K symmetries, P players, O outcomes.
A state is one row of a fixed-size array, so it can be stored in a tree node, a message or a file.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numba import njit

from az_mpi.core.hashing import FNV_OFFSET, FNV_PRIME, mix
from az_mpi.core.players import CHANCE as CHANCE
from az_mpi.core.players import of_players
from az_mpi.games.board_data import Board
from az_mpi.games.symmetry import turn_cells

ACTIONS_MAX = 2**15 - 1  # a search keeps them as int16
PLAYERS_MAX = 16
DTYPES = {"state_dtype", "planes_dtype"}
NOT_DESCRIBED = "not described"
OWN_AND_OTHER = "stones of the player to move", "stones of the other player"  # what two planes often show


class Game(ABC):
    """Rules of a game with perfect information: of one player, of two whose results add up to 0, or of several, with or
    without moves that are drawn by lot. Values are in [-1, 1]."""

    name: str  # with its arguments, as a configuration writes it; rules that differ must differ in it
    num_actions: int
    planes_shape: tuple[int, int, int]  # (C, H, W)
    planes_dtype: np.dtype = np.dtype(np.uint8)  # or float32
    state_size: int  # S
    state_dtype: np.dtype
    max_plies: int  # no game is longer; chance moves count
    num_players = 2  # P, 1 to PLAYERS_MAX
    num_outcomes = 0  # O, of a chance move at most; 0: the game has none
    score_name = ""  # what `score` counts, such as "points"; "": the game has no score
    # The plane that shows, in all cells, a value below which no result of the game can fall any more: what a score that
    # only grows is worth so far. The value head then answers between it and 1. None: no plane does.
    floor_plane: int | None = None
    # Where actions belong to cells: action cell * action_kinds + kind is one of a cell, counted row by row as the
    # planes show the board, and the actions after the last cell's, such as a pass, are of none. 0: they do not.
    action_kinds = 0
    # Where the players see the board differently: cell v as one of them sees it is cell other_view[v] as the other one
    # does, int32 [H*W]. None: both see it alike.
    other_view: np.ndarray | None = None
    sgf_number = 0  # of the game in SGF files, "GM"; 0: it has none
    entries: Any  # the addresses of its compiled functions, if `has_entries`: see `PositionGame`
    solver = ""  # the name of its exact solver, as in `evaluate.solver`; "": there is none
    # Row k of each table is one symmetry of the board, row 0 the identity. With cells = symmetry_cells[k] and
    # actions = symmetry_actions[k], the turned board is planes[..., cells] and its policy is policy[..., actions].
    symmetry_cells: np.ndarray  # int32 [K, H*W]
    symmetry_actions: np.ndarray  # int32 [K, A]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in DTYPES & vars(cls).keys():
            if isinstance(given := vars(cls)[name], (str, type)):  # np.int8 in place of np.dtype(np.int8)
                setattr(cls, name, np.dtype(given))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, np.dtype(value) if name in DTYPES else value)

    @property
    def has_entries(self) -> bool:
        """Whether compiled code may call `entries` in place of the methods for batches."""
        return False

    @abstractmethod
    def initial(self, n: int) -> np.ndarray:
        """Return n starting states, state_dtype [n, S]."""

    @abstractmethod
    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return the states after one legal action in each, or one outcome where it is chance's move, state_dtype
        [B, S]. `states` stays as it is."""

    @abstractmethod
    def legal(self, states: np.ndarray) -> np.ndarray:
        """Return which actions may be played, bool [B, A]; at least one in every state that is not terminal and where
        a player is to move."""

    @abstractmethod
    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ended bool [B], value float32). With one or two players, value [B] is for the player to move; with
        more, value [B, P] has the result of each player, player 0 first. It is 0 where the game is not over. In a game
        of one player it may be there what a game counts that a limit of its length ends."""

    def terminal_at(self, states: np.ndarray, plies: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Return what `terminal` does, except that a game whose rules let it reach `max_plies` ends there, with the
        value that it has. plies: int [B], the moves from the start of the game to each state."""
        ended, value = self.terminal(states)
        return ended | (np.asarray(plies) >= self.max_plies), value

    @abstractmethod
    def to_play(self, states: np.ndarray) -> np.ndarray:
        """Return who is to move, int8 [B]: 0 for the player who makes the first move that is not chance's, then 1 to
        P - 1; CHANCE where a move is drawn by lot. In a terminal state it is a player."""

    @abstractmethod
    def planes(self, states: np.ndarray) -> np.ndarray:
        """Return the network's input as the player to move sees it, planes_dtype [B, C, H, W]."""

    def chances(self, states: np.ndarray) -> np.ndarray:
        """Return the probability of each outcome in states where it is chance's move, float32 [B, O]. Outcomes are
        played as actions are. By default the game has none: ValueError."""
        raise ValueError(f"{self.name} has no chance moves")

    def score(self, states: np.ndarray) -> np.ndarray | None:
        """Return the result so far in the game's own unit, for reports, float32 [B]: the larger, the better, in the
        order of the values of `terminal`. For games of one player. By default None: there is none."""
        return None

    def outcome_to_text(self, state: np.ndarray, outcome: int) -> str:
        """Return an outcome of chance's move in a state, [S], as one word. By default its number."""
        return str(int(outcome))

    def turned_planes(self, states: np.ndarray, symmetry: np.ndarray, out: np.ndarray, num_threads: int = 1) -> None:
        """Write the planes of each state, turned by the symmetry of this number, into `out`, planes_dtype [B, C, H, W].
        symmetry: int64 [B]. num_threads: that may do it."""
        out[:] = turn_cells(self.planes(states), self.symmetry_cells, symmetry)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        """Return (what each plane shows, C texts; which row and column of the board the planes' first ones are), for
        people who feed a network that was exported. By default nothing: it is "not described"."""
        return (), ""

    def show(self, state: np.ndarray) -> str:
        """Return one state, [S], as a drawing of several lines. By default the text of `board`, and the numbers of the
        state in a game without boards."""
        board = self.board(state)
        return str(state) if board is None else board.text()

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        """Return an action in the game's usual notation: one word, different for each legal action of `state`, [S].
        By default the action's number."""
        return str(int(action))

    def text_to_action(self, state: np.ndarray, text: str) -> int:
        """Return the legal action of `state`, [S], that `text` names, in upper or lower case. Raises ValueError, which
        lists the legal actions."""
        legal = np.flatnonzero(self.legal(np.asarray(state)[None])[0]).tolist()
        words = {self.action_to_text(state, action): action for action in legal}
        alike = [action for word, action in words.items() if word.lower() == text.strip().lower()]
        exact = words.get(text.strip(), alike[0] if len(alike) == 1 else None)
        if exact is None:
            raise ValueError(f"{text.strip()!r} is no legal move here; there are {', '.join(words)}")
        return exact

    def state_to_text(self, state: np.ndarray) -> str:
        """Return a position, [S], as one line, in the form that is usual for the game, such as FEN. What came before
        need not be in it. By default the game has none: ValueError."""
        raise ValueError(f"{self.name} has no form of its positions as text")

    def text_to_state(self, text: str) -> np.ndarray:
        """Return the position, [S], that a text of `state_to_text` describes, with what the text leaves out as at the
        start of a game. Raises ValueError, which says what is wrong; by default the game has none."""
        raise ValueError(f"{self.name} has no form of its positions as text")

    def board(self, state: np.ndarray) -> Board | None:
        """Return one state, [S], as a `Board`. By default None: reports then show the text of `show`."""
        return None

    def is_cut(self, state: np.ndarray) -> bool:
        """Return whether a limit of its length alone ended the game in this terminal state, [S]. By default False."""
        return False

    def lead(self, states: np.ndarray) -> np.ndarray | None:
        """Return by how many points the player who began would win if the game ended in each state, float32 [B]. By
        default None: the game has no points."""
        return None

    def ownership(self, states: np.ndarray, player: int) -> np.ndarray | None:
        """Return who owns each cell if the game ended in each state, int8 [B, H, W]: 1 `player`, -1 the other one, 0
        nobody. The cells are those of the planes that `player`, 0 or 1, would see. By default None: nobody owns cells.
        """
        return None

    def untruncated(self) -> "Game":
        """Return this game, for play against other programs, without the limit of its length that is for training
        alone. States of the two do not fit each other. By default the game itself: it has no such limit."""
        return self

    def key(self, states: np.ndarray) -> np.ndarray:
        """Return a 64-bit key of each state, uint64 [B]. Equal states have equal keys; different states, such as two
        images of one board, have different keys except by chance."""
        row_bytes = self.state_dtype.itemsize * self.state_size
        words = np.ascontiguousarray(states).view(np.uint8).reshape(len(states), row_bytes)
        return _hash_rows(words)

    def canonical_key(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (keys uint64 [B], symmetry int64 [B]): one key for all images of a board.

        Symmetry k = symmetry[i] turns each image of board i into the same image. Different boards have different keys
        except by chance. The evaluation cache uses this key.

        Without symmetries this is `key`. With them it hashes the planes of every image; a game that overrides this to
        turn its states directly needs a fraction of the time.
        """
        if len(self.symmetry_cells) == 1:
            return self.key(states), np.zeros(len(states), np.int64)
        planes = self.planes(states)
        bits = planes.view(f"u{planes.dtype.itemsize}")
        return _smallest_keys(bits.reshape(*bits.shape[:2], -1), self.symmetry_cells)


def kind_of(game: Game) -> str:
    """Return for messages what kind of game it is: "2048 is a game of one player with chance moves"."""
    players = {1: "one player", 2: "two players"}.get(game.num_players, f"{game.num_players} players")
    return f"{game.name} is a game of {players}" + (" with chance moves" if game.num_outcomes else "")


def results(game: Game, states: np.ndarray, plies: np.ndarray | int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return (ended bool [B], the result of each player, float32 [B, P]), from `terminal_at` and `to_play`."""
    ended, value = game.terminal_at(states, plies)
    return ended, of_players(game.num_players, value, game.to_play(states))


def described_planes(game: Game) -> tuple[list[str], str]:
    """Return `Game.describe_planes`, with "not described" for what is missing. A class that makes other planes than the
    class that it is derived from has to describe them itself."""
    kind = getattr(game, "unguarded_class", type(game))
    makes, describes = (
        next(k for k, one in enumerate(kind.__mro__) if name in vars(one)) for name in ("planes", "describe_planes")
    )
    texts, rows = game.describe_planes() if describes <= makes else ((), "")
    known = len(texts) == game.planes_shape[0]
    return list(texts) if known else [NOT_DESCRIBED] * game.planes_shape[0], rows or NOT_DESCRIBED


def legal_words(game: Game, state: np.ndarray) -> dict[str, int]:
    """Return the legal actions of a state, [S], by their names in the game's notation; none once the game is over."""
    if game.terminal(state[None])[0][0]:
        return {}
    actions = np.flatnonzero(game.legal(state[None])[0]).tolist()
    return {game.action_to_text(state, action): action for action in actions}


def all_legal(actions: np.ndarray, legal: np.ndarray, rows: np.ndarray) -> bool:
    """Return whether these are whole numbers, one for each of `rows`, int [n], and each a legal action there. legal:
    bool [m, A]."""
    if actions.shape != rows.shape or actions.dtype.kind not in "iu":
        return False
    inside = (actions >= 0) & (actions < legal.shape[1])
    return bool(inside.all() and legal[rows, actions].all())


def positions(game: Game, state: np.ndarray, actions: Iterable[int]) -> Iterator[np.ndarray]:
    """Yield the position, [S], before each of these actions, which are played one after the other from `state` on."""
    for action in actions:
        yield state
        state = game.play(state[None], np.array([action]))[0]


def after(game: Game, actions: Iterable[int]) -> np.ndarray:
    """Return the state, [S], after these actions from the initial position."""
    states = game.initial(1)
    for action in actions:
        states = game.play(states, np.array([action]))
    return states[0]


def board_after(game: Game, before: np.ndarray | None, state: np.ndarray) -> Board | None:
    """Return the board of a state, [S], with the cells of the move that led to it from the position `before`, [S];
    None: no move did. Returns None for a game without boards."""
    board = game.board(state)
    if board is None or before is None:
        return board
    old = game.board(before)
    if old is None or old.players.shape != board.players.shape:
        return board
    mover = int(game.to_play(before[None])[0])
    left = board.left_since(old, mover) if mover != CHANCE else []
    return board._replace(last=tuple(board.filled_since(old)), left=tuple(left))


def last_board(game: Game, states: Sequence[np.ndarray]) -> Board | None:
    """Return `board_after` of the newest of a game's states, each [S], and its last move. If chance moved last and left
    the board as it was, as dice do, that is the last move of a player. Returns None for a game without boards."""
    for before in states[-2::-1]:
        board = board_after(game, before, states[-1])
        if board is None or board.last or board.left or int(game.to_play(before[None])[0]) != CHANCE:
            return board
    return game.board(states[-1])


def owners(planes: np.ndarray, mover: int) -> np.ndarray:
    """Return the owner of the piece on each cell, int8 [H, W] as in `Board.players`.

    planes: uint8 [2, H, W], the pieces of player `mover`, 0 or 1, and those of the other one.
    """
    return np.select([planes[mover] > 0, planes[1 - mover] > 0], [0, 1], -1).astype(np.int8)


@njit(cache=True, nogil=True)
def _hash_rows(rows):
    """Hash the bytes of each row, uint8 [n, bytes] -> uint64 [n]."""
    keys = np.empty(len(rows), np.uint64)
    for b in range(len(rows)):
        h = FNV_OFFSET
        for byte in rows[b]:
            h = (h ^ np.uint64(byte)) * FNV_PRIME
        keys[b] = mix(h)
    return keys


@njit(cache=True, nogil=True)
def _smallest_keys(planes, cells):
    """Return (the smallest hash over all images of each board, uint64 [n], and which symmetry gives it, int64 [n]).

    planes: unsigned integers [n, C, H * W]; cells: int32 [K, H * W], see `Game`.
    """
    keys = np.empty(len(planes), np.uint64)
    best = np.zeros(len(planes), np.int64)
    for i in range(len(planes)):
        keys[i] = np.uint64(0xFFFFFFFFFFFFFFFF)
        for k in range(len(cells)):
            h = FNV_OFFSET
            for c in range(planes.shape[1]):
                for j in cells[k]:
                    h = (h ^ np.uint64(planes[i, c, j])) * FNV_PRIME
            h = mix(h)
            if h < keys[i]:
                keys[i], best[i] = h, k
    return keys, best


def require(name: str, value: int, low: int, high: int) -> None:
    """Raise ValueError unless `value` is a whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; allowed: a whole number from {low} to {high}")
