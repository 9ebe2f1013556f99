"""python -m az_mpi gtp: colours, vertices and results of each game."""

import random
import re

import pytest
from gtp_channel import QUICK, Channel

from az_mpi.games.base import after
from az_mpi.player.limits import Limit


def test_a_game_of_go_by_gtp():
    channel = Channel()
    assert channel.good("boardsize 5") == channel.good("komi 7") == channel.good("komi 7.0") == ""
    assert channel.good("play black C3") == channel.good("play W d3") == channel.good("play b pass") == ""
    assert channel.good("showboard") == "\n5 . . . . .\n4 . . . . .\n3 . . X O .\n2 . . . . .\n1 . . . . .\n  A B C D E"
    assert channel.good("final_score") == "W+7"
    vertex = channel.good("genmove w")
    assert channel.moves() == ["C3", "D3", "pass", vertex]
    for _ in range(4):
        channel.good("undo")
    assert channel.moves() == [] and channel.bad("undo") == "cannot undo"
    vertex = channel.good("reg_genmove b")
    assert vertex in channel.session.legal() and channel.moves() == []
    channel.good("play b c3")
    assert channel.good("final_score") == "B+18"
    channel.good("clear_board")
    assert channel.moves() == [] and channel.bad("undo")


def test_another_size_than_the_networks_is_unacceptable_where_it_cannot_play_there():
    channel = Channel()
    channel.good("play b c3")
    for line in ("boardsize 9", "boardsize 0", "rectangular_boardsize 5 6"):
        assert channel.bad(line).startswith("unacceptable size")
    assert channel.bad("komi 6.5x") == "syntax error" and channel.moves() == ["C3"]
    assert channel.good("boardsize 5") == "" and channel.moves() == []
    connect4 = Channel("connect4")
    assert connect4.good("boardsize 7") == connect4.good("rectangular_boardsize 7 6") == connect4.good("komi 6.5") == ""
    assert connect4.bad("boardsize 6")


def test_moves_out_of_turn_in_go_cost_no_pass():
    """So that stones which a program sets up one by one neither end the game nor count as moves."""
    channel = Channel()
    for vertex in ("c3", "d3", "a1", "e5"):  # White begins
        channel.good(f"play w {vertex}")
    assert (
        channel.good("showboard") == "\n5 . . . .(O)\n4 . . . . .\n3 . . O O .\n2 . . . . .\n1 O . . . .\n  A B C D E"
    )
    channel.good("undo")
    assert "E5" in channel.session.legal() and len(channel.engine.made) == 3
    vertex = channel.good("genmove w")
    assert channel.moves() == [vertex]
    channel.good("undo")
    assert channel.bad("play w c3").startswith("illegal move") and len(channel.engine.made) == 3
    channel.good("reg_genmove w")
    assert len(channel.engine.made) == 3 and channel.session.to_play == 0
    channel.good("play b pass")
    channel.good("play b d4")  # after a pass too
    assert not channel.session.over and channel.good("final_score").startswith("W+")
    for _ in range(5):
        channel.good("undo")
    assert channel.moves() == [] and channel.bad("undo") == "cannot undo" and channel.session.to_play == 0


def test_a_pass_out_of_turn_changes_nothing_in_go():
    """A record that begins with a pass of White leads to that."""
    channel = Channel()
    assert channel.good("play w pass") == "" and channel.moves() == []
    vertex = channel.good("genmove b")
    assert channel.moves() == [vertex] and channel.good("undo") == channel.good("undo") == ""
    assert channel.moves() == [] and channel.bad("undo") == "cannot undo"


def test_after_the_end_of_a_game_of_go_passes_are_answered_and_stones_continue_it():
    channel = Channel()
    for move in ("b c3", "w pass", "b pass"):
        channel.good(f"play {move}")
    assert channel.session.over and channel.good("final_score") == "B+18"
    assert channel.good("genmove w") == channel.good("reg_genmove b") == "pass"
    channel.good("play b pass")
    assert channel.bad("lz-analyze 10") == "the game is over"
    channel.good("play w a1")
    assert not channel.session.over
    channel.good("undo")
    assert channel.session.over
    vertex = channel.good("kgs-genmove_cleanup w")
    assert vertex in ("pass", *(a + b for a in "ABCDE" for b in "12345")) and not channel.session.over
    for _ in range(4):  # the clean-up, both passes after the end, and the one that ended it
        channel.good("undo")
    assert channel.moves() == ["C3", "pass"]


