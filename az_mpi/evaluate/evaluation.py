"""One evaluation of the network: matches against the opponents of `config.evaluate`, and the exact solver.

In games of one player the network and each opponent play the same seeds alone, and their scores are compared."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from az_mpi.config.schema import Config, Evaluate, Selfplay
from az_mpi.core.problems import Refusal, reworded
from az_mpi.core.registry import OPPONENTS, SOLVERS, parse
from az_mpi.evaluate.arena import SEEDS, play_match, plies_of
from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import Opponent, SearchPlayer
from az_mpi.evaluate.optimal import optimal_share
from az_mpi.evaluate.rating import score_summary, summary, versus
from az_mpi.evaluate.tally import Scores
from az_mpi.games.base import Game, kind_of
from az_mpi.mpi.world import World
from az_mpi.network.evaluators import Evaluator

OPPONENTS_OF_ONE = "best", "random", "greedy"  # in place of the default: random games say little of a long puzzle
ROUNDING = 1e-9  # of means of many numbers: those of equal players need not be exactly 1 / 3, or 0


class Shown(Protocol):
    """The progress of one match, or of other work, as it is shown; on every rank."""

    def update(self, done: int, total: int) -> None:
        """So much of this rank's part is done. To be called at least every few seconds."""

    def finish(self) -> None:
        """This rank has done its part; wait until every rank has."""


Once = Callable[[str, Callable[[], dict[str, Any]]], dict[str, Any]]


