"""The games of OpenSpiel (Lanctot et al. 2019): `openspiel:NAME(parameter=value)`, such as openspiel:hex(board_size=7).

Two players, zero sum, perfect information, no chance, one move at a time. `pip install open_spiel` brings them.

A state is the moves of a game: int16 [number of moves, a1, a2, …]; `openspiel_chess` says how one of chess begins at a
FEN. A cache keeps OpenSpiel's own objects for the states
that were used last. Any other state is made again from its moves, so results never depend on the cache.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import psutil

from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.games import openspiel_boards
from az_mpi.games.base import Game, require
from az_mpi.games.board_data import Board
from az_mpi.games.openspiel_chess import (
    OTHER_VIEW,
    SIDEWAYS,
    checked_fen,
    described,
    fen_to_numbers,
    lead,
    split_start,
    turned,
)
from az_mpi.games.symmetry import dihedral

MAX_PLIES = 512  # by default; chess in OpenSpiel allows 17,695
UNTRUNCATED_PLIES = 1024  # the longest game against other programs
SYMMETRIES = {"none": 1, "half_turn": 2, "dihedral": 8}
SAMPLES_MAX, SAMPLES_BYTES = 16_000, 2**22  # copies of a state that are made to measure its size


# Games whose action cell * kinds + kind is of a cell of the planes: the one where a piece is put, or from which it
# moves. A test looks at each. Not so: quoridor's moves, the drops of crazyhouse and shogi, hive.
BY_CELLS = (
    "amazons antichess breakthrough checkers chess clobber go gomoku havannah hex lines_of_action mnk othello "
    "pentago tic_tac_toe xiangqi y"
).split()
CHOICES = {"truncated": ("draw", "material"), "view": ("board", "mover")}  # of parameters of `make`


def make(
    name: str,
    max_plies: int = 0,
    symmetries: str = "none",
    cache_mb: int = 256,
    action_kinds: int | None = None,
    truncated: str = "draw",
    view: str = "board",
    **parameters: Any,
) -> Game:
    """Return the game called `name` in OpenSpiel with its `parameters`.

    max_plies: a game that is longer is truncated; 0: the longest game that the rules allow, at most `MAX_PLIES`.
    truncated: what such a game is worth: "draw", or "material", in chess: half a win for the one with more `PAWNS`.
    view: "mover": in chess and antichess, the planes of the mover's pieces come first; "board": those of White's.
    symmetries: "none", "half_turn" or "dihedral" (all 8 images of a square board), for games whose actions are cells.
    cache_mb: memory for OpenSpiel's objects, in MiB.
    action_kinds: see `Game`; None: as is known for the games in `BY_CELLS`, 0 for all others.
    Raises Refusal: OpenSpiel is missing or has no such game, or the game is of another kind.
    """
    pyspiel = _import(name)
    known = pyspiel.registered_names()
    if name not in known:
        near = get_close_matches(name.lower(), known, 1)
        raise Refusal(f"OpenSpiel has no game {name}" + "".join(f"; did you mean {other}?" for other in near))
    try:
        game = pyspiel.load_game(name, parameters)
    except Exception as error:  # SpielError has no class of its own in every version
        raise Refusal(
            f"OpenSpiel refuses {name} with {parameters or 'no parameters'}: {str(error).splitlines()[0]}"
        ) from error
    if problem := misfit(game):
        raise Refusal(f"{name} cannot be played: {problem}")
    return OpenSpiel(game, max_plies, symmetries, cache_mb, action_kinds, truncated, view)


def _import(name):
    try:
        import pyspiel

        return pyspiel
    except ImportError as error:
        raise Refusal(
            f"openspiel:{name} needs OpenSpiel, which cannot be imported: {error}\n"
            "  pip install open_spiel, on every host"
        ) from error


def misfit(game: Any) -> str | None:
    """Return which properties of an OpenSpiel game do not fit, and what is needed; None if all fit."""
    import pyspiel

    kind = game.get_type()
    problems = []
    players = game.num_players()
    if players != 2:
        problems.append(f"it has {counted(players, 'player')}, needed are 2")
    wanted = {
        "dynamics": pyspiel.GameType.Dynamics.SEQUENTIAL,
        "chance_mode": pyspiel.GameType.ChanceMode.DETERMINISTIC,
        "information": pyspiel.GameType.Information.PERFECT_INFORMATION,
        "utility": pyspiel.GameType.Utility.ZERO_SUM,
    }
    if players == 1:
        del wanted["utility"]  # nobody else has a share in it
    for field, value in wanted.items():
        if (found := getattr(kind, field)) != value:
            problems.append(f"its {field} is {found.name}, needed is {value.name}")
    if not kind.provides_observation_tensor:
        problems.append("it has no observation tensor for a network")
    elif not problems and game.num_distinct_actions() > np.iinfo(np.int16).max:
        most = np.iinfo(np.int16).max
        problems.append(f"it has {game.num_distinct_actions():,} actions; at most {most:,} can be stored")
    return "; ".join(problems) or None


class OpenSpiel(Game):
    """A game of OpenSpiel.

    planes: OpenSpiel's observation, float32, and a last plane that is 1 if the second player is to move. A list of M
    numbers becomes M planes of one cell; a table [C, M] becomes C planes, square if M is a square. Chess and antichess
    show a row for each file and a column for each rank, which counts from the mover's side, as their actions do.
    Players are numbered from the one who begins, who counts as the one to move at the end of a game. In OpenSpiel's
    chess that is player 1.
    """

    planes_dtype = np.dtype(np.float32)
    state_dtype = np.dtype(np.int16)

    def __init__(
        self,
        game: Any,
        max_plies: int,
        symmetries: str,
        cache_mb: int,
        action_kinds: int | None,
        truncated: str,
        view: str,
    ):
        from open_spiel.python.observation import make_observation

        self.game = game
        self._first = game.new_initial_state().current_player()
        self._parameters = symmetries, cache_mb, action_kinds, truncated, view
        longest = min(game.max_game_length(), MAX_PLIES)
        require("max_plies", max_plies, 0, min(game.max_game_length(), np.iinfo(np.int16).max))
        self.max_plies = max_plies or longest
        self._short_name = game.get_type().short_name
        self._by_material = _chosen(self._short_name, "truncated", truncated, ("chess",))
        self._own_first = _chosen(self._short_name, "view", view, SIDEWAYS)
        extra = [f"max_plies={self.max_plies}"] if self.max_plies < game.max_game_length() else []
        extra += ["truncated=material"] if self._by_material else []
        extra += ["view=mover"] if self._own_first else []
        self.name = f"openspiel:{game}[{','.join(extra)}]" if extra else f"openspiel:{game}"
        self.num_actions, self.state_size = game.num_distinct_actions(), self.max_plies + 1
        channels, height, width = _board_shape(game.observation_tensor_shape())
        self.planes_shape = (channels + 1, height, width)
        if self._short_name in SIDEWAYS:
            self.other_view = OTHER_VIEW
        self.action_kinds = _kinds(game, self.num_actions // (height * width), action_kinds)
        self.symmetry_cells, self.symmetry_actions = _symmetries(symmetries, height, width, self.num_actions)
        self._observation = make_observation(game)
        self._scale = 1 / game.max_utility()
        self._words = functools.lru_cache(maxsize=1)(self._name_actions)  # callers ask for all actions of a state
        self._live = _Live(self._replay, cache_mb * 2**20 // _state_bytes(game))

    def untruncated(self) -> "OpenSpiel":
        return OpenSpiel(self.game, min(UNTRUNCATED_PLIES, self.game.max_game_length()), *self._parameters)

    def initial(self, n: int) -> np.ndarray:
        return np.zeros((n, self.state_size), np.int16)

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        after = states.copy()
        after[:, 0] += 1
        after[np.arange(len(states)), after[:, 0]] = actions
        for before, row, action in zip(states, after, actions):
            self._live.add(_key(row), self._live[_key(before)].child(int(action)))
        return after

    def legal(self, states: np.ndarray) -> np.ndarray:
        legal = np.zeros((len(states), self.num_actions), np.bool_)
        for row, live in zip(legal, self._each(states)):
            row[live.legal_actions()] = True
        return legal

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ended = states[:, 0] >= self.max_plies
        value = np.zeros(len(states), np.float32)
        for i, live in enumerate(self._each(states)):
            if live.is_terminal():
                ended[i], value[i] = True, live.returns()[self._first] * self._scale
            elif ended[i] and self._by_material:
                value[i] = 0.5 * np.sign(lead(live))
        return ended, value

    def to_play(self, states: np.ndarray) -> np.ndarray:
        return np.array([live.current_player() == 1 - self._first for live in self._each(states)], np.int8)

    def planes(self, states: np.ndarray) -> np.ndarray:
        planes = np.empty((len(states), *self.planes_shape), np.float32)
        observation = self._observation
        numbers = self._observation.tensor.size
        for row, live in zip(planes.reshape(len(states), -1), self._each(states)):
            second = live.current_player() == 1 - self._first
            observation.set_from(live, 1 - self._first if second else self._first)
            row[:numbers], row[numbers:] = observation.tensor, second
        return turned(planes, self._short_name, self._own_first) if self._short_name in SIDEWAYS else planes

    def describe_planes(self) -> tuple[Sequence[str], str]:
        texts, rows = described(self._short_name, self.planes_shape[0] - 1, self._own_first)
        return (*texts, "1 everywhere if the player who did not begin is to move"), rows

    def show(self, state: np.ndarray) -> str:
        return str(self.live(state))

    def board(self, state: np.ndarray) -> Board | None:
        """Return the board that OpenSpiel's text shows, see `openspiel_boards`."""
        live = self.live(state)
        return openspiel_boards.read(str(live), self.game, live.is_terminal())

    def is_cut(self, state: np.ndarray) -> bool:
        return not self.live(state).is_terminal()

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        """Return OpenSpiel's name of the action, without blanks; with its number if another action has that name."""
        return self._words(_key(np.asarray(state)))[int(action)]

    def _name_actions(self, key):
        """Return {legal action: its word}."""
        live = self._live[key]
        words = {a: "_".join(live.action_to_string(live.current_player(), a).split()) for a in live.legal_actions()}
        uses = Counter(words.values())
        return {a: word if uses[word] == 1 else f"{word}#{a}" for a, word in words.items()}

    def live(self, state: np.ndarray) -> Any:
        """Return OpenSpiel's own object for a state, [S]. Do not change it."""
        return self._live[_key(np.asarray(state))]

    def _each(self, states):
        return (self._live[_key(row)] for row in states)

    def state_to_text(self, state: np.ndarray) -> str:
        """Return a state, [S], of chess as FEN. Raises ValueError for other games."""
        self._expect_chess()
        return self.live(state).board().to_fen()

    def text_to_state(self, text: str) -> np.ndarray:
        """Return the state, [S], of chess that a FEN describes; no move led to it. Raises ValueError if the position is
        not legal, and for other games."""
        self._expect_chess()
        numbers = fen_to_numbers(checked_fen(text))
        if len(numbers) >= self.max_plies:
            raise ValueError(f"max_plies is {self.max_plies}; a game from a FEN needs more")
        state = self.initial(1)[0]
        state[: len(numbers) + 1] = len(numbers), *numbers
        return state

    def _expect_chess(self):
        if self._short_name != "chess":
            raise ValueError(f"{self.name}: only positions of chess have a text")

    def _replay(self, key):
        fen, actions = split_start(np.frombuffer(key, np.int16)[1:])
        live = self.game.new_initial_state(fen) if fen else self.game.new_initial_state()
        for action in actions:
            live.apply_action(int(action))
        return live


