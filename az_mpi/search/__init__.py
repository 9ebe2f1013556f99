"""Search over batches of trees; knows nothing of any game."""

from az_mpi.core.registry import SEARCHES


def make_search(game, evaluate, settings, num_trees, noise, threads=1):
    """Return the search that `config.search` names, over `num_trees` trees: an object with the methods of
    `puct.Search`, made with those of these arguments that it names, and with its own from the configuration."""
    return SEARCHES.make(settings.algorithm, game=game, evaluate=evaluate, settings=settings, num_trees=num_trees,
                         noise=noise, threads=threads)  # fmt: skip
