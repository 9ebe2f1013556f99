"""Search over batches of trees: PUCT, Gumbel search, what they share. It knows no game."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING

from az_mpi.core.problems import OwnCodeError, escape
from az_mpi.core.registry import SEARCHES

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.games.base import Game
    from az_mpi.network.evaluators import Evaluator
    from az_mpi.search.puct import Search

# Self-play and matches read and call these.
NEEDED = (
    *("game", "trees", "streams", "target"),
    *("reset", "begin", "done", "run", "policy", "value", "choose", "advance"),
)


def make_search(
    game: Game, evaluate: Evaluator, settings: schema.Search, num_trees: int, noise: bool, threads: int = 1
) -> Search:
    """Return the search that `config.search` names, over `num_trees` trees: a subclass of `puct.Search`, or an object
    with what NEEDED names, as `puct.Search` has it; raises OwnCodeError if it has less. `selfplay.surprise_share` also
    needs `keep_priors` and `surprise`, and play needs `step` and `step_several`. Its constructor is given those of
    these arguments that it has, and those in the configuration."""
    search = SEARCHES.make(
        settings.algorithm,
        game=game,
        evaluate=evaluate,
        settings=settings,
        num_trees=num_trees,
        noise=noise,
        threads=threads,
    )
    if missing := [name for name in NEEDED if not hasattr(search, name)]:
        raise OwnCodeError(
            f'search.algorithm = "{escape(settings.algorithm)}"\n'
            f"  {type(search).__name__} has no {', '.join(missing)}\n"
            "  expected: a subclass of az_mpi.search.puct.Search, or an object with its "
            f"{', '.join(NEEDED[:-1])} and {NEEDED[-1]}"
        )
    if "plies" not in inspect.signature(search.reset).parameters:
        search.reset = functools.partial(_reset_at, search, search.reset)
    return search


def _reset_at(search, reset, slots, states, stream_words, plies=0):
    """Reset a search of a user's own that was written before `reset` took `plies`."""
    reset(slots, states, stream_words)
    search.trees.tree["root_ply"][slots] = plies


def make_play_search(game: Game, evaluate: Evaluator, settings: schema.Search, num_trees: int) -> Search:
    """Return the search for play and matches, over `num_trees` trees: `make_search` without noise, and with what
    `puct.Search.adapt_to_play` says. A search of a user's own may lack that method."""
    search = make_search(game, evaluate, settings, num_trees, noise=False)
    if hasattr(search, "adapt_to_play"):
        search.adapt_to_play()
    return search