def test_moves_out_of_turn_are_illegal_in_games_without_passes():
    for game, vertex in (("gomoku", "c3"), ("hex(size=4)", "a1"), ("connect4", "D1"), ("othello", "d3")):
        channel = Channel(game)
        assert channel.bad(f"play w {vertex}").startswith("illegal move") and channel.bad("genmove white")
        assert channel.bad("play b pass") and channel.moves() == []


def test_a_referee_that_alternates_colours_plays_a_game_in_which_a_player_moves_twice():
    """The players are two engines. The moves that are no pass are a complete game by OpenSpiel's own rules."""
    pyspiel = pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    engines = [Channel("openspiel:mancala(max_plies=200)", limit) for limit in (QUICK, Limit(simulations=20))]
    asked = []
    while [vertex for _, vertex in asked[-2:]] != ["pass", "pass"]:
        colour = len(asked) % 2
        vertex = engines[colour].good(f"genmove {'bw'[colour]}")
        engines[1 - colour].good(f"play {'bw'[colour]} {vertex}")
        asked.append((colour, vertex))
        assert len(asked) < 300
    assert all(engine.session.over for engine in engines) and engines[0].moves() == engines[1].moves()
    assert [vertex for _, vertex in asked if vertex != "pass"] == engines[0].moves()
    theirs, within = pyspiel.load_game("mancala").new_initial_state(), 0
    for k, (colour, vertex) in enumerate(asked[:-2]):
        assert (vertex == "pass") == (theirs.current_player() != colour), k
        if vertex == "pass":
            within += 1
        else:
            [action] = [a for a in theirs.legal_actions() if theirs.action_to_string(colour, a).split() == [vertex]]
            theirs.apply_action(action)
    assert theirs.is_terminal() and within > 0
    result = theirs.returns()[0]
    score = "0" if result == 0 else "B+1" if result > 0 else "W+1"
    assert engines[0].good("final_score") == engines[1].good("final_score") == score


def test_a_pass_while_the_other_player_moves_again_is_no_move():
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    channel = Channel("openspiel:mancala(max_plies=200)")
    assert channel.bad("genmove w").startswith("illegal move") and channel.bad("play w pass")  # nobody has moved yet
    again = next(
        word
        for word, action in channel.session.legal().items()
        if channel.session.game.to_play(after(channel.session.game, [action])[None])[0] == 0
    )
    channel.good(f"play b {again}")
    assert channel.good("genmove w") == channel.good("reg_genmove w") == "pass"
    assert channel.good("kata-genmove_analyze w 10").splitlines()[-1] == "play pass"
    assert channel.good("play w pass") == "" and channel.moves() == [again]
    assert channel.bad(f"play w {again}").startswith("illegal move") and channel.bad("play b pass")
    for _ in range(3):  # the passes of genmove, kata-genmove_analyze and play
        channel.good("undo")
    assert channel.moves() == [again]
    channel.good("undo")
    assert channel.moves() == [] and channel.bad("undo") == "cannot undo"


def test_gomoku_has_the_letters_of_the_protocol():
    """The protocol leaves out I: its J is the game's own i."""
    channel = Channel("gomoku")
    for colour, vertex in (("b", "H8"), ("w", "J8"), ("b", "P15")):
        channel.good(f"play {colour} {vertex}")
    assert channel.moves() == ["h8", "i8", "o15"] and channel.bad("play w I9") == "illegal move"
    assert channel.good("showboard").endswith("A B C D E F G H J K L M N O P")
    vertex = channel.good("genmove w")
    assert re.fullmatch(r"[A-HJ-P]\d+", vertex)


def test_connect_four_has_a_vertex_for_the_cell_that_the_piece_falls_to():
    channel = Channel("connect4")
    assert channel.bad("final_score").startswith("cannot score")
    for move in ("b D1", "w d2", "b D", "w 4", "b d5"):
        channel.good(f"play {move}")
    assert channel.moves() == ["4"] * 5
    assert channel.bad("play w d5") and channel.bad("play w d1") and channel.bad("play w h1")
    assert channel.good("showboard").split("\n")[1:4] == [" . . . . . . .", " . . .(X). . .", " . . . O . . ."]
    vertex = channel.good("genmove w")
    assert vertex in ("A1", "B1", "C1", "D6", "E1", "F1", "G1")
    for colour in "bw" * 3:
        channel.say(f"play {colour} a")
    for move in ("clear_board", "play b 1", "play w 2", "play b 1", "play w 2", "play b 1", "play w 2", "play b 1"):
        channel.good(move)
    assert channel.good("final_score") == "B+1"


