"""The sides of a match, by what is typed: networks of runs, other programs, and the opponents of evaluations."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from az_mpi import games
from az_mpi.config import schema
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import OPPONENTS
from az_mpi.evaluate.opponents import Opponent, SearchPlayer, Seat
from az_mpi.games.base import Game
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import LoadedPlayer, load_player
from az_mpi.player.network_paths import find_network, zoo_file
from az_mpi.player.session import CACHE_BYTES, Session

PROTOCOLS = ("gtp", "uci")


class Side(NamedTuple):
    """One side of a match: its name, and a function that makes its opponent for a game."""

    name: str
    game: Game | None  # that it was made for; None: it takes any
    make: Callable[[Game], Opponent]


class TimedPlayer(Opponent):
    """A network that thinks for a time about each move, one game after the other; its trees stay between moves."""

    def __init__(self, player: LoadedPlayer, limit: Limit):
        self.player = player
        self.limit = limit
        self.leaves_max = player.leaves_at_once()

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> Seat:
        return _TimedSeat(self, moves)


class _TimedSeat(Seat):
    def __init__(self, player: TimedPlayer, moves: list[list[int]]):
        self.limit = player.limit
        self.sessions = [Session(player.player, player.leaves_max, CACHE_BYTES) for _ in moves]
        for session, opening in zip(self.sessions, moves):
            for action in opening:
                session.play(action)

    def choose(self, slots: np.ndarray) -> np.ndarray:
        for slot in slots:
            self.sessions[slot].think(self.limit)
        return np.array([self.sessions[slot].best() for slot in slots], np.int64)

    def advance(self, slots: np.ndarray, actions: np.ndarray) -> None:
        for slot, action in zip(slots, actions.tolist()):
            self.sessions[slot].play(action)


def of_zoo(name: str, game: Game, search: schema.Search) -> SearchPlayer:
    """Return a network that comes with az_mpi as an opponent, on the CPU or the first GPU, with the run's search.
    Raises Refusal if there is none of this name, or it is for another game."""
    player = load_player(f"zoo:{name}")
    if player.game.name != game.name:
        raise Refusal(f"it plays {player.game.name}, and game is {game.name}")
    player.evaluator.plies_left = None  # the run's own network, in the engine of self-play, does not tell it either
    return SearchPlayer(player.evaluator, search)


def read_side(text: str, limit: Limit, seed: tuple[int, ...], rank: int, where: dict[str, Any]) -> Side:
    """Return the side that `text` names. Raises Refusal.

    A path or a name that `load_player` takes, such as a run's folder; RUN@NAME with a name as in RUN/checkpoints or
    RUN/best, or best; gtp:COMMAND or uci:COMMAND; or an opponent as in `evaluate.opponents`. limit: for each move; 0
    simulations: as in the run's matches. where: `on_rank` of this rank."""
    protocol, _, command = text.partition(":")
    if protocol in PROTOCOLS and command:
        seconds = f", seconds={limit.seconds:g}" if limit.seconds else ""
        return _opponent(f"{protocol}(command={command!r}{seconds})", command, limit, seed, rank)
    is_network = zoo_file(text) or _place(text)[0].exists() or OPPONENTS.problem(text) is not None
    return _network(text, limit, where) if is_network else _opponent(text, text, limit, seed, rank)


def _place(text):
    """Return (path, name of the network there)."""
    run, at, name = text.rpartition("@")
    return (Path(run), name) if at and not Path(text).exists() else (Path(text), "newest")


def _network(text, limit, where):
    path, name = _place(text)
    if not zoo_file(text) and not path.exists():
        raise Refusal(
            f"{text}: there is no such run, nor an opponent of this name\n  a side of a match is RUN, "
            f"RUN@NAME, gtp:COMMAND, uci:COMMAND, or {OPPONENTS.allowed}"
        )
    player = load_player(find_network(path, name), **where)
    simulations = limit.simulations or (0 if limit.seconds else player.settings.simulations)

    def make(game: Game) -> Opponent:
        if limit.seconds:
            return TimedPlayer(player, Limit(simulations, limit.seconds))
        settings = player.settings.model_copy(update={"simulations": simulations})
        return SearchPlayer(player.evaluator, settings)

    return Side(re.sub(r"/*$", "", text), player.game, make)


def _opponent(name, shown, limit, seed, rank):
    if name == "best":
        raise Refusal('"best" alone is the best network of an evaluation; here name its run: RUN@best')
    simulations = limit.simulations or schema.Evaluate().rollout_simulations
    settings = schema.Evaluate(rollout_simulations=simulations)
    OPPONENTS.check(name)

    def make(game: Game) -> Opponent:
        offered = {"game": game, "seed": seed, "rank": rank, "settings": settings, "search": schema.Search()}
        made = OPPONENTS.make(name, **offered, best=None)
        made.check()
        return made

    return Side(shown, None, make)


def common_game(sides: list[Side], name: str | None) -> Game:
    """Return the game that the sides play. name: what was asked for. Raises Refusal if they play different ones, or
    none of them tells."""
    named = [side for side in sides if side.game]
    game = games.make(name) if name else named[0].game if named else None
    if game is None:
        raise Refusal("neither side is a run, so the match needs a game: add --game, such as --game go")
    if wrong := [side for side in named if side.game.name != game.name]:
        raise Refusal(f"{wrong[0].name} plays {wrong[0].game.name}, and the match is of {game.name}")
    return game
