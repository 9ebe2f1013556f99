"""What every game provides: rules over batches of states, with no state of their own.

Shapes: B batch, S numbers a state, A actions, C planes, H rows, W columns, K symmetries.
A state is one row of a fixed-size array, so it can be stored in a tree node, a message or a file.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from az_mpi.core.hashing import FNV_OFFSET, FNV_PRIME, mix
from az_mpi.games.symmetry import turn_cells

ACTIONS_MAX = 2**15 - 1  # a search keeps them as int16
DTYPES = {"state_dtype", "planes_dtype"}
NOT_DESCRIBED = "not described"
OWN_AND_OTHER = "stones of the player to move", "stones of the other player"  # what two planes often show
NOBODY, NO_CELL = 2, -2  # in `Board.players`
MARKS = "XO# ."  # of `Board.players` in a text, by their numbers
NO_FIGURES: Mapping[str, str] = MappingProxyType({})


class Board(NamedTuple):
    """A position as data: H rows from the top by W columns from the left. All drawings are made from it: those in text
    here, those in pages by `report.board` and play/web_client.html.

    players: int8 [H, W], the owner of the piece on each cell: 0 the player who began, 1 the other one, -1 no piece;
    `NOBODY`: a piece of neither, which needs a symbol; `NO_CELL`: the board has no cell there.
    symbols: H rows of W short texts, or of W characters: the kinds of the pieces, as in chess, " " for a plain one; ()
    where the pieces are all alike.
    shape: of the cells: "square", or "hex", where each row begins half a cell further to the right than the one above.
    columns, rows: W and H labels, which together name a cell ("b3"); () for none.
    edges: whose the top and bottom edges are, and whose the left and right ones, as in Hex; () nobody's.
    won: the cells, (row, column), of the line or chain that has won the game.
    figures: {symbol: how the piece is drawn, as the data of an SVG path in a cell from -50 to 50}; a piece without one
    is a disc with its symbol. A board with figures has cells of two colours.
    light: the player whose pieces are light: 1, or 0 as in chess, where White begins.
    beside: what lies beside the board, such as pieces in hand, as a line of text.
    last: the cells that the last move put pieces on, see `filled_since`; left: those that pieces have left in it. Games
    leave both empty; `board_after` fills them in.
    """

    players: np.ndarray
    symbols: tuple[Sequence[str], ...] = ()
    shape: str = "square"
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    edges: tuple[int, ...] = ()
    won: tuple[tuple[int, int], ...] = ()
    figures: Mapping[str, str] = NO_FIGURES
    light: int = 1
    beside: str = ""
    last: tuple[tuple[int, int], ...] = ()
    left: tuple[tuple[int, int], ...] = ()

    def text(self) -> str:
        """Return the rows as lines: X for a piece of the player who began, O for the other one's, a point for none, #
        for nobody's. On a board of hexagons each line begins further to the right than the one above."""
        return self._joined([" ".join(MARKS[player] for player in row) for row in self.players])

    def named_text(self, columns: tuple[str, ...] | None = None) -> str:
        """Return all of the board as lines: `text` with the kinds of pieces, the names of rows and columns, brackets
        around the cells of `last`, whose edges are which, and what lies beside. columns: names for the columns in place
        of the board's own."""
        columns = self.columns if columns is None else columns
        width = max([len(name) for name in columns] + [len(kind) for row in self.symbols for kind in row], default=1)
        margin = max([len(name) for name in self.rows], default=0)
        names = self.rows or [""] * len(self.players)
        lines = [f"{name:>{margin}}{self._marked_row(row, width)}" for row, name in enumerate(names)]
        if columns:
            lines.append(" " * (margin + 1) + " ".join(f"{name:>{width}}" for name in columns))
        below = []
        if self.edges:
            upright, across = (MARKS[owner] for owner in self.edges)
            below.append(f"{upright} joins top and bottom, {across} joins left and right")
        if self.beside:
            below.append(self.beside)
        return "\n".join([self._joined(lines), *below])

    def _joined(self, lines: list[str]) -> str:
        if self.shape == "hex":
            lines = [" " * row + line for row, line in enumerate(lines)]
        return "\n".join(line.rstrip() for line in lines)

    def _marked_row(self, row: int, width: int) -> str:
        """Return the cells of a row, each after a blank or a bracket."""
        text, before = "", False
        for column in range(len(self.players[row])):
            is_last = (row, column) in self.last
            text += f"{'(' if is_last else ')' if before else ' '}{self.mark(row, column):>{width}}"
            before = is_last
        return f"{text})" if before else text

    def described(self) -> dict[str, Any]:
        """Return the board for programs that are not Python, JSON-able: its parts by name."""
        return self._asdict() | {"players": self.players.tolist(), "figures": dict(self.figures)}

    def mark(self, row: int, column: int) -> str:
        """Return the sign for a cell in a text: the kind of its piece, or else as in `text`."""
        player = self.players[row, column]
        kind = self.symbols[row][column].strip() if self.symbols and player >= 0 else ""
        return kind or MARKS[player]

    def cells(self) -> list[tuple[int, int]]:
        """Return the cells that there are, as (row, column) pairs."""
        return [(int(row), int(column)) for row, column in np.argwhere(self.players != NO_CELL)]

    def name(self, row: int, column: int) -> str:
        """Return the name of a cell, "" where there are no labels."""
        return f"{self.columns[column] if self.columns else ''}{self.rows[row] if self.rows else ''}"

    def filled_since(self, before: "Board") -> list[tuple[int, int]]:
        """Return the cells, as (row, column) pairs, that the move after `before` put pieces on.

        These are cells that were empty; if the move filled none, cells whose piece it captured. Pieces that the move
        only turned over, as in Othello, do not count.
        """
        changed = (self.players >= 0) & (self.players != before.players)
        if self.symbols:
            old, new = (np.array([list(row) for row in board.symbols]) for board in (before, self))
            changed |= (self.players >= 0) & (old != new)
        onto_empty = changed & (before.players < 0)
        cells = np.argwhere(onto_empty if onto_empty.any() else changed)
        return [(int(row), int(column)) for row, column in cells]

    def left_since(self, before: "Board", player: int) -> list[tuple[int, int]]:
        """Return the cells, as (row, column) pairs, that pieces of a player have left in the move after `before`."""
        cells = np.argwhere((before.players == player) & (self.players == -1))
        return [(int(row), int(column)) for row, column in cells]


