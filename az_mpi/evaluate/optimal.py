"""How often a player's moves keep a position's exact value.

Many moves do, whoever chooses them: the share of a uniformly random mover stands beside the player's, and the positions
in which some legal move gives value away are counted by themselves.
Shapes: P positions, A actions.
"""

import numpy as np

from az_mpi.evaluate.arena import GAMES_AT_ONCE, silent


def optimal_share(world, game, player, solved, on_progress=silent, on_finish=silent):
    """Return shares of value-keeping moves over the solved positions of all ranks, as plain numbers. Collective.

    player: a `SearchPlayer`, whose trees are new in each position. solved: this rank's own positions, a `Solved`.
    Without prefix: the moves of its search; policy_: the legal moves with the highest logit, without any search;
    random_: expected of a uniformly random mover, exactly. None where there are no such positions.
    on_progress, on_finish: as for `arena.play_match`, of positions.
    """
    positions_num = len(solved.states)
    searched, logits = [np.empty(0, np.int64)], [np.empty((0, game.num_actions))]
    for start in range(0, positions_num, GAMES_AT_ONCE):
        on_progress(start, positions_num)
        states = solved.states[start : start + GAMES_AT_ONCE]
        searched.append(player.actions(game, states))
        logits.append(player.evaluate(states)[0])
    on_finish()
    searched, logits = np.concatenate(searched), np.concatenate(logits)
    preferred = np.argmax(np.where(solved.legal, logits, -np.inf), axis=1)
    keeps, rows = solved.keeps, np.arange(positions_num)
    differ = (solved.legal & ~keeps).any(axis=1)
    random_share = keeps.sum(axis=1) / solved.legal.sum(axis=1)
    columns = np.stack([np.ones(len(rows)), keeps[rows, searched], keeps[rows, preferred], random_share], axis=1)
    totals = world.sum(np.stack([columns.sum(axis=0), columns[differ].sum(axis=0)]))
    return _named(totals)


def _named(totals):
    """Return the sums [all | where moves differ] x [count, search, policy, random] under their names."""
    (count, *overall), (differ_count, *differing) = totals.tolist()
    shares = {"positions_num": int(count), "positions_differ_num": int(differ_count)}
    for prefix, total, differ_total in zip(("", "policy_", "random_"), overall, differing):
        # Rounded, so that the order in which ranks are added up does not show.
        shares[f"{prefix}overall"] = round(total / count, 6) if count else None
        shares[f"{prefix}where_moves_differ"] = round(differ_total / differ_count, 6) if differ_count else None
    return shares
