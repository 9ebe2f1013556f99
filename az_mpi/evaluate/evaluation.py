"""One evaluation of the network: matches against the opponents of `config.evaluate`, and the exact solver."""

from az_mpi.evaluate import solver
from az_mpi.evaluate.arena import RandomPlayer, SearchPlayer, play_match
from az_mpi.evaluate.optimal import optimal_share
from az_mpi.evaluate.rating import summary
from az_mpi.network.evaluators import RolloutEvaluator


def evaluate(world, config, game, network_evaluate, best_evaluate, iteration, progress):
    """Return what the network of `network_evaluate` is worth as a JSON-able dict, the same on all ranks. Collective.

    network_evaluate, best_evaluate: states [n, S] -> (logits, value), of the network and of the best so far; the latter
    may be None, on all ranks or none, and is not played then. progress(name, unit) begins what is told of
    a match, with `update` and `finish` as the last arguments of `play_match`, and of what is done with the solver.
    The dict has "iteration", "simulations", "matches": {opponent: `rating.summary`} and, where `game` has a solver
    on every rank, "solver": `optimal_share`. All opponents meet the same openings, other ones in each iteration.
    """
    settings = config.evaluate
    simulations = settings.simulations or config.search.simulations
    search = config.search.model_copy(update={"simulations": simulations})
    player, seed = SearchPlayer(network_evaluate, search), (config.seed, iteration)
    opponents = _opponents(world, config, game, best_evaluate, search, seed)
    matches = {}
    for name in settings.opponents:
        if name in opponents:
            shown = progress(f"match against {name}", "games")
            result = play_match(world, game, player, opponents[name], settings.games_num, settings.opening_plies, seed,
                                shown.update, shown.finish)
            matches[name] = summary(result)
    report = {"iteration": iteration, "simulations": simulations, "matches": matches}
    # Asked on every rank, since a solver may be missing on some host.
    if settings.solver_positions and all(world.collect(solver.solvable(game))):
        shown = progress("solving positions", "positions")
        solved = solver.share(game, settings.solver_positions, world.rank, world.size, shown.update)
        shown.finish()
        shown = progress("comparison with the solver", "positions")
        report["solver"] = optimal_share(world, game, player, solved, shown.update, shown.finish)
    return report


def _opponents(world, config, game, best_evaluate, search, seed):
    """Return the players by the names that `evaluate.opponents` uses; "best" only if there is one."""
    rollout = search.model_copy(update={"simulations": config.evaluate.rollout_simulations})
    players = {
        "random": RandomPlayer((*seed, 1)),
        # Play-outs are drawn in the order in which they are asked for, so each rank has its own.
        "rollout": SearchPlayer(RolloutEvaluator(game, (*seed, 2, world.rank)), rollout),
    }
    return players if best_evaluate is None else players | {"best": SearchPlayer(best_evaluate, search)}
