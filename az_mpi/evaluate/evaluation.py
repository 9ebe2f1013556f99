"""One evaluation of the network: matches against the opponents of `config.evaluate`, and the exact solver."""

from az_mpi.core.registry import OPPONENTS, SOLVERS, parse
from az_mpi.evaluate.arena import play_match
from az_mpi.evaluate.opponents import SearchPlayer
from az_mpi.evaluate.optimal import optimal_share
from az_mpi.evaluate.rating import summary


def evaluate(world, config, game, network_evaluate, best_evaluate, iteration, progress):
    """Return what the network of `network_evaluate` is worth as a JSON-able dict, the same on all ranks. Collective.

    network_evaluate, best_evaluate: states [n, S] -> (logits, value), of the network and of the best so far; the latter
    may be None, on all ranks or none, and is not played then. progress(name, unit) begins what is told of
    a match, with `update` and `finish` as the last arguments of `play_match`, and of what is done with the solver.
    The dict has "iteration", "simulations", "matches": {opponent's name: `rating.summary`} and, where there is an exact
    solver on every rank, "solver": `optimal_share`. All opponents meet the same openings, other ones in each iteration.
    """
    settings = config.evaluate
    simulations = settings.simulations or config.search.simulations
    search = config.search.model_copy(update={"simulations": simulations})
    player, seed, matches = SearchPlayer(network_evaluate, search), (config.seed, iteration), {}
    for name in settings.opponents:
        opponent = OPPONENTS.make(name, game=game, seed=seed, rank=world.rank, settings=settings, search=search,
                                  best=best_evaluate)  # fmt: skip
        if opponent is not None:
            name = parse(name).short()
            shown = progress(f"match against {name}", "games")
            result = play_match(world, game, player, opponent, settings.games_num, settings.opening_plies, seed,
                                shown.update, shown.finish)
            matches[name] = summary(result)
    report = {"iteration": iteration, "simulations": simulations, "matches": matches}
    solver = SOLVERS.make(settings.solver, game=game) if settings.solver_positions else None
    # Asked on every rank, since a solver may be missing on some host.
    if solver and not any(world.collect(solver.missing())):
        shown = progress("solving positions", "positions")
        solved = solver.share(settings.solver_positions, world.rank, world.size, shown.update)
        shown.finish()
        shown = progress("comparison with the solver", "positions")
        report["solver"] = optimal_share(world, game, player, solved, shown.update, shown.finish)
    return report
