"""The games of OpenSpiel that az_mpi takes, from OpenSpiel's own list: `python tests/openspiel_list.py` prints the
tables that docs/games.md shows."""

from collections import defaultdict
from typing import Any

import pyspiel

from az_mpi.games.openspiel_fit import misfit

KINDS = {
    (1, False): "1 | no",
    (1, True): "1 | yes",
    (2, False): "2 | no",
    (2, True): "2 | yes",
    (3, False): "3 or more | no",
    (3, True): "3 or more | yes",
}


def of_players(kind: Any) -> list[Any]:
    """Return OpenSpiel's games of a type, one for each number of players that it allows; none if it cannot be loaded
    without parameters."""
    found = []
    for num in range(kind.min_num_players, kind.max_num_players + 1):
        given = {"players": num} if "players" in kind.parameter_specification else {}
        try:
            game = pyspiel.load_game(kind.short_name, given)
        except Exception:  # SpielError has no class of its own in every version
            continue
        if game.num_players() == num:
            found.append(game)
    return found


def kinds_of_perfect_information() -> list[Any]:
    """Return OpenSpiel's types of games with perfect information and one move at a time."""
    dynamics, information = pyspiel.GameType.Dynamics.SEQUENTIAL, pyspiel.GameType.Information.PERFECT_INFORMATION
    return [kind for kind in pyspiel.registered_games() if (kind.dynamics, kind.information) == (dynamics, information)]


def fitting() -> list[Any]:
    """Return OpenSpiel's games that fit, with each number of players that they allow."""
    return [game for kind in kinds_of_perfect_information() for game in of_players(kind) if misfit(game) is None]


def kind_of(game: Any) -> tuple[int, bool]:
    """Return (1, 2, or 3 for three players and more; whether there are chance moves)."""
    return min(game.num_players(), 3), game.max_chance_outcomes() > 0


def name_of(game: Any) -> str:
    """Return the name of a game in a configuration."""
    name = game.get_type().short_name
    players = game.get_parameters().get("players")
    return f"openspiel:{name}(players={players})" if players else f"openspiel:{name}"


def table() -> str:
    """Return the games that fit as a table in Markdown."""
    names: dict[tuple[int, bool], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for game in fitting():
        names[kind_of(game)][game.get_type().short_name].append(game.num_players())
    lines = ["| players | chance | games |", "|---|---|---|"]
    for kind, words in KINDS.items():
        games = [
            name + (f" ({', '.join(map(str, players))})" if kind[0] == 3 else "")
            for name, players in sorted(names[kind].items())
        ]
        lines.append(f"| {words} | {', '.join(games)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
