"""Games of OpenSpiel: what fits, what is refused, and states that survive a small cache."""

import numpy as np
import pytest
import torch

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import OPPONENTS
from az_mpi.games import openspiel_input
from az_mpi.games.random_games import random_games
from az_mpi.network import engines, resnet

pyspiel = pytest.importorskip("pyspiel", reason="optional; it could not be installed here")


# Sparse and dense boards, a list and a table of numbers, the same player moving twice, passes, symmetries, a cap.
@pytest.mark.parametrize(
    "name",
    [
        "tic_tac_toe",
        "connect_four",
        "hex(board_size=4, plain_obs_tensor=True, symmetries='half_turn')",
        "go(board_size=4, max_plies=30)",
        "go(board_size=3, symmetries='dihedral', max_plies=12)",
        "mancala(max_plies=80)",
        "dots_and_boxes",
        "othello",
        "ultimate_tic_tac_toe",
        "gomoku(size=5, symmetries='dihedral')",
        "chess(max_plies=20)",
        "nim",
    ],
)
def test_games_of_openspiel_keep_every_invariant(name):
    assert games.check(games.make(f"openspiel:{name}"), num_games=6) == []


def play(game, moves):
    state = game.initial(1)
    for move in moves:
        state = game.play(state, np.array([game.text_to_action(state[0], move)]))
    return state


def test_a_game_of_openspiel_has_the_right_board_moves_planes_and_result():
    """x takes the middle row, from the left; o the top row but for its last cell."""
    game = games.make("openspiel:tic_tac_toe")
    moves = ["x(1,0)", "o(0,0)", "x(1,1)", "o(0,1)"]
    before = play(game, moves)
    assert game.show(before[0]) == "oo.\nxx.\n..." and game.to_play(before).tolist() == [0]
    assert game.legal(before)[0].tolist() == [False, False, True, False, False, True, True, True, True]
    assert not game.terminal(before)[0][0]
    planes = game.planes(before)[0]
    assert planes.dtype == np.float32 and planes.shape == (4, 3, 3)
    assert planes[:3].sum() == 9 and not planes[3].any()  # each cell is in one plane; the first player is to move
    assert game.planes(play(game, moves[:3]))[0, 3].all()  # the second one
    ended, value = game.terminal(play(game, [*moves, "x(1,2)"]))
    assert ended[0] and value[0] == 1.0  # for player 0, who counts as the one to move at the end


def test_the_player_who_begins_is_player_0_also_where_openspiel_counts_otherwise():
    """White begins in chess, as OpenSpiel's player 1, and is mated in two moves: Black's move, then his end."""
    game = games.make("openspiel:chess")
    before = play(game, ["f3", "e5", "g4"])
    assert game.to_play(game.initial(1)).tolist() == [0] and game.to_play(before).tolist() == [1]
    assert not game.planes(game.initial(1))[0, -1].any() and game.planes(before)[0, -1].all()
    ended, value = game.terminal(play(game, ["f3", "e5", "g4", "Qh4#"]))
    assert ended[0] and value[0] == -1.0  # for White


def test_with_view_mover_both_players_see_mirrored_positions_alike():
    """White's pawn is on e4, its king has moved to e2, Black's pawn is on e5: Black sees what White sees when it is
    Black's king that has moved. Only who moves, planes 14 and the last, differs."""
    for name in ("chess", "antichess"):
        game, board = (games.make(f"openspiel:{name}(max_plies=40, view='{view}')") for view in ("mover", "board"))
        blacks, whites = (play(game, moves) for moves in (["e4", "e5", "Ke2"], ["e3", "e5", "e4", "Ke7"]))
        black, white = (np.delete(game.planes(states)[0], [14, -1], axis=0) for states in (blacks, whites))
        assert (black == white).all() and white[:12].sum() == 32, name
        assert (game.planes(whites) == board.planes(whites)).all()
        assert (game.planes(blacks) != board.planes(blacks)).any()


def test_a_game_that_is_cut_is_a_draw():
    game = games.make("openspiel:tic_tac_toe(max_plies=3)")
    ended, value = game.terminal(play(game, ["x(1,1)", "o(0,0)", "x(2,2)"]))
    assert ended[0] and value[0] == 0.0 and "max_plies=3" in game.name


