"""The games of OpenSpiel (Lanctot et al. 2019): `openspiel:NAME(parameter=value)`, such as openspiel:hex(board_size=7).

Perfect information, one move at a time, moves of chance whose probabilities OpenSpiel gives; one player, two with zero
sum, or more. `pip install open_spiel` brings them.

A state is the moves of a game: int16 [number of moves, a1, a2, …]; `openspiel_chess` says how one of chess begins at a
FEN. A cache keeps OpenSpiel's own objects for the states
that were used last. Any other state is made again from its moves, so results never depend on the cache.
"""

import functools
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.games import openspiel_boards
from az_mpi.games.base import CHANCE, Game, require
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
from az_mpi.games.openspiel_fit import STORED_MAX, bounds, longest, misfit
from az_mpi.games.openspiel_input import kinds, observer, symmetry_tables
from az_mpi.games.openspiel_live import Live, LiveStates, state_bytes

MAX_PLIES = 512  # of players, by default; chess in OpenSpiel allows 17,695
UNTRUNCATED_PLIES = 1024  # the longest game against other programs
# "648 - Bar/24 Bar/23", "chance outcome 0 X starts, (roll: 12)": the one who starts is always X here.
NUMBERED = re.compile(r"^(\d+ - |chance outcome \d+ ([XO] starts, )?)")
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

    max_plies: a game that is longer is truncated, chance moves count; 0: the longest game that the rules allow, at most
    `MAX_PLIES`, and twice as many with chance moves.
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