class Game(ABC):
    """Rules of a two-player zero-sum game with perfect information. Values are for the player to move, in [-1, 1]."""

    name: str  # with its arguments, as a configuration writes it; rules that differ must differ in it
    num_actions: int
    planes_shape: tuple[int, int, int]  # (C, H, W)
    planes_dtype: np.dtype = np.dtype(np.uint8)  # or float32
    state_size: int  # S
    state_dtype: np.dtype
    max_plies: int  # no game is longer
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
        """Return the states after one legal action in each, state_dtype [B, S]. `states` stays as it is."""

    @abstractmethod
    def legal(self, states: np.ndarray) -> np.ndarray:
        """Return which actions may be played, bool [B, A]; at least one in every state that is not terminal."""

    @abstractmethod
    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ended bool [B], value float32 [B] for the player to move; 0 where the game is not over)."""

    def terminal_at(self, states: np.ndarray, plies: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Return what `terminal` does, except that a game whose rules let it reach `max_plies` is a draw there.
        plies: int [B], the moves from the start of the game to each state."""
        ended, value = self.terminal(states)
        return ended | (np.asarray(plies) >= self.max_plies), value

    @abstractmethod
    def to_play(self, states: np.ndarray) -> np.ndarray:
        """Return who is to move, int8 [B]: 0 for the player who began, else 1."""

    @abstractmethod
    def planes(self, states: np.ndarray) -> np.ndarray:
        """Return the network's input as the player to move sees it, planes_dtype [B, C, H, W]."""

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
    if old is None:
        return board
    mover = int(game.to_play(before[None])[0])
    return board._replace(last=tuple(board.filled_since(old)), left=tuple(board.left_since(old, mover)))


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