def test_a_game_of_chess_that_is_cut_may_be_half_a_win_for_the_one_with_more_pieces():
    """White takes a pawn, Black takes it back and then a second one, which costs Black the queen."""
    moves = ["e4", "d5", "exd5", "Qxd5", "Nc3", "Qxd2+", "Qxd2", "Nf6"]
    for plies, white_ahead in ((2, 0), (3, 1), (4, 0), (6, -1), (7, 1), (8, 1)):
        game = games.make(f"openspiel:chess(max_plies={plies}, truncated='material')")
        state = play(game, moves[:plies])
        ended, value = game.terminal(state)
        assert ended[0] and value[0] == (-0.5 if game.to_play(state)[0] else 0.5) * white_ahead, plies
    assert "truncated=material" in game.name
    mated = games.make("openspiel:chess(max_plies=4, truncated='material')")
    ended, value = mated.terminal(play(mated, ["f3", "e5", "g4", "Qh4#"]))
    assert ended[0] and value[0] == -1.0  # a mate on the last ply is a mate


def test_results_do_not_depend_on_the_cache():
    """With room for one state, nearly every state is made again from its moves."""
    large, small = (games.make(f"openspiel:go(board_size=4, cache_mb={size})") for size in (64, 0))
    rng, states = np.random.default_rng(0), large.initial(8)
    for _ in range(20):
        legal = large.legal(states)
        assert (legal == small.legal(states)).all() and (large.planes(states) == small.planes(states)).all()
        actions = np.argmax(rng.random(legal.shape) * legal, axis=1)
        after = large.play(states, actions)
        assert (after == small.play(states, actions)).all()
        states = after[~large.terminal(after)[0]]
        assert (np.array(large.terminal(after)) == np.array(small.terminal(after))).all()


def test_symmetries_turn_the_board():
    """A stone at (0, 1) of a board of 3 by 3, with a pass as action 9."""
    game = games.make("openspiel:go(board_size=3, symmetries='dihedral')")
    assert game.symmetry_actions.shape == (8, 10) and (game.symmetry_actions[:, 9] == 9).all()
    assert game.symmetry_cells[2].tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 0]  # half a turn
    assert len({tuple(row) for row in game.symmetry_cells}) == 8


def tells_legal_cells(game, kinds):
    """Return for each player whether the planes that have one number on all cells of legal actions show another one
    on at least 3 % of all cells."""
    on_cells, on_board = ([], []), ([], [])
    for states, _ in random_games(game, 3, np.random.default_rng(0)):
        for planes, legal, player in zip(game.planes(states), game.legal(states), game.to_play(states)):
            flat, cells = planes.reshape(len(planes), -1), np.flatnonzero(legal) // kinds
            on_cells[player].append(flat[:, cells[cells < flat.shape[1]]])
            on_board[player].append(flat)
    found = []
    for there, anywhere in zip(on_cells, on_board):
        there, anywhere = np.concatenate(there, axis=1), np.concatenate(anywhere, axis=1)
        constant = np.ptp(there, axis=1) == 0
        found.append(bool((anywhere != there[:, :1])[constant].any(axis=0).mean() > 0.03))
    return found


@pytest.mark.parametrize(
    "name, kinds",
    [
        ("chess", 73),
        ("breakthrough", 12),
        ("checkers", 8),
        ("go", 1),
        ("othello", 1),
        ("quoridor", 0),
        ("hive", 0),
        ("mancala", 0),
        ("quoridor(action_kinds=1)", 1),
    ],
)
def test_games_of_openspiel_have_their_kinds_of_actions(name, kinds):
    assert games.make(f"openspiel:{name}").action_kinds == kinds


@pytest.mark.parametrize("name", openspiel_input.BY_CELLS)
def test_actions_are_of_the_cells_they_are_said_to_be(name):
    """Where a piece is put the cell is empty; from where one moves it is the player's own: a plane of the mover's shows
    one or the other."""
    size = {"y": "(board_size=9)", "havannah": "(board_size=5)", "go": "(board_size=9)"}.get(name, "")
    game = games.make(f"openspiel:{name}{size}")
    assert game.action_kinds and tells_legal_cells(game, game.action_kinds) == [True, True]


def test_actions_without_a_cell_have_none():
    """Quoridor counts moves of a pawn from the pawn on."""
    assert tells_legal_cells(games.make("openspiel:quoridor"), 1) == [False, False]


