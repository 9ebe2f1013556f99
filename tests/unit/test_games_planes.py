"""What games say of their planes is what the planes show."""

from pathlib import Path

import numpy as np
import pytest

from az_mpi import games
from az_mpi.games import connect4
from az_mpi.games.base import NOT_DESCRIBED, after, described_planes, turn_cells
from az_mpi.games.random_games import random_games
from az_mpi.plan.check_game import planes_of

PAGE = Path(__file__).parents[2] / "docs/games.md"
NATIVE = (
    "connect4",
    "tictactoe",
    "mnk(m=4,n=3,k=3)",
    "othello",
    "hex(size=5)",
    "hex(size=5,swap=True)",
    "breakthrough",
    "go",
    "examples/own_game.py:Hex(size=4)",
    "examples/own_planes.py:Threats",
)
ON_PAGE = ("chess", "connect4", "gomoku", "mnk(m=5,n=5,k=4,players=3)", "2048", "morpion", "morpion(variant='5T')")
ON_PAGE += ("othello", "hex", "hex(size=11,swap=True)", "breakthrough", "go(size=9)", "backgammon")


def rows_of_the_page():
    """Return the rows of the table in docs/games.md."""
    rows = []
    for name in ON_PAGE:
        texts, board = described_planes(games.make(name))
        rows.append(f"| `{name}` | {'; '.join(texts)} | {board} |")
    return rows


def test_the_page_says_what_the_games_say():
    text = PAGE.read_text()
    table = text[text.index("### What the planes show") :].split("\n\n")[2].splitlines()
    assert table[2:] == rows_of_the_page()


def positions(game):
    return np.concatenate([states for states, _ in random_games(game, 8, np.random.default_rng(1))])


@pytest.mark.parametrize("name", NATIVE)
def test_every_plane_of_a_game_is_described_and_the_rows_are_those_of_its_board(name):
    """The first two planes are compared with the board that the game draws, whose rows are from the top; the rows of
    player 1 as the text says it."""
    game = games.make(name)
    texts, rows = described_planes(game)
    assert len(texts) == game.planes_shape[0] and NOT_DESCRIBED not in (*texts, rows)
    assert texts[0].endswith("the player to move") and texts[1].endswith("the other player")
    assert rows.startswith("row 0 is the top row of the board")
    states = positions(game)
    seen_from_both = "player 1 sees it" in rows
    for state, planes, player in zip(states, game.planes(states), game.to_play(states)):
        board = game.board(state)
        owners = board.players
        if player and seen_from_both:
            owners = owners.T if "mirrored" in rows else owners[::-1, ::-1]
        assert (planes[0] == (owners == player)).all() and (planes[1] == (owners == 1 - player)).all()
        first_row, first_column = board.rows[:1], board.columns[0]
        assert f"which is {first_column}" in rows
        assert not first_row or f"which is {first_row[0]} in text" in rows


def test_planes_of_go_are_told_by_their_texts():
    """After a pass of Black it is White's turn: 'Black is to move' is 0, 'the other player has just passed' is 1."""
    game = games.make("go(size=5)")
    texts, _ = described_planes(game)
    black = next(k for k, text in enumerate(texts) if "if Black, player 0, is to move" in text)
    passed = next(k for k, text in enumerate(texts) if "has just passed" in text)
    for actions, wanted in (([], (1, 0)), ([25], (0, 1)), ([25, 3], (1, 0))):
        planes = game.planes(after(game, actions)[None])[0]
        assert (planes[black].min(), planes[passed].max()) == wanted == (planes[black].max(), planes[passed].min())


def test_a_plane_of_hex_tells_where_to_swap_is_possible():
    game = games.make("hex(size=3,swap=True)")
    assert "may swap" in described_planes(game)[0][2]
    for actions in ([], [4], [4, 0]):
        planes = game.planes(after(game, actions)[None])[0]
        assert planes[2].all() == planes[2].any() == (len(actions) == 1)


class Other(connect4.Rules):
    def planes(self, states):
        return 1 - super().planes(states)


class Short(Other):
    def describe_planes(self):
        return ["one alone"], "row 0 is the top one"


