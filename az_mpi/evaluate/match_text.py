"""The result of a match as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from az_mpi.core.printing import bounds, counted

if TYPE_CHECKING:
    from az_mpi.evaluate.tally import Played


def so_far(played: Sequence[Sequence[Played]], num_games: int, names: Sequence[str]) -> str:
    """Return a line on a match under way. played: as in `match.Match`. num_games: of the whole match."""
    games = played[0]
    if len(played) == 2:
        means = [f"{name} {np.mean([one.score for one in of]):.5g}" for name, of in zip(names, played) if of]
        return f"{sum(map(len, played))} of {2 * num_games} games, mean score: {', '.join(means) or '-'}"
    if games and len(games[0].results) > 2:
        first = sum(one.result == max(one.results) > min(one.results) for one in games)
        return f"{len(games)} of {num_games} games: {names[0]} was first in {first}"
    signs = [int(np.sign(one.result)) for one in games]
    return (
        f"{len(signs)} of {num_games} games: {names[0]} won {signs.count(1)}, drew "
        f"{signs.count(0)}, lost {signs.count(-1)}"
    )


def table(result: dict[str, Any]) -> str:
    """Return the result of a match as lines of text."""
    if not result.get("num_games"):
        return f"{result['a']} against {result['b']}: no game has ended"
    lines = _of_one(result) if "other" in result else _of_two(result) if "as_first" in result else _of_several(result)
    if result["num_forfeits"]:
        lines.append(f"games lost or resigned before their end: {result['num_forfeits']}")
    if result.get("sprt"):
        lines.append(_of_test(result["sprt"]))
    return "\n".join([f"A {result['a']}", f"B {result['b']}", *lines])


def _of_two(result):
    rows: list[tuple[str, ...]] = [("", "won", "drawn", "lost", "score")]
    for what, counts in (
        ("all games", [result["wins"], result["draws"], result["losses"]]),
        ("A begins", result["as_first"]),
        ("B begins", result["as_second"]),
    ):
        score = (counts[0] + counts[1] / 2) / max(sum(counts), 1)
        rows.append((what, *map(str, counts), f"{score:.3f}" if sum(counts) else "-"))
    lines = [f"{row[0]:<10}" + "".join(f"{cell:>8}" for cell in row[1:]) for row in rows]
    infinite = {"elo": "-inf" if result["score"] < 0.5 else "+inf", "elo_low": "-inf", "elo_high": "+inf"}
    elo, low, high = (word if result[key] is None else f"{result[key]:+.0f}" for key, word in infinite.items())
    lines.append(
        f"score {result['score']:.3f} [{result['score_low']:.3f}, {result['score_high']:.3f}], "
        f"Elo {elo} [{low}, {high}] (95 %)"
    )
    if "mean_result" in result:
        lines.append(_mean_result(result) + ", pairs with the same dice")
    return lines


def _of_several(result):
    seats = ", ".join(f"{share:.3f}" for share in result["score_by_seat"])
    return [
        f"{counted(result['num_games'], 'game')}, A in each seat against B in the others; A was alone in first "
        f"place in {result['wins']}",
        f"share of the points {result['score']:.3f} [{result['score_low']:.3f}, {result['score_high']:.3f}] (95 %); "
        f"equal players have {1 / result['num_players']:.3f}; by seat {seats}",
        _mean_result(result),
    ]


def _of_one(result):
    other = result["other"]
    rows: list[tuple[str, ...]] = [(result["score_name"], "mean", "best", "worst", "10 %", "median", "90 %")]
    keys = "mean", "best", "worst", "q10", "median", "q90"
    for what, one in (("A", result), ("B", other)):
        rows.append((what, *(f"{one[f'score_{key}']:.5g}" for key in keys)))
    lines = [f"{row[0]:<10}" + "".join(f"{cell:>9}" for cell in row[1:]) for row in rows]
    return [
        *lines,
        f"A has {other['difference']:+.5g}{bounds(other, 'difference')} more (95 %) on "
        f"{counted(other['num_games'], 'seed')}: better on {other['better']}, the same on {other['same']}, worse on "
        f"{other['worse']}",
    ]


def _mean_result(result):
    return f"mean result of A {result['mean_result']:+.3f}{bounds(result, 'mean_result')} (95 %)"


def _of_test(sprt):
    low = f"{sprt['elo0']:g}"
    high = f"{sprt['elo1']:g}"
    known = {
        "H0": f"the difference is closer to {low} Elo than to {high} (H0)",
        "H1": f"the difference is closer to {high} Elo than to {low} (H1)",
    }
    return (
        f"SPRT: {known.get(sprt['accepted'], 'not decided')}; log-likelihood ratio "
        f"{sprt['log_likelihood_ratio']:.2f}, decided at -{sprt['bound']:.2f} or {sprt['bound']:.2f}"
    )