def test_chess_is_seen_from_the_side_of_the_player_to_move():
    """After 1. e4 White's pawn stands on file 4, rank 3 from White's side, and rank 4 from Black's."""
    game = games.make("openspiel:chess")
    start, after = game.initial(1), play(game, ["e4"])
    before, planes = game.planes(start)[0], game.planes(after)[0]
    for rank_of_pawns, seen in ((1, before), (6, planes)):
        white = [k for k in range(12) if seen[k, 0, rank_of_pawns] == 1 and seen[k].sum() == 8]
        assert len(white) == 1
    assert planes[white[0], 4].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    e4 = game.text_to_action(start[0], "e4")
    assert e4 // 73 == 8 * 4 + 1  # from file 4, rank 1
    assert game.text_to_action(after[0], "e5") == e4  # for Black the same from its own side


def test_chess_has_no_giant_layer():
    game = games.make("openspiel:chess")
    settings = models.Network(blocks=1, channels=8)
    network = resnet.build(game, settings, seed=1)
    assert network(torch.from_numpy(game.planes(game.initial(2))))["policy"].shape == (2, 4674)
    assert sum(p.numel() for p in network.heads.parameters()) < 10_000


@pytest.mark.parametrize("engine", ["torch", "openvino"])
@pytest.mark.parametrize("name", ["mancala", "chess"])
def test_engines_take_planes_that_are_not_binary(name, engine):
    """Mancala: 16 numbers as planes of one cell. Chess: planes with shares in them."""
    if engine == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    game = games.make(f"openspiel:{name}")
    settings = models.Network(blocks=1, channels=8)
    network = resnet.build(game, settings, seed=1)
    planes = np.concatenate([game.planes(states) for states, _ in random_games(game, 2, np.random.default_rng(0))])
    assert len(set(np.unique(planes)) - {0, 1}) > 1
    with torch.inference_mode():
        expected = network(torch.from_numpy(planes))
    found = engines.make(engine, network, game, "cpu", 1, "fp32")[0].evaluate(planes)
    for name, output in expected.items():
        assert np.abs(found[name] - output.numpy()).max() < 1e-4


def test_games_that_do_not_fit_are_refused_with_the_reason():
    for name, words in (
        ("stones_and_gems", "chance_mode is SAMPLED_STOCHASTIC, needed is DETERMINISTIC or EXPLICIT_STOCHASTIC"),
        ("dark_hex", "information is IMPERFECT_INFORMATION"),
        ("goofspiel", "SIMULTANEOUS"),
        ("otello", "did you mean othello"),
        ("hex(size=3)", "board_size"),
        ("hex(max_plies=1000)", "121"),
        ("hex(max_plies=2.5)", "whole number"),
        ("clobber(symmetries='dihedral')", "square"),
        ("chess(symmetries='around')", "half_turn"),
        ("chess(truncated='win')", "draw, and material"),
        ("hex(truncated='material')", "chess alone"),
        ("banqi(symmetries='half_turn')", "none in a game with chance moves"),
        ("tiny_bridge_4p", "information is IMPERFECT_INFORMATION"),
        ("hex(view='mover')", "antichess and chess alone"),
        ("chess(action_kinds=74)", "0 to 73"),
    ):
        with pytest.raises(Refusal, match=words) as caught:
            games.make(f"openspiel:{name}")
        assert "package.module" not in str(caught.value)


def test_the_bot_takes_a_win_and_stops_one():
    game, offers = games.make("openspiel:tic_tac_toe"), dict.fromkeys(OPPONENTS.offers) | {"seed": (1,)}
    bot = OPPONENTS.make("mcts_bot(simulations=200)", **offers | {"game": game})
    start = play(game, ["x(1,0)", "o(0,0)", "x(1,1)", "o(0,1)"])
    for state in (start, play(game, ["x(1,0)", "o(0,0)", "x(1,1)"])):
        seat = bot.seat(game, state, np.array([0]), [[]])
        assert seat.choose(np.array([0])).tolist() == [5]  # the middle row's last cell
    for wrong in ("simulations=0", "simulations=2.5", "uct_c=0"):
        with pytest.raises(Refusal, match="allowed"):
            OPPONENTS.make(f"mcts_bot({wrong})", **offers | {"game": game})
    with pytest.raises(Refusal, match="games of OpenSpiel"):
        OPPONENTS.make("mcts_bot", **offers | {"game": games.make("connect4")})
