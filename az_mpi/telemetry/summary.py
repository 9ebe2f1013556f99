"""Log lines that summarise an iteration and an evaluation."""

from typing import Any

from az_mpi.core.printing import counted


def loss_names(records: list[dict[str, Any]]) -> list[str]:
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
        positions += f", length {values['mean_length']:.1f}, first player scores {values['first_player_score']:.2f}"
    losses = ", ".join(filter(None, [counted(values["num_steps"], "step"), losses_text(values)]))
    times = [name for name in ("play_s", "exchange_s", "train_s", "broadcast_s", "save_s") if name in values]
    spent = ", ".join(f"{name.removesuffix('_s')} {values[name]:.1f} s" for name in times)
    return f"  {games}, {positions}; {losses}; {spent}"


def evaluation_lines(result: dict[str, Any]) -> list[str]:
    """Return a line for each match and one for the comparison with the exact solver."""
    lines = []
    for name, match in result["matches"].items():
        elo = "" if match["elo"] is None else f", Elo {match['elo']:+.0f} [{_bounds(match)}]"
        lines.append(
            f"  against {name}: {match['wins']} won, {match['draws']} drawn, {match['losses']} lost; score "
            f"{match['score']:.3f} [{match['score_low']:.3f}, {match['score_high']:.3f}]{elo}"
        )
    if solver := result.get("solver"):
        shares = [
            f"{_percent(solver[key])} {label} (random mover {_percent(solver['random_' + key])})"
            for key, label in (("overall", "of all"), ("where_moves_differ", "where moves differ"))
        ]
        judged = counted(solver["num_positions"], "position")
        lines.append(f"  moves that keep the exact value, {judged}: {', '.join(shares)}")
    return lines


def _bounds(match):
    return ", ".join("-" if match[key] is None else f"{match[key]:+.0f}" for key in ("elo_low", "elo_high"))


def _percent(share):
    return "-" if share is None else f"{100 * share:.1f} %"
