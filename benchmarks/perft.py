"""The speed of native chess beside python-chess and OpenSpiel: leaves/s of perft, plies/s of random play-outs.

    python benchmarks/perft.py

One core; seconds are of its time. Perft counts the moves of the last ply without playing them, in all three programs.
In a play-out, each position is asked for all its legal moves and for its result; then a random move is played. The
native game writes a mask of all 4,672 actions for it, the others return a list. `ratio` divides by python-chess.
"""

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import chess
import pyspiel
from common import make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.games.perft import perft, random_plies
from az_mpi.games.position_game import PositionGame

FEN = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"
PLIES = 20_000  # of a play-out's measurement in Python


def main():
    parser = make_parser(__doc__, runs=3)
    parser.add_argument("--depth", type=int, default=5, help="of the native perft; the others' is 2 less (default 5)")
    parser.add_argument("--plies", type=int, default=2_000_000, help="of the native play-outs")
    arguments = parser.parse_args()
    take_one_core()
    game = games.make("chess")
    assert isinstance(game, PositionGame)
    state, board, live = game.text_to_state(FEN), chess.Board(FEN), pyspiel.load_game("chess").new_initial_state(FEN)
    less = max(arguments.depth - 2, 1)
    perft(game, state, 1), random_plies(game, 1)
    turns = [
        {
            "perft native": rate(lambda: perft(game, state, arguments.depth)),
            "perft python-chess": rate(lambda: python_chess(board, less)),
            "perft openspiel": rate(lambda: openspiel(live, less)),
            "plies native": rate(lambda: random_plies(game, arguments.plies) and arguments.plies),
            "plies python-chess": rate(python_chess_plies),
            "plies openspiel": rate(openspiel_plies),
        }
        for _ in range(arguments.runs)
    ]
    rows = {f"{what} per s": spread([turn[what] for turn in turns]) for what in turns[0]}
    for what in ("perft", "plies"):
        rows[f"{what} ratio"] = spread([turn[f"{what} native"] / turn[f"{what} python-chess"] for turn in turns])
    tell("native chess", rows, arguments.json)


def rate(count):
    """Return how much `count()` counts in a second of this process's time."""
    begun = time.process_time()
    num = count()
    return num / (time.process_time() - begun)


def python_chess(board, plies):
    if plies == 1:
        return board.legal_moves.count()
    leaves = 0
    for move in board.legal_moves:
        board.push(move)
        leaves += python_chess(board, plies - 1)
        board.pop()
    return leaves


def openspiel(live, plies):
    actions = live.legal_actions()
    return len(actions) if plies == 1 else sum(openspiel(live.child(action), plies - 1) for action in actions)


def python_chess_plies():
    rng, board = random.Random(0), chess.Board()
    for _ in range(PLIES):
        board.push(rng.choice(list(board.legal_moves)))
        if board.is_game_over(claim_draw=False) or board.is_repetition(3) or board.is_fifty_moves():
            board = chess.Board()
    return PLIES


def openspiel_plies():
    rng, game = random.Random(0), pyspiel.load_game("chess")
    live = game.new_initial_state()
    for _ in range(PLIES):
        live.apply_action(rng.choice(live.legal_actions()))
        if live.is_terminal():
            live = game.new_initial_state()
    return PLIES


if __name__ == "__main__":
    main()