class OpenSpiel(Game):
    """A game of OpenSpiel.

    planes: OpenSpiel's observation, float32, and for each player but the one who begins a last plane that is 1 if that
    player is to move. A list of M numbers becomes M planes of one cell; a table [C, M] becomes C planes, square if M is
    a square, or one plane in the games of `openspiel_input.ONE_BOARD`. Chess and antichess show a row for each file and
    a column for each rank, which counts from the mover's side, as their actions do.
    Players are numbered from the one who begins, in the order of OpenSpiel's numbers; that one counts as the one to
    move at the end of a game. In OpenSpiel's chess that is player 1; in backgammon the first throw says who it is.
    Values are utilities, of which the game's least one is -1 and its largest one 1. One player's `score` is the
    utility. Outcomes of chance have OpenSpiel's numbers.
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
        self.game = game
        self._first = max(game.new_initial_state().current_player(), CHANCE)
        self._parameters = symmetries, cache_mb, action_kinds, truncated, view
        self.num_players, self.num_outcomes = game.num_players(), game.max_chance_outcomes()
        self.score_name = "utility" if self.num_players == 1 else ""
        self._longest = min(longest(game), STORED_MAX)
        require("max_plies", max_plies, 0, self._longest)
        self.max_plies = max_plies or min(self._longest, MAX_PLIES * (2 if self.num_outcomes else 1))
        self._short_name = game.get_type().short_name
        self._by_material = _chosen(self._short_name, "truncated", truncated, ("chess",))
        self._own_first = _chosen(self._short_name, "view", view, SIDEWAYS)
        extra = [f"max_plies={self.max_plies}"] if self.max_plies < longest(game) else []
        extra += ["truncated=material"] if self._by_material else []
        extra += ["view=mover"] if self._own_first else []
        self.name = f"openspiel:{game}[{','.join(extra)}]" if extra else f"openspiel:{game}"
        self.num_actions, self.state_size = game.num_distinct_actions(), self.max_plies + 1
        (channels, height, width), self._observe = observer(game)
        self.planes_shape = (channels + self.num_players - 1, height, width)
        if self._short_name in SIDEWAYS:
            self.other_view = OTHER_VIEW
        self.action_kinds = kinds(game, self.num_actions // (height * width), action_kinds)
        self.symmetry_cells, self.symmetry_actions = symmetry_tables(
            symmetries, height, width, self.num_actions, self.num_outcomes > 0
        )
        self._bounds = bounds(game)
        self._words = functools.lru_cache(maxsize=1)(self._name_actions)  # callers ask for all actions of a state
        self._live = LiveStates(self._replay, cache_mb * 2**20 // state_bytes(game))

    def untruncated(self) -> "OpenSpiel":
        max_plies = max(self.max_plies, min(UNTRUNCATED_PLIES, self._longest))
        return OpenSpiel(self.game, max_plies, *self._parameters)

    def initial(self, n: int) -> np.ndarray:
        return np.zeros((n, self.state_size), np.int16)

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        after = states.copy()
        after[:, 0] += 1
        after[np.arange(len(states)), after[:, 0]] = actions
        for live, key, action in zip(self._each(states), _keys(after), actions.tolist()):
            self._live.add(key, live.followed_by(live.state.child(action)))
        return after

    def legal(self, states: np.ndarray) -> np.ndarray:
        legal = np.zeros((len(states), self.num_actions), np.bool_)
        for row, live in zip(legal, self._each(states)):
            if not (self.num_outcomes and live.state.is_chance_node()):
                row[live.state.legal_actions()] = True
        return legal

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ended = states[:, 0] >= self.max_plies
        value = np.zeros((len(states), self.num_players), np.float32)
        is_alone = self.num_players == 1
        for i, live in enumerate(self._each(states)):
            if live.state.is_terminal():
                ended[i], value[i] = True, self._values(live)
            elif is_alone or ended[i]:
                value[i] = self._values(live)
        return ended, value if self.num_players > 2 else value[:, 0].copy()

    def _values(self, live):
        """Return what each player has at the end, or where the game is cut, as values, player 0 first."""
        least, largest = self._bounds
        utilities = live.state.returns()
        if self.num_players == 2:
            value = utilities[max(live.first, 0)] * (1 / largest)
            if self._by_material and not live.state.is_terminal():
                value = 0.5 * np.sign(lead(live.state))
            return value, -value
        return np.clip(2 * (np.roll(utilities, -max(live.first, 0)) - least) / (largest - least) - 1, -1, 1)

    def score(self, states: np.ndarray) -> np.ndarray | None:
        if self.num_players > 1:
            return None
        return np.array([live.state.returns()[0] for live in self._each(states)], np.float32)

    def to_play(self, states: np.ndarray) -> np.ndarray:
        player = np.array([live.seat(self.num_players) for live in self._each(states)], np.int8)
        return np.where(states[:, 0] < self.max_plies, player, np.maximum(player, 0))

    def chances(self, states: np.ndarray) -> np.ndarray:
        if not self.num_outcomes:
            return super().chances(states)
        chances = np.zeros((len(states), self.num_outcomes), np.float32)
        for row, live in zip(chances, self._each(states)):
            outcomes, probabilities = zip(*live.state.chance_outcomes())
            row[list(outcomes)] = probabilities
        return chances

    def planes(self, states: np.ndarray) -> np.ndarray:
        planes = np.zeros((len(states), *self.planes_shape), np.float32)
        cells = self.planes_shape[1] * self.planes_shape[2]
        numbers = (self.planes_shape[0] - self.num_players + 1) * cells
        for row, live in zip(planes.reshape(len(states), -1), self._each(states)):
            seat = live.seat(self.num_players) if not self.num_outcomes else max(live.seat(self.num_players), 0)
            first = live.first if live.first > 0 else 0
            row[:numbers] = self._observe(live.state, (seat + first) % self.num_players)
            if seat:
                row[numbers + (seat - 1) * cells : numbers + seat * cells] = 1
        return turned(planes, self._short_name, self._own_first) if self._short_name in SIDEWAYS else planes

    def describe_planes(self) -> tuple[Sequence[str], str]:
        further = self.num_players - 1
        texts, rows = described(self._short_name, self.planes_shape[0] - further, self._own_first)
        if further == 1:
            return (*texts, "1 everywhere if the player who did not begin is to move"), rows
        return (*texts, *(f"1 everywhere if player {k + 2} of {further + 1} is to move" for k in range(further))), rows

    def show(self, state: np.ndarray) -> str:
        return str(self.live(state))

    def board(self, state: np.ndarray) -> Board | None:
        """Return the board that OpenSpiel's text shows, see `openspiel_boards`."""
        live, first = self._live[_key(np.asarray(state))]
        return openspiel_boards.read(str(live), self.game, live.is_terminal(), first)

    def is_cut(self, state: np.ndarray) -> bool:
        return not self.live(state).is_terminal()

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        """Return OpenSpiel's name of the action, without blanks. Of several actions with one name, such as both orders
        of two dice, those after the first have their numbers."""
        return self._words(_key(np.asarray(state)))[int(action)]

    def outcome_to_text(self, state: np.ndarray, outcome: int) -> str:
        return re.sub("[():]", "", self._word(self.live(state), CHANCE, outcome))

    def _name_actions(self, key):
        """Return {legal action: its word}."""
        live = self._live[key].state
        words = {a: self._word(live, live.current_player(), a) for a in live.legal_actions()}
        firsts: dict[str, int] = {}
        return {a: word if firsts.setdefault(word, a) == a else f"{word}#{a}" for a, word in words.items()}

    def _word(self, live, player, action):
        text = live.action_to_string(player, int(action)).strip()
        if self.num_outcomes:
            text = NUMBERED.sub("", text)
        return "_".join(text.split())

    def live(self, state: np.ndarray) -> Any:
        """Return OpenSpiel's own object for a state, [S]. Do not change it."""
        return self._live[_key(np.asarray(state))].state

    def _each(self, states):
        return map(self._live.__getitem__, _keys(states))

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
        state = self.game.new_initial_state(fen) if fen else self.game.new_initial_state()
        live = Live(state, self._first)
        for action in actions:
            state.apply_action(int(action))
            live = live.followed_by(state)
        return live


def long_algebraic(live: Any, action: int) -> str:
    """Return a legal action of a state of OpenSpiel's chess in long algebraic notation, such as e2e4 or e7e8q."""
    from pyspiel import chess

    return chess.action_to_move(int(action), live.board()).to_lan()


def _keys(states):
    return [row[:end].tobytes() for row, end in zip(states, (states[:, 0] + 1).tolist())]


def _key(row):
    return row[: row[0] + 1].tobytes()


def _chosen(name, key, value, names):
    """Return whether `value` is the second of the CHOICES for `key`. Raises ValueError for another word, or for the
    second one in a game that is not among `names`."""
    first, second = CHOICES[key]
    if value not in (first, second) or value == second and name not in names:
        raise ValueError(f"{key} is {value!r}; allowed: {first}, and {second} in {' and '.join(names)} alone")
    return value == second
