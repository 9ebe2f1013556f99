"""Moves of chess, many at a time: equal to what the rules call them, and what python-chess reads."""

import numpy as np
import pytest

from az_mpi import games
from az_mpi.games.random_games import random_games

CHESS = games.make("chess")


def positions(game, num=6, seed=1):
    return np.concatenate([states for states, _ in random_games(game, num, np.random.default_rng(seed))])


@pytest.mark.parametrize("name", ["chess", "chess(chess960=True)"])
def test_every_legal_move_is_found_by_its_name(name):
    game, states, texts, actions = games.make(name), [], [], []
    for state in positions(game)[::5]:
        for action in np.flatnonzero(game.legal(state[None])[0]).tolist():
            states.append(state)
            texts.append(game.action_to_text(state, action))
            actions.append(action)
    chosen = [k for k, text in enumerate(texts) if not text.isdigit()]  # not the numbers of start positions
    found = game.texts_to_actions(np.array(states)[chosen], [texts[k] for k in chosen])
    assert found.tolist() == [actions[k] for k in chosen] and len(chosen) > 5000


def test_a_name_that_fits_no_move_or_two_finds_none():
    start = CHESS.initial(1)
    rook = CHESS.text_to_state("4k3/8/8/8/8/8/8/R4RK1 w - - 0 1")[None]
    pawn = CHESS.text_to_state("4k3/P7/8/8/8/8/8/4K3 w - - 0 1")[None]
    for state, text in ((start, "e5"), (start, "Ke2"), (start, "O-O"), (start, ""), (start, "x" * 40), (start, "é4")):
        assert CHESS.texts_to_actions(state, [text]).tolist() == [-1], text
    for state, text in ((rook, "Rc1"), (pawn, "a8"), (pawn, "a8=K"), (start, "--"), (start, "N"), (start, "Nz9")):
        assert CHESS.texts_to_actions(state, [text]).tolist() == [-1], text


def test_castling_has_its_whole_name():
    king = CHESS.text_to_state("4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1")
    for text, move in (("O-O", "e1g1"), ("0-0!?", "e1g1"), ("o-o-o+", "e1c1"), ("0-0-0", "e1c1")):
        assert CHESS.texts_to_actions(king[None], [text])[0] == CHESS.text_to_action(king, move), text
    for text in ("OO", "O-", "O-O-", "O-O-O-O", "0-1", "OOO", "Oxe4", "O-O=Q", "0000", "O-OOO", "o-e4"):
        assert CHESS.texts_to_actions(king[None], [text]).tolist() == [-1], text


def test_names_are_understood_without_signs_and_with_more_than_is_needed():
    pawn = CHESS.text_to_state("1r2k3/P7/8/8/8/8/8/4K3 w - - 0 1")
    for text, name in (
        ("axb8=Q+", "a7b8q"),
        ("ab8Q", "a7b8q"),
        ("axb8N", "a7b8n"),
        ("a8=R!?", "a7a8r"),
        ("Ke1-e2", "e1e2"),
    ):
        found = CHESS.texts_to_actions(pawn[None], [text])[0]
        assert found >= 0 and found == CHESS.text_to_action(pawn, name), text
    start = CHESS.initial(1)
    assert CHESS.texts_to_actions(start, ["Ng1f3"]) == CHESS.texts_to_actions(start, ["Nf3"]) >= 0


def test_python_chess_reads_the_same_moves():
    chess = pytest.importorskip("chess")
    rng = np.random.default_rng(3)
    for _ in range(6):
        board, states = chess.Board(), CHESS.initial(1)
        while not CHESS.terminal(states)[0][0]:
            moves = list(board.legal_moves)
            move = moves[rng.integers(len(moves))]
            found = CHESS.texts_to_actions(states, [board.san(move)])
            board.push(move)
            states = CHESS.play(states, found)
            fields = CHESS.state_to_text(states[0]).split()[:3]
            assert fields == board.fen().split()[:3]
