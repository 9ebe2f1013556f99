"""Which games of OpenSpiel fit, and what they are worth."""

from typing import Any

import numpy as np

from az_mpi.core.printing import counted
from az_mpi.games.base import PLAYERS_MAX

STORED_MAX = np.iinfo(np.int16).max  # a state is made of such numbers
# Games that end the process in OpenSpiel's own code: {name: how}.
CRASHES = {"morpion_solitaire": "a copy of its states ends the process in OpenSpiel; the game morpion has these rules"}


def misfit(game: Any) -> str | None:
    """Return which properties of an OpenSpiel game do not fit, and what is needed; None if all fit."""
    import pyspiel

    kind = game.get_type()
    problems = []
    players = game.num_players()
    if players > PLAYERS_MAX:
        problems.append(f"it has {counted(players, 'player')}; allowed: 1 to {PLAYERS_MAX}")
    explicit = (pyspiel.GameType.ChanceMode.DETERMINISTIC, pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC)
    wanted = {
        "dynamics": (pyspiel.GameType.Dynamics.SEQUENTIAL,),
        "chance_mode": explicit,
        "information": (pyspiel.GameType.Information.PERFECT_INFORMATION,),
    }
    if players == 2:  # one value stands for both, so they must add up to 0
        wanted["utility"] = (pyspiel.GameType.Utility.ZERO_SUM,)
    for field, values in wanted.items():
        if (found := getattr(kind, field)) not in values:
            names = " or ".join(value.name for value in values)
            problems.append(f"its {field} is {found.name}, needed is {names}")
    if kind.short_name in CRASHES:
        problems.append(CRASHES[kind.short_name])
    elif not kind.provides_observation_tensor:
        problems.append("it has no observation tensor for a network")
    if problems:
        return "; ".join(problems)
    for count, what in ((game.num_distinct_actions(), "actions"), (game.max_chance_outcomes(), "outcomes of chance")):
        if count > STORED_MAX:
            problems.append(f"it has {count:,} {what}; at most {STORED_MAX:,} can be stored")
    low, high = bounds(game)
    if not (np.isfinite([low, high]).all() and low < high):
        problems.append(f"its utilities are from {low:g} to {high:g}, which cannot be mapped to -1 to 1")
    return "; ".join(problems) or None


def bounds(game: Any) -> tuple[float, float]:
    """Return (the least utility, the largest one) of a game of OpenSpiel."""
    if game.get_type().short_name == "maedn":  # it says what four players get for any number of them
        return -1.0, game.num_players() - 1.0
    return game.min_utility(), game.max_utility()


def longest(game: Any) -> int:
    """Return how many plies a game of OpenSpiel has at most, chance moves among them."""
    return game.max_game_length() + game.max_chance_nodes_in_history()