class Described(Other):
    def describe_planes(self):
        return ["empty or the other player's", "empty or the mover's"], "row 0 is the top one"


def test_a_class_with_other_planes_does_not_inherit_their_description():
    assert described_planes(Other()) == ([NOT_DESCRIBED] * 2, NOT_DESCRIBED)
    assert planes_of(Other()).startswith("planes: not described")
    assert described_planes(Short())[0] == [NOT_DESCRIBED] * 2 and "1 texts for 2 planes" in planes_of(Short())
    assert described_planes(Described()) == (
        ["empty or the other player's", "empty or the mover's"],
        "row 0 is the top one",
    )


def test_check_game_shows_the_planes_of_a_game_and_shortens_many():
    lines = planes_of(games.make("go")).splitlines()
    assert len(lines) == 6 and lines[3] == f"  2: {described_planes(games.make('go'))[0][2]}"
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    lines = planes_of(games.make("openspiel:oware(max_plies=100)")).splitlines()
    assert len(lines) < 30 and lines[-1].endswith("did not begin is to move")


def in_chess(game, words):
    """Return {text of a plane: plane} after these moves, in long algebraic notation."""
    from az_mpi.games.openspiel import long_algebraic

    states = game.initial(1)
    for word in words.split():
        live = game.live(states[0])
        [action] = [action for action in live.legal_actions() if long_algebraic(live, action) == word]
        states = game.play(states, np.array([action]))
    return dict(zip(described_planes(game)[0], game.planes(states)[0]))


def test_planes_of_chess_show_what_their_texts_say():
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    game = games.make("openspiel:chess(max_plies=100)")
    texts, rows = described_planes(game)
    assert len(set(texts)) == len(texts) == 21 and "row 0 is the file a, and column 0 the rank that is nearest" in rows
    start = in_chess(game, "")
    assert np.argwhere(start["kings of White"]).tolist() == [[4, 0]]  # file e, first rank
    assert np.argwhere(start["queens of Black"]).tolist() == [[3, 7]] and start["empty squares"].sum() == 32
    assert start["1 everywhere if White is to move"].all()
    after_e4 = in_chess(game, "e2e4")
    assert np.argwhere(after_e4["kings of White"]).tolist() == [[4, 7]] and after_e4["pawns of White"][4, 4] == 1
    assert not after_e4["1 everywhere if White is to move"].any()
    repeated = in_chess(game, "g1f3 g8f6 f3g1 f6g8")
    [again] = [plane for text, plane in repeated.items() if text.startswith("how often the position")]
    assert (again == 0.5).all()
    assert (repeated["moves since the last capture or pawn move, divided by 101"] == np.float32(4 / 101)).all()
    for side, moves in (("White", "h2h4 e7e5 h1h3"), ("Black", "h2h4 h7h5 a2a4 h8h6")):
        kept = {text for text, plane in in_chess(game, moves).items() if "may still castle" in text and plane.all()}
        lost = {f"1 everywhere if {side} may still castle to the king's side"}
        assert kept == {text for text in texts if "may still castle" in text} - lost


@pytest.mark.parametrize("moves", ["", "e2e4"])
def test_planes_of_chess_from_the_movers_side_name_the_mover(moves):
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    planes = in_chess(games.make("openspiel:chess(max_plies=100,view='mover')"), moves)
    assert np.argwhere(planes["kings of the player to move"]).tolist() == [[4, 0]]
    assert np.argwhere(planes["kings of the other player"]).tolist() == [[4, 7]]
    assert planes["1 everywhere if the player to move may still castle to the queen's side"].all()


@pytest.mark.parametrize("name", NATIVE)
def test_planes_are_turned_as_the_boards_cells_are_by_any_number_of_threads(name):
    game = games.make(name)
    states = positions(game)
    symmetry = np.arange(len(states)) % len(game.symmetry_cells)
    expected = turn_cells(game.planes(states), game.symmetry_cells, symmetry)
    for num_threads, n in ((1, len(states)), (2, len(states)), (3, 1), (2, 7)):
        found = np.full((n, *game.planes_shape), 7, game.planes_dtype)
        game.turned_planes(states[:n], symmetry[:n], found, num_threads)
        assert (found == expected[:n]).all()
