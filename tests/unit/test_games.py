"""The rules: drawn boards, numbers known from elsewhere, and a second implementation on lists."""

import numpy as np
import pytest
from helpers import Corridor, after, board, stones

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game, board_after
from az_mpi.games.board_data import Board

CONNECT4, TICTACTOE = games.make("connect4"), games.make("tictactoe")
BOTH = pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=lambda game: game.name)


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("who", ["X", "O"])
def test_each_line_of_tictactoe_wins_with_its_third_stone(line, who):
    others = [cell for cell in range(9) if cell not in line]
    # Three stones elsewhere that are no line themselves.
    others = next(o for o in (others[:3], others[1:4], [others[0], others[2], others[4]]) if tuple(o) not in LINES)
    mine, theirs = (line, others[:2]) if who == "X" else (line, others)
    states = TICTACTOE.initial(1)
    for ply in range(len(mine) + len(theirs)):
        assert TICTACTOE.terminal(states)[0].tolist() == [False]
        turn = "XO"[ply % 2]
        states = TICTACTOE.play(states, np.array([(mine if turn == who else theirs)[ply // 2]]))
    assert [part.tolist() for part in TICTACTOE.terminal(states)] == [[True], [-1.0]]


def test_all_games_of_tictactoe_are_counted_right():
    """Known counts: 5478 positions; 255168 games, of which 131184 X wins, 77904 O wins and 46080 are drawn."""
    states, ways = TICTACTOE.initial(1), np.array([1])
    positions, results = 0, {1: 0, -1: 0, 0: 0}
    while len(states):
        positions += len(states)
        ended, value = TICTACTOE.terminal(states)
        first = np.where(TICTACTOE.to_play(states) == 0, value, -value)
        for k in np.flatnonzero(ended):
            results[int(first[k])] += int(ways[k])
        row, action = np.nonzero(TICTACTOE.legal(states) & ~ended[:, None])
        states, index = np.unique(TICTACTOE.play(states[row], action), axis=0, return_inverse=True)
        ways = np.bincount(index.reshape(-1), weights=ways[row], minlength=len(states)).astype(np.int64)
    assert positions == 5478 and results == {1: 131184, -1: 77904, 0: 46080}


DRAWINGS = [
    (CONNECT4, ". . . . . . .\n. . . . . . .\n. . . . . . .\n. . . . . . .\n. O . . . . .\n. X . X . . O"),
    (CONNECT4, ". . . . . . .\n. . . . . . .\n. . . . . . .\n. . . . . . .\n. O . . . . .\n. X . X . . ."),
    (TICTACTOE, "X . .\n. O .\n. O X"),
    (TICTACTOE, "X . X\n. O .\n. O X"),
]


@pytest.mark.parametrize("game, drawing", DRAWINGS)
def test_show_draws_the_board_with_x_for_the_player_who_began(game, drawing):
    footer = "\n1 2 3 4 5 6 7" if game is CONNECT4 else ""
    assert game.show(board(game, drawing)[0]) == drawing + footer


@BOTH
def test_planes_show_own_stones_first_from_the_top_row(game):
    drawing = {
        "connect4": """
            . . . . . . .
            . . . . . . .
            . . . . . . .
            . . . . . . .
            . . . . . . O
            X . . . . . X""",
        "tictactoe": """
            . O .
            . . .
            X . X""",
    }[game.name]
    cells = np.array(stones(drawing))
    assert (game.planes(board(game, drawing))[0] == [cells == "O", cells == "X"]).all()  # O is to move


@BOTH
def test_players_move_alternately(game):
    states, players = game.initial(1), []
    for _ in range(4):
        players += game.to_play(states).tolist()
        states = game.play(states, np.argmax(game.legal(states), axis=1))
    assert players == [0, 1, 0, 1]


@BOTH
def test_a_batch_is_its_rows_played_alone(game):
    rng = np.random.default_rng(0)
    states = np.concatenate([game.play(game.initial(1), np.array([a])) for a in range(game.num_actions)])
    actions = rng.integers(game.num_actions, size=len(states))
    actions = (actions + (actions == np.arange(game.num_actions))) % game.num_actions
    alone = [game.play(states[k : k + 1], actions[k : k + 1]) for k in range(len(states))]
    assert (game.play(states, actions) == np.concatenate(alone)).all()
    for rules in (game.legal, game.planes, game.to_play, game.key):
        assert (rules(states) == np.concatenate([rules(states[k : k + 1]) for k in range(len(states))])).all()


def test_keys_are_equal_for_transpositions_and_differ_otherwise():
    both = [CONNECT4.key(_played(moves)) for moves in ([0, 1, 2, 3], [2, 3, 0, 1])]
    assert both[0] == both[1]
    # The same stones with the colours exchanged, and one stone moved: other keys.
    others = [CONNECT4.key(_played(moves)) for moves in ([1, 0, 3, 2], [0, 1, 2, 4], [0, 1, 2])]
    assert len({int(key[0]) for key in [both[0], *others]}) == 4


def _played(moves):
    states = CONNECT4.initial(1)
    for move in moves:
        states = CONNECT4.play(states, np.array([move]))
    return states


def test_keys_of_all_positions_of_tictactoe_differ():
    states = [TICTACTOE.initial(1)]
    for _ in range(9):
        row, action = np.nonzero(TICTACTOE.legal(states[-1]) & ~TICTACTOE.terminal(states[-1])[0][:, None])
        states.append(np.unique(TICTACTOE.play(states[-1][row], action), axis=0))
    keys = TICTACTOE.key(np.concatenate(states))
    assert len(keys) == len(set(keys.tolist())) == 5478


def test_canonical_keys_of_tictactoe_are_its_positions_up_to_symmetry():
    """765 of them, the empty board included; a known count."""
    states = [TICTACTOE.initial(1)]
    for _ in range(9):
        row, action = np.nonzero(TICTACTOE.legal(states[-1]) & ~TICTACTOE.terminal(states[-1])[0][:, None])
        states.append(np.unique(TICTACTOE.play(states[-1][row], action), axis=0))
    keys, _ = TICTACTOE.canonical_key(np.concatenate(states))
    assert len(set(keys.tolist())) == 765


@pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=lambda game: game.name)
def test_a_games_own_canonical_keys_tell_the_same_boards_apart_as_the_usual_ones(game):
    rng, states, seen = np.random.default_rng(4), game.initial(200), []
    for _ in range(6):
        seen.append(states := states[~game.terminal(states)[0]])
        states = game.play(states, np.argmax(rng.random((len(states), game.num_actions)) * game.legal(states), axis=1))
    states = np.concatenate(seen)
    pairs = list(zip(game.canonical_key(states)[0].tolist(), Game.canonical_key(game, states)[0].tolist()))
    assert len(set(pairs)) == len({own for own, _ in pairs}) == len({usual for _, usual in pairs}) > 50


def test_the_canonical_key_of_a_game_without_symmetries_is_its_key():
    one = type(
        "One",
        (type(CONNECT4),),
        {name: getattr(CONNECT4, name)[:1] for name in ("symmetry_cells", "symmetry_actions")}
        | {"canonical_key": Game.canonical_key},
    )()
    states = np.concatenate([_played(moves) for moves in ([], [0], [6], [0, 1, 2])])
    keys, symmetry = one.canonical_key(states)
    assert (keys == one.key(states)).all() and (symmetry == 0).all() and len(set(keys.tolist())) == 4


def test_the_eight_turns_of_tictactoe():
    """X in a corner and O beside it: seen from all sides, each corner with each of its two neighbours."""
    cells, actions = TICTACTOE.symmetry_cells, TICTACTOE.symmetry_actions
    x, o = (np.arange(9) == cell for cell in (0, 1))
    turned = {(int(np.argmax(x[table])), int(np.argmax(o[table]))) for table in cells}
    assert turned == {(0, 1), (0, 3), (2, 1), (2, 5), (6, 3), (6, 7), (8, 5), (8, 7)}
    assert len(cells) == 8 and (cells == actions).all()


def test_moves_are_written_as_is_usual():
    start = TICTACTOE.initial(1)[0]
    assert [TICTACTOE.action_to_text(start, action) for action in range(9)] == "a3 b3 c3 a2 b2 c2 a1 b1 c1".split()
    start = CONNECT4.initial(1)[0]
    assert [CONNECT4.action_to_text(start, action) for action in range(7)] == list("1234567")


@BOTH
def test_a_cell_is_called_as_on_the_drawn_board(game):
    for action in range(game.num_actions):
        before = game.initial(1)
        [cell] = game.board(game.play(before, np.array([action]))[0]).filled_since(game.board(before[0]))
        assert game.action_to_text(before[0], action) == game.board(before[0]).name(*cell)


def test_text_that_is_no_legal_move_is_refused_with_those_there_are():
    state = after(TICTACTOE, [0, 4])[0]
    assert TICTACTOE.text_to_action(state, " B3\n") == 1
    for text in ("a3", "d1", "", "b3 c3", "1"):
        with pytest.raises(ValueError, match="no legal move here; there are b3, c3, a2, c2, a1, b1, c1"):
            TICTACTOE.text_to_action(state, text)


def test_upper_and_lower_case_count_only_where_they_must():
    class Chess(type(TICTACTOE)):
        def action_to_text(self, state, action):
            return ["bxc3", "Bxc3", "Nf3"][action] if action < 3 else str(action)

    game, state = Chess(), TICTACTOE.initial(1)[0]
    assert [game.text_to_action(state, text) for text in ("bxc3", "Bxc3", "nf3", "8")] == [0, 1, 2, 8]
    with pytest.raises(ValueError):
        game.text_to_action(state, "BXC3")


def test_the_name_of_a_game_makes_it_again():
    names = [games.make(name).name for name in games.NAMES]
    assert [games.make(name).name for name in names] == names and {"connect4", "tictactoe"} <= set(names)


def test_built_in_games_of_one_name_have_the_same_rules():
    """A class whose base gives it a name would read the other game's networks and files."""
    made = [games.make(name) for name in games.NAMES]
    assert len({(game.name, type(game)) for game in made}) == len({game.name for game in made}) < len(made)


def test_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(Refusal, match='allowed: .*"connect4" or .*"tictactoe"'):
        games.make("draughts")


def test_a_game_that_has_a_board_and_no_drawing_of_its_own_shows_the_board_and_else_the_states_numbers():
    hexagons = Board(np.array([[0, -1], [1, 2], [-1, -2]], np.int8), shape="hex")
    boarded = type("Boarded", (Corridor,), {"show": Game.show, "board": lambda self, state: hexagons})()
    assert boarded.show(boarded.initial(1)[0]) == "X .\n O A\n  ."
    bare = type("Bare", (Corridor,), {"show": Game.show})()
    assert bare.show(bare.initial(1)[0]) == "[2 0]"


def test_the_board_after_a_move_names_the_cells_that_it_filled_and_left():
    game = games.make("breakthrough(columns=4,rows=6)")
    before = game.initial(1)[0]
    assert board_after(game, None, before).last == board_after(game, None, before).left == ()
    then = game.play(before[None], np.array([game.text_to_action(before, "a2a3")]))[0]
    moved = board_after(game, before, then)
    assert (moved.last, moved.left) == (((3, 0),), ((4, 0),))
