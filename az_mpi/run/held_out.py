"""Games that are held out from a fit: how well the network knows their moves and their results.

Shapes: n positions, S numbers a state, A actions.
"""

from typing import Any

import numpy as np

from az_mpi.games.base import Game
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import searched
from az_mpi.selfplay.record import Record

NUM_BINS = 10  # of predicted values from -1 to 1
AMONG = 5
BATCH = 256
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # spreads successive ids evenly (Knuth's multiplicative hashing)


def is_held_out(ids: np.ndarray, share: float) -> np.ndarray:
    """Return which games are held out, bool [n]: always the same ones, about this share of them. ids: uint64 [n]."""
    return (ids * _SPREAD >> np.uint64(40)) / 2.0**24 < share


def to_rows(record: Record, game: Game) -> np.ndarray:
    """Return what `measure` needs of the positions of a record: state, value (the result for the player to move) and
    action (the likeliest one of its policy, -1 without a policy)."""
    positions, policy = record.positions, record.policy
    state = ("state", game.state_dtype, (game.state_size,))
    rows = np.empty(len(positions), [state, ("value", "<f4"), ("action", "<i4")])
    value = positions["value"] if positions["value"].ndim == 1 else positions["value"][:, 0]
    rows["state"], rows["value"], rows["action"] = positions["state"], value, -1
    of = np.repeat(np.arange(len(positions)), positions["policy_count"])
    order = np.lexsort((policy["probability"], of))  # the likeliest one of each position comes last
    rows["action"][of[order]] = policy["action"][order]
    return rows


def sums(engine: Engine, game: Game, rows: np.ndarray) -> np.ndarray:
    """Return the sums that `figures` makes figures of, float64; those of several ranks add up. rows: of `to_rows`."""
    total = np.zeros(5 + 3 * NUM_BINS)
    for begin in range(0, len(rows), BATCH):
        part = rows[begin : begin + BATCH]
        logits, values = searched(engine.evaluate(game.planes(part["state"])), game.num_players)
        values = values if values.ndim == 1 else values[:, 0]
        logits = np.where(game.legal(part["state"]), logits, -np.inf)
        told = part["action"] >= 0
        of_move = np.take_along_axis(logits, np.maximum(part["action"], 0)[:, None], axis=1)
        better = (logits > of_move).sum(axis=1)[told]  # how many moves the network thinks better of
        error = values - part["value"]
        total[:5] += [told.sum(), (better == 0).sum(), (better < AMONG).sum(), (error**2).sum(), np.abs(error).sum()]
        bins = np.clip(((values + 1) / 2 * NUM_BINS).astype(int), 0, NUM_BINS - 1)
        for k, column in enumerate((np.ones(len(part)), values, part["value"])):
            total[5 + k * NUM_BINS :][:NUM_BINS] += np.bincount(bins, column, NUM_BINS)
    return total


def figures(total: np.ndarray) -> dict[str, Any]:
    """Return the figures, by name, {} without positions. total: what `sums` returned, added up over ranks.

    policy_top1, policy_top5: the share of positions whose move is the network's first choice, or among its first five.
    value_squared_error, value_error: the means of (v - z)^2 and |v - z|. calibration_error: the mean, over positions,
    of how far the mean result of positions with about the same predicted value is from that value. calibration: for
    each tenth of the predicted values from -1 to 1: [positions, mean prediction, mean result]."""
    num, predicted, result = total[5:].reshape(3, NUM_BINS)
    positions = num.sum()
    if not positions:
        return {}
    of_bins = np.maximum(num, 1)
    moves = max(total[0], 1.0)
    return {
        "num_positions": int(positions),
        "policy_top1": total[1] / moves,
        "policy_top5": total[2] / moves,
        "value_squared_error": total[3] / positions,
        "value_error": total[4] / positions,
        "calibration_error": float(np.abs(predicted - result).sum() / positions),
        "calibration": [[int(n), float(p), float(r)] for n, p, r in zip(num, predicted / of_bins, result / of_bins)],
    }


def in_words(found: dict[str, Any]) -> str:
    """Return figures as a line."""
    if not found:
        return "no games are held out"
    return (
        f"held out, {found['num_positions']:,} positions: the move played is the first choice in "
        f"{100 * found['policy_top1']:.1f} %, among five in {100 * found['policy_top5']:.1f} %; error of the value "
        f"{found['value_error']:.3f} (squared {found['value_squared_error']:.3f}), of its calibration "
        f"{found['calibration_error']:.3f}"
    )
