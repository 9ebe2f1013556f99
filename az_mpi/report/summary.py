"""One line for people on what an iteration did."""


def iteration_line(values):
    """Return the summary of an iteration's metrics."""
    times = [name for name in ("play_s", "exchange_s", "train_s", "publish_s", "save_s") if name in values]
    spent = ", ".join(f"{name.removesuffix('_s')} {values[name]:.1f} s" for name in times)
    return (
        f"  {values['games_num']:,} games ({values['games_per_s']:.1f}/s), {values['positions_num']:,} positions, "
        f"{values['simulations_per_s']:,.0f} simulations/s, length {values['mean_length']:.1f}, "
        f"first player scores {values['first_player_score']:.2f}; {values['steps_num']} steps; {spent}"
    )
