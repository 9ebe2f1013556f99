"""How often a player's moves keep a position's exact value.

In many positions every move does. So the share of a uniformly random mover is given for comparison, and positions in
which some legal move loses value are also counted separately.
Shapes: P positions, A actions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from az_mpi.evaluate.arena import GAMES_AT_ONCE, OnProgress, silent
from az_mpi.evaluate.opponents import SearchPlayer
from az_mpi.evaluate.solver import Solved
from az_mpi.games.base import Game
from az_mpi.mpi.world import World


def optimal_share(
    world: World,
    game: Game,
    player: SearchPlayer,
    solved: Solved,
    on_progress: OnProgress = silent,
    on_finish: Callable[[], None] = silent,
) -> dict[str, Any]:
    """Return shares of moves that keep the exact value, over the solved positions of all ranks, as plain numbers.
    Collective over world.

    solved: this rank's own positions. Shares without prefix are of the player's search, with a new tree for each
    position; policy_: of the legal move with the highest logit, without search; random_: the expectation for a
    uniformly random mover. A share over no positions is None. on_progress, on_finish: as for `arena.play_match`, but
    they count positions.
    """
    num_positions = len(solved.states)
    actions = [np.empty(0, np.int64)]
    outputs = [np.empty((0, game.num_actions))]
    plies = np.zeros(num_positions, np.int64) if solved.plies is None else solved.plies
    for start in range(0, num_positions, GAMES_AT_ONCE):
        on_progress(start, num_positions)
        part = slice(start, start + GAMES_AT_ONCE)
        states = solved.states[part]
        actions.append(player.actions(game, states, plies[part]))
        outputs.append(player.evaluate(states)[0])
    on_finish()
    searched = np.concatenate(actions)
    logits = np.concatenate(outputs)
    preferred = np.argmax(np.where(solved.legal, logits, -np.inf), axis=1)
    keeps = solved.keeps
    rows = np.arange(num_positions)
    differ = (solved.legal & ~keeps).any(axis=1)
    random_share = keeps.sum(axis=1) / solved.legal.sum(axis=1)
    columns = np.stack([np.ones(len(rows)), keeps[rows, searched], keeps[rows, preferred], random_share], axis=1)
    totals = world.sum(np.stack([columns.sum(axis=0), columns[differ].sum(axis=0)]))
    return _named(totals)


def _named(totals):
    """Return {name: share} from the sums [all | where moves differ] x [count, search, policy, random]."""
    (count, *overall), (differ_count, *differing) = totals.tolist()
    shares = {"num_positions": int(count), "num_positions_differ": int(differ_count)}
    for prefix, total, differ_total in zip(("", "policy_", "random_"), overall, differing):
        # Rounded, so that the order in which ranks are added does not change the result.
        shares[f"{prefix}overall"] = round(total / count, 6) if count else None
        shares[f"{prefix}where_moves_differ"] = round(differ_total / differ_count, 6) if differ_count else None
    return shares