def long_algebraic(live: Any, action: int) -> str:
    """Return a legal action of a state of OpenSpiel's chess in long algebraic notation, such as e2e4 or e7e8q."""
    from pyspiel import chess

    return chess.action_to_move(int(action), live.board()).to_lan()


class _Live:
    """OpenSpiel's states by their keys: at most `most` of those used last, in two halves, the older of which goes."""

    def __init__(self, replay: Callable[[bytes], Any], most: int):
        self._replay = replay
        self._half = max(most // 2, 1)
        self._new = {}
        self._old = {}

    def __getitem__(self, key: bytes) -> Any:
        live = self._new.get(key)
        if live is None:
            live = self._old.get(key)
            if live is None:
                live = self._replay(key)
            self.add(key, live)
        return live

    def add(self, key: bytes, live: Any) -> None:
        if len(self._new) >= self._half:
            self._old = self._new
            self._new = {}
        self._new[key] = live


def _key(row):
    return row[: row[0] + 1].tobytes()


def _board_shape(shape):
    """Return the shape [C, H, W] of an observation tensor: see `OpenSpiel`."""
    if len(shape) == 3:
        return tuple(shape)
    if len(shape) == 1:
        return (shape[0], 1, 1)
    channels = shape[0]
    cells = int(np.prod(shape[1:]))
    side = round(cells**0.5)
    return (channels, side, side) if side * side == cells else (channels, 1, cells)


def _kinds(game, most, wanted):
    """Return `Game.action_kinds`. most: whole kinds that the number of actions allows."""
    if wanted is None:
        return most if game.get_type().short_name in BY_CELLS else 0
    if type(wanted) is not int or not 0 <= wanted <= most:
        raise ValueError(f"action_kinds is {wanted!r}; allowed: None as is known for the game, or 0 to {most}")
    return wanted


def _symmetries(kind, height, width, num_actions):
    """Return the tables `Game.symmetry_cells`, `symmetry_actions`. Actions beyond the cells, such as a pass, stay."""
    cells = height * width
    if kind not in SYMMETRIES:
        raise ValueError(f'symmetries is "{kind}"; allowed: {", ".join(SYMMETRIES)}')
    if kind != "none" and num_actions < cells or kind == "dihedral" and height != width:
        raise ValueError(
            f'symmetries is "{kind}"; the board has {height} x {width} cells and the game {num_actions} '
            "actions: each cell must be an action, and a dihedral board square"
        )
    tables = dihedral(height, width)
    if kind != "dihedral":
        half_turn = tables[0, ::-1]
        tables = np.stack([tables[0], half_turn])[: SYMMETRIES[kind]]
    further = np.tile(np.arange(cells, num_actions, dtype=np.int32), (len(tables), 1))
    return tables, np.concatenate([tables, further], axis=1) if kind != "none" else (
        np.arange(num_actions, dtype=np.int32)[None]
    )


def _chosen(name, key, value, names):
    """Return whether `value` is the second of the CHOICES for `key`. Raises ValueError for another word, or for the
    second one in a game that is not among `names`."""
    first, second = CHOICES[key]
    if value not in (first, second) or value == second and name not in names:
        raise ValueError(f"{key} is {value!r}; allowed: {first}, and {second} in {' and '.join(names)} alone")
    return value == second


def _state_bytes(game):
    """Return the memory of one state in bytes, measured on copies of one in the middle of a game; at least 1 KiB."""
    live = game.new_initial_state()
    rng = np.random.default_rng(0)
    for _ in range(40):
        after = live.child(int(rng.choice(live.legal_actions())))
        if after.is_terminal():
            break
        live = after
    process = psutil.Process()
    copies = []
    grown = 0
    # The first copies go where memory was freed before, so that this process does not grow.
    while grown < SAMPLES_BYTES and len(copies) < SAMPLES_MAX:
        before = process.memory_info().rss
        num = max(len(copies), 500)
        copies += [live.clone() for _ in range(num)]
        grown = process.memory_info().rss - before
    return max(grown // num, 1024)
