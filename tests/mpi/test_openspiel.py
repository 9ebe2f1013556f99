"""OpenSpiel's games in whole runs."""

import pytest

from az_mpi import games
from az_mpi.games.openspiel_fit import longest

pytestmark = pytest.mark.mpi
pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
from openspiel_list import fitting, kind_of, name_of  # noqa: E402

LONGEST = 24  # plies; longer games are cut, which the rules of the run allow

SMALL = {
    "go": "board_size=5",
    "hex": "board_size=4",
    "y": "board_size=5",
    "gomoku": "size=5",
    "havannah": "board_size=3",
    "cursor_go": "board_size=5, max_cursor_moves=10",
}
# Of games for several numbers of players: with the least of them, and those that differ in kind.
SEATS = {"chinese_checkers": (2, 3, 6), "maedn": (2, 3, 4), "pig": (2, 3, 10), "quoridor": (2, 3, 4), "yacht": (1, 2, 3)}
# These stand for all: many actions, heaps, moves in a row, several boards, a board of each shape, dice, one player.
SOME = ["chess", "nim", "mancala", "dots_and_boxes", "go", "quoridor", "ultimate_tic_tac_toe"]


def chosen():
    """Return {the name of a game in OpenSpiel: what the program takes: a small board, and no more plies than LONGEST},
    with the kind of each."""
    found = []
    for game in fitting():
        name, players = game.get_type().short_name, game.get_parameters().get("players")
        if players and players not in SEATS.get(name, (players,)):
            continue
        given = [text for text in (f"players={players}" * bool(players), SMALL.get(name)) if text]
        small = games.make(f"openspiel:{name}({', '.join(given)})")
        given += [f"max_plies={LONGEST}"] * (longest(small.game) > LONGEST)
        found.append((name, f"{name}({', '.join(given)})", kind_of(game)))
    return found
for one in chosen():
    print(one[1])