def test_othello_has_its_own_vertices_and_passes():
    channel = Channel("othello(size=4)")
    assert channel.good("boardsize 4") == "" and channel.good("final_score") == "0"
    assert channel.good("play black a2") == ""  # rows from the top
    assert channel.good("showboard").split("\n")[2] == "2(X)X X ."
    end = 0
    while not channel.session.over:
        colour = "bw"[channel.session.to_play]
        must_pass = "pass" in channel.session.legal()
        assert (channel.good(f"genmove {colour}") == "pass") == must_pass
        end += 1
    lead = channel.session.game.lead(channel.session.state[None])[0]
    assert channel.good("final_score") == (f"{'B' if lead > 0 else 'W'}+{abs(lead):g}" if lead else "0")


def test_a_forced_pass_in_othello_may_be_left_out():
    """Programs differ in whether they send it."""
    channel, rng = Channel("othello(size=4)"), random.Random(0)
    while "pass" not in channel.session.legal():
        if channel.session.over:
            channel.good("clear_board")
        channel.good(f"play {'bw'[channel.session.to_play]} {rng.choice(list(channel.session.legal()))}")
    passes, before = channel.session.to_play, len(channel.moves())
    vertex = channel.good(f"genmove {'bw'[1 - passes]}")
    assert channel.moves()[before:] == ["pass", vertex]


def test_hex_knows_the_swap_by_both_names():
    for name in ("swap-pieces", "swap", "SWAP"):
        channel = Channel("hex(size=4,swap=True)")
        channel.good("play b a1")
        channel.good(f"play w {name}")
        assert channel.moves() == ["a1", "swap"]
    channel = Channel("hex(size=2)")
    for move in ("b a1", "w b1", "b a2"):
        channel.good(f"play {move}")
    assert channel.good("final_score") == "B+1"


def test_two_moves_whose_words_differ_by_case_are_different():
    """On c3 the bishop takes, or the pawn does: Bxc3 and bxc3."""
    pytest.importorskip("pyspiel", reason="optional; it could not be installed here")
    channel = Channel("openspiel:chess(max_plies=100)")
    for ply, move in enumerate("d4 Nf6 c4 e6 Nc3 Bb4 Bd2 Bxc3".split()):
        channel.good(f"play {'bw'[ply % 2]} {move}")
    legal = channel.session.legal()
    for word in ("Bxc3", "bxc3"):
        assert channel.engine.vertices.find(channel.session.state, word) == legal[word]
    assert channel.engine.vertices.find(channel.session.state, "QC2") == legal["Qc2"]


def test_moves_of_pawns_in_chess_are_the_games_own_words():
    """e4 is the name of a cell, but other moves are more than that."""
    channel = Channel("chess")
    state = channel.session.state
    assert set(channel.engine.vertices.all(state)) == set(channel.session.legal())
    assert channel.engine.vertices.of(state, channel.session.find("e4")) == "e4"


def test_a_mating_move_may_have_its_sign_or_none():
    """# begins a comment only at the start of a line or after a blank."""
    for last in ("Qxf7#", "Qxf7", "Qf7", "h5f7", "Qxf7# # mate"):
        channel = Channel("chess")
        for ply, move in enumerate(["e4", "e5", "Bc4", "Nc6", "Qh5", "Nf6", last]):
            channel.good(f"play {'bw'[ply % 2]} {move}")
        assert channel.moves()[-1] == "Qxf7#" and channel.session.over
        channel.good("undo")
        assert channel.bad("play b Qxf8") == "illegal move"
        lines = channel.good(f"kata-genmove_analyze b allow b {last.split()[0]} 1").splitlines()
        assert lines[-1] == "play Qxf7#"


def test_gtp_plays_any_other_game_in_the_games_own_words():
    channel = Channel("breakthrough(rows=5,columns=9)")
    channel.good("rectangular_boardsize 9 5")
    channel.good("play b i1i2")
    assert channel.good("genmove w") == channel.moves()[-1]
    assert channel.good("showboard").endswith("a b c d e f g h i")