def afresh(title: str, play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return `play()`, the result of the match of this title. An `Once` may return a result that it has kept."""
    return play()


def evaluate(
    world: World,
    config: Config,
    game: Game,
    network_evaluate: Evaluator,
    best_evaluate: Evaluator | None,
    iteration: int,
    show: Callable[[str, str], Shown],
    once: Once = afresh,
) -> dict[str, Any]:
    """Return how well the network plays, as a JSON-able dict, the same on all ranks. Collective over world.

    network_evaluate, best_evaluate: evaluators of the network and of the best network so far; without the latter (None,
    on all ranks alike) no match against it is played. show(name, unit): starts to show one match or other work.
    once(title, play): called for each match, on all ranks alike; see `afresh`.
    The dict has "iteration", "simulations", "matches": {opponent's name: `rating.summary`} and, if every rank has the
    exact solver, "solver": `optimal_share`. All matches of an iteration use the same openings and dice; each iteration
    has its own. Of one player it also has "score_name" and `rating.score_summary`; "matches" has `rating.versus`, and
    "optimum" is that of the best scores that a solver finds, if it does. All iterations of all runs use the same seeds.
    """
    settings = config.evaluate
    search = config.match_search()
    player = SearchPlayer(network_evaluate, search)
    report = {"iteration": iteration, "simulations": search.simulations}
    alone = game.num_players == 1
    rivals = opponents(config, game, 0 if alone else iteration, world.rank, best_evaluate)
    seed = SEEDS if alone else (config.seed, iteration)

    def play(title, *players):
        shown = show(title, "games")
        plies = settings.opening_plies
        return play_match(world, game, *players, settings.num_games, plies, seed, shown.update, shown.finish)

    def match(title, judged, *players):
        return once(title, lambda: judged(play(title, *players)))

    scores = None
    if alone:
        own = match("games of the network", score_summary, player, None)
        scores = Scores(np.array(own["scores"]))
        report |= {"score_name": game.score_name or "value"} | own
    report["matches"] = matches = {}
    for name, opponent in rivals.items():
        if opponent is not None and alone:
            matches[name] = match(f"games of {name}", functools.partial(versus, scores), opponent, None)
        elif opponent is not None:
            matches[name] = match(f"match against {name}", summary, player, opponent)
    return report | _judged(world, config, game, player, scores, show)


def _judged(world, config, game, player, scores, show):
    """Return what the exact solver says of a player, for `evaluate`; {} without a solver. scores: of one player."""
    settings = config.evaluate
    solver = SOLVERS.make(settings.solver, game=game) if settings.solver_positions else None
    # Every rank is asked: the solver may be missing on some hosts.
    if not solver or any(world.collect(solver.missing())):
        return {}
    shown = show("solving positions", "positions")
    best = None if scores is None else solver.optimum_from(_starts(config, game))
    solved = solver.share(settings.solver_positions, world.rank, world.size, shown.update, settings.solver)
    shown.finish()
    found = {} if best is None else {"optimum": versus(scores, Scores(np.asarray(best, float)))}
    shown = show("comparison with the solver", "positions")
    return found | {"solver": optimal_share(world, game, player, solved, shown.update, shown.finish)}


def _starts(config, game):
    """Return the openings with which the games of an evaluation of one player begin."""
    settings = config.evaluate
    plies = plies_of(game, settings.opening_plies)
    return openings(game, settings.num_games, plies, SEEDS)


def equals_or_beats(match: dict[str, Any]) -> bool:
    """Return whether the network is at least as good as its opponent in one of `evaluate`'s matches: by the mean
    difference of scores on the same seeds, or by the share of the points that equal players have."""
    if "difference" in match:
        return match["difference"] >= -ROUNDING
    return match["score"] >= 1 / match.get("num_players", 2) - ROUNDING


def check_opponents(config: Config, game: Game) -> None:
    """Raise Refusal if an opponent of `evaluate.opponents` cannot play this game, or is not available on this host, if
    `evaluate.solver` is of another game, or if a key means nothing in a game of this kind."""
    _check_keys(config, game)
    if config.evaluate.solver_positions:
        SOLVERS.make(config.evaluate.solver, game=game)
    try:
        for opponent in opponents(config, game).values():
            if opponent is not None:
                opponent.check()
    except Refusal as error:
        if str(error).startswith("evaluate.opponents"):
            raise
        raise reworded(error, f"evaluate.opponents: {error}") from error


def _check_keys(config, game):
    """Raise Refusal if a key of the configuration is set that means nothing in a game of this kind."""
    plies, threshold = config.evaluate.opening_plies, config.selfplay.resign_threshold
    if game.num_players != 2 and threshold != Selfplay().resign_threshold:
        raise Refusal(
            f"selfplay.resign_threshold = {threshold:g}: {kind_of(game)}, and only one of two players can resign\n"
            f"  allowed: {Selfplay().resign_threshold:g}, the default"
        )
    if config.selfplay.ranked_reward and game.num_players != 1:
        raise Refusal(
            f"selfplay.ranked_reward = {config.selfplay.ranked_reward:g}: {kind_of(game)}, and only the results of a "
            f"game of one player are ranked\n  allowed: {Selfplay().ranked_reward:g}, the default"
        )
    if game.num_players == 1 and game.num_outcomes and plies not in (0, Evaluate().opening_plies):
        raise Refusal(
            f"evaluate.opening_plies = {plies}: {kind_of(game)}, whose games begin without random moves: chance alone "
            f"makes them differ\n  allowed: 0; {Evaluate().opening_plies}, the default, counts as 0"
        )


def opponents(
    config: Config, game: Game, iteration: int = 0, rank: int = 0, best: Evaluator | None = None
) -> dict[str, Opponent | None]:
    """Return {name: the opponent} for `evaluate.opponents`; None for the best network while there is none. Raises
    Refusal if one of them cannot play this game. It starts no engines."""
    settings = config.evaluate
    offered = {"game": game, "seed": (config.seed, iteration), "rank": rank, "best": best}
    return {
        parse(name).short(): OPPONENTS.make(name, settings=settings, search=config.match_search(), **offered)
        for name in opponent_names(config, game)
    }


def plays_best(config: Config, game: Game) -> bool:
    """Return whether an opponent of `evaluate.opponents` plays with the best network so far."""
    return any(OPPONENTS.takes(name, "best") for name in opponent_names(config, game))


def opponent_names(config: Config, game: Game) -> tuple[str, ...]:
    """Return `evaluate.opponents`; in a game of one player the default is another one."""
    names = tuple(config.evaluate.opponents)
    return OPPONENTS_OF_ONE if game.num_players == 1 and names == Evaluate().opponents else names
