"""Log lines that summarise an iteration and an evaluation."""

from collections.abc import Sequence
from typing import Any

from az_mpi.core.printing import bounds, counted


def loss_names(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the losses in records of metrics, in order; each head of the network has one."""
    return list(dict.fromkeys(name for record in records for name in record if name.endswith("_loss")))


def losses_text(values: dict[str, Any]) -> str:
    """Return the losses of one record, separated by commas; empty where it has none."""
    return ", ".join(f"{name.replace('_', ' ')} {values[name]:.3f}" for name in loss_names([values]))


def iteration_line(values: dict[str, Any]) -> str:
    """Return the summary of an iteration's metrics. One that was resumed in its training played no games, and has no
    rates of them."""
    games, positions = counted(values["num_games"], "game"), counted(values["num_positions"], "position")
    if "games_per_s" in values:
        games += f" ({values['games_per_s']:.1f}/s)"
        positions += f", {values['simulations_per_s']:,.0f} simulations/s"
    if "meanwhile_simulations_per_s" in values:
        positions += f" ({values['meanwhile_simulations_per_s']:,.0f}/s meanwhile)"
    if values["num_games"] > (asked := values.get("num_games_asked", values["num_games"])):
        games += f", {asked:,} asked for"
    if "cache_hit_rate" in values:
        positions += f", {100 * values['cache_hit_rate']:.0f} % from the cache"
    if "mean_length" in values:
        positions += f", length {values['mean_length']:.1f}"
    if "first_player_score" in values:
        positions += f", first player scores {values['first_player_score']:.2f}"
    if "mean_result" in values:  # of one player
        positions += f", mean result {values['mean_result']:+.3f}"
    if "ranked_threshold" in values:
        positions += f", ranked by {threshold_text(values)}"
    losses = ", ".join(filter(None, [counted(values["num_steps"], "step"), losses_text(values)]))
    times = [name for name in ("play_s", "exchange_s", "train_s", "broadcast_s", "save_s") if name in values]
    spent = ", ".join(f"{name.removesuffix('_s')} {values[name]:.1f} s" for name in times)
    return f"  {games}, {positions}; {losses}; {spent}"


def threshold_text(values: dict[str, Any], score_name: str = "score") -> str:
    """Return the threshold of ranked reward, as an iteration's metrics have it: a score where the game has scores."""
    score = values.get("ranked_threshold_score")
    return f"result {values['ranked_threshold']:+.3f}" if score is None else f"{score_name} {score:,.6g}"


def evaluation_lines(result: dict[str, Any]) -> list[str]:
    """Return a line for each match, one for the comparison with the exact solver, and of one player one for its scores
    and one for the best possible ones."""
    lines = []
    if "score_mean" in result:
        lines.append(f"  {result['score_name']}: {scores_text(result)}; {counted(result['num_games'], 'game')}")
    for name, match in result["matches"].items():
        if "difference" in match:
            text = _of_one(name, match)
        else:
            text = _of_two(match) if "elo" in match else _of_several(match)
        if num := match.get("num_forfeits"):
            text += f"; {counted(num, 'game')} lost or resigned before the end"
        lines.append(f"  against {name}: {text}")
    if best := result.get("optimum"):
        lines.append(f"  the best possible: {best['score_mean']:.5g}, {_relative(result['score_mean'], best)}")
    if solver := result.get("solver"):
        shares = [
            f"{_percent(solver[key])} {label} (random mover {_percent(solver['random_' + key])})"
            for key, label in (("overall", "of all"), ("where_moves_differ", "where moves differ"))
        ]
        judged = counted(solver["num_positions"], "position")
        lines.append(f"  moves that keep the exact value, {judged}: {', '.join(shares)}")
    return lines


def scores_text(found: dict[str, Any]) -> str:
    """Return the scores of one player, which `rating.score_summary` summed up, as text."""
    interval = bounds(found, "score_mean", ".5g")
    quantiles = ", ".join(
        f"{name} {found[f'score_{key}']:.5g}" for name, key in (("10 %", "q10"), ("median", "median"), ("90 %", "q90"))
    )
    return f"mean {found['score_mean']:.5g}{interval}, best {found['score_best']:.5g}; quantiles: {quantiles}"


def _of_one(name, match):
    return (
        f"{match['difference']:+.5g}{bounds(match, 'difference')} on the same seeds, where {name} has "
        f"{match['score_mean']:.5g} (best {match['score_best']:.5g}); better on {match['better']}, the same on "
        f"{match['same']}, worse on {match['worse']}"
    )


def _of_two(match):
    ends = ", ".join("-" if match[key] is None else f"{match[key]:+.0f}" for key in ("elo_low", "elo_high"))
    elo = "" if match["elo"] is None else f", Elo {match['elo']:+.0f} [{ends}]"
    return (
        f"{match['wins']} won, {match['draws']} drawn, {match['losses']} lost; score "
        f"{match['score']:.3f} [{match['score_low']:.3f}, {match['score_high']:.3f}]{elo}{_mean_result(match)}"
    )


def _of_several(match):
    return (
        f"share of the points {match['score']:.3f} [{match['score_low']:.3f}, {match['score_high']:.3f}] (equal "
        f"players have {1 / match['num_players']:.3f}), alone in first place in {match['wins']} of "
        f"{counted(match['num_games'], 'game')}{_mean_result(match)}"
    )


def _mean_result(match):
    if "mean_result" not in match:
        return ""
    return f"; mean result {match['mean_result']:+.3f}{bounds(match, 'mean_result', '+.3f')}"


def _relative(mean, best):
    """Return how far the mean score is below the best possible one."""
    below = best["score_mean"] - mean
    share = f" or {100 * below / abs(best['score_mean']):.2g} %" if best["score_mean"] else ""
    return f"{below:.5g}{share} more than the network's; reached on {best['same']} of {best['num_games']}"


def _percent(share):
    return "-" if share is None else f"{100 * share:.1f} %"
