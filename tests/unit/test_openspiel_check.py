"""Every game of OpenSpiel that fits keeps the invariants of games, with each number of players that it allows."""

import pytest

from az_mpi import games
from az_mpi.games.openspiel_fit import longest

pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
from openspiel_list import fitting, name_of  # noqa: E402

LONGEST = 60  # plies; longer games are cut, which keeps the test short
BY_NAME = {name_of(game): game for game in fitting()}
QUICK = [
    "openspiel:cliff_walking",
    "openspiel:catch",
    "openspiel:2048",
    "openspiel:pig(players=2)",
    "openspiel:pig(players=3)",
    "openspiel:backgammon",
    "openspiel:maedn(players=4)",
]


def checked(name, plies=LONGEST):
    game = BY_NAME[name]
    more = f"max_plies={plies}" if longest(game) > plies else ""
    given = name.rstrip(")") + (", " if "(" in name and more else "(" if more else "") + more
    return games.check(games.make(given + ")" * ("(" in given)), num_games=3)


@pytest.mark.parametrize("name", QUICK)
def test_games_of_each_kind_keep_every_invariant(name):
    assert checked(name) == []


@pytest.mark.process  # not since it starts any, but since all of them take as long
@pytest.mark.parametrize("name", sorted(set(BY_NAME) - set(QUICK)))
def test_every_game_keeps_every_invariant(name):
    assert checked(name) == []
