"""What clients send to an engine: lichess-bot with the settings that come with it, and fastchess with a book and a time
control of 1 + 0.1 s, recorded from both as they were in August 2026."""

import pytest
from uci_channel import Channel

chess = pytest.importorskip("chess", reason="optional; it could not be installed here")

# Lines after > are sent, as they were in a game of 60 s and 1 s a move. < stands for the answer. The bot ponders after
# its second move; the person always plays another move than the expected one.
LICHESS_BOT = """
> uci
< uciok
> setoption name Move Overhead value 100
> setoption name Threads value 4
> setoption name SyzygyPath value ./syzygy/
> setoption name UCI_ShowWDL value true
> ucinewgame
> isready
< readyok
{variant}> position {place}
> go movetime 1000
< bestmove
> setoption name Ponder value true
> position {place} moves a2a3 {first}
> go wtime 57500 btime 60000 winc 1000 binc 1000
< bestmove
> position {place} moves a2a3 {first} a3a4 {other}
> go ponder wtime 56071 btime 61000 winc 1000 binc 1000
> stop
< bestmove
> position {place} moves a2a3 {first} a3a4 a7a5
> go wtime 57000 btime 60000 winc 1000 binc 1000
< bestmove
> setoption name Ponder value false
> position {place} moves a2a3 {first} a3a4 a7a5 b2b3 {other}
> go movetime 1000
< bestmove
> isready
< readyok
> quit
"""
# It asks whether the engine is ready before and after each search.
FASTCHESS = """
> uci
< uciok
{variant}> ucinewgame
> isready
< readyok
> isready
< readyok
> position fen {fen}
> isready
< readyok
> go wtime 1100 btime 1100 winc 100 binc 100
< bestmove
> isready
< readyok
> position fen {fen} moves a2a3 {first}
> isready
< readyok
> go wtime 1129 btime 1168 winc 100 binc 100
< bestmove
> isready
< readyok
> quit
"""
STANDARD = {"variant": "", "place": "startpos", "first": "h7h6", "other": "h6h5", "fen": chess.STARTING_FEN}
CHESS960 = {
    "variant": "> setoption name UCI_Chess960 value true\n",
    "place": "fen nqrbbkrn/pppppppp/8/8/8/8/PPPPPPPP/NQRBBKRN w GCgc - 0 1",
    "first": "g7g6",
    "other": "g6g5",
    "fen": "nqrbbkrn/pppppppp/8/8/8/8/PPPPPPPP/NQRBBKRN w GCgc - 0 1",
}


@pytest.mark.parametrize("words", [STANDARD, CHESS960], ids=["standard", "chess960"])
@pytest.mark.parametrize("game", [LICHESS_BOT, FASTCHESS], ids=["lichess-bot", "fastchess"])
def test_a_game_as_a_client_sends_it_is_answered(game, words):
    channel = Channel("chess")
    said = iter(())
    lines = game.format(**words).strip().splitlines()
    board = None
    for line, following in zip(lines, [*lines[1:], ""]):
        kind, text = line[0], line[2:]
        if kind == ">" and text != "stop":
            assert not [
                line for line in said if not line.startswith(("info depth", "info string Threads", "id ", "option "))
            ]
            if following == "> stop":  # the search hears it
                channel.send("stop\n")
            said = iter(channel.say(text))
            if text.startswith("position"):
                place, _, moves = text.removeprefix("position ").partition(" moves ")
                start = chess.STARTING_FEN if place == "startpos" else place.removeprefix("fen ")
                board = chess.Board(start, chess960=place != "startpos")
                for move in moves.split():
                    board.push_uci(move)
        elif kind == "<":
            shown = list(said)
            said = iter(())
            assert shown[-1].split()[0] == text
            if text == "bestmove":
                assert any(" wdl " in line for line in shown[:-1]) == ("UCI_ShowWDL" in game)
                assert chess.Move.from_uci(shown[-1].split()[1]) in board.legal_moves
    assert channel.engine.is_over
