"""One evaluation of the network: matches against the opponents of `config.evaluate`, and the exact solver."""

from collections.abc import Callable
from typing import Any, Protocol

from az_mpi.config.schema import Config
from az_mpi.core.problems import Refusal, reworded
from az_mpi.core.registry import OPPONENTS, SOLVERS, parse
from az_mpi.evaluate.arena import play_match
from az_mpi.evaluate.opponents import Opponent, SearchPlayer
from az_mpi.evaluate.optimal import optimal_share
from az_mpi.evaluate.rating import summary
from az_mpi.games.base import Game
from az_mpi.mpi.world import World
from az_mpi.network.evaluators import Evaluator


class Shown(Protocol):
    """The progress of one match, or of other work, as it is shown; on every rank."""

    def update(self, done: int, total: int) -> None:
        """So much of this rank's part is done. To be called at least every few seconds."""

    def finish(self) -> None:
        """This rank has done its part; wait until every rank has."""


def evaluate(
    world: World,
    config: Config,
    game: Game,
    network_evaluate: Evaluator,
    best_evaluate: Evaluator | None,
    iteration: int,
    show: Callable[[str, str], Shown],
) -> dict[str, Any]:
    """Return how well the network plays, as a JSON-able dict, the same on all ranks. Collective over world.

    network_evaluate, best_evaluate: evaluators of the network and of the best network so far; without the latter (None,
    on all ranks alike) no match against it is played. show(name, unit): starts to show one match or other work.
    The dict has "iteration", "simulations", "matches": {opponent's name: `rating.summary`} and, if every rank has the
    exact solver, "solver": `optimal_share`. All matches of an iteration use the same openings; each iteration has its
    own.
    """
    settings = config.evaluate
    search = config.match_search()
    seed = (config.seed, iteration)
    player = SearchPlayer(network_evaluate, search)
    matches = {}
    for name, opponent in opponents(config, game, iteration, world.rank, best_evaluate).items():
        if opponent is not None:
            shown = show(f"match against {name}", "games")
            result = play_match(
                world,
                game,
                player,
                opponent,
                settings.num_games,
                settings.opening_plies,
                seed,
                shown.update,
                shown.finish,
            )
            matches[name] = summary(result)
    report = {"iteration": iteration, "simulations": search.simulations, "matches": matches}
    solver = SOLVERS.make(settings.solver, game=game) if settings.solver_positions else None
    # Every rank is asked: the solver may be missing on some hosts.
    if solver and not any(world.collect(solver.missing())):
        shown = show("solving positions", "positions")
        solved = solver.share(settings.solver_positions, world.rank, world.size, shown.update)
        shown.finish()
        shown = show("comparison with the solver", "positions")
        report["solver"] = optimal_share(world, game, player, solved, shown.update, shown.finish)
    return report


def check_opponents(config: Config, game: Game) -> None:
    """Raise Refusal if an opponent of `evaluate.opponents` cannot play this game, or is not available on this host, or
    if `evaluate.solver` is of another game."""
    if config.evaluate.solver_positions:
        SOLVERS.make(config.evaluate.solver, game=game)
    for opponent in opponents(config, game).values():
        if opponent is not None:
            try:
                opponent.check()
            except Refusal as error:
                raise reworded(error, f"evaluate.opponents: {error}") from error


def opponents(
    config: Config, game: Game, iteration: int = 0, rank: int = 0, best: Evaluator | None = None
) -> dict[str, Opponent | None]:
    """Return {name: the opponent} for `evaluate.opponents`; None for the best network while there is none. Raises
    Refusal if one of them cannot play this game. It starts no engines."""
    settings = config.evaluate
    offered = {"game": game, "seed": (config.seed, iteration), "rank": rank, "best": best}
    return {
        parse(name).short(): OPPONENTS.make(name, settings=settings, search=config.match_search(), **offered)
        for name in settings.opponents
    }
