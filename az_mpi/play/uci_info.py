"""What UCI says about a search: lines of `info`, with scores in centipawns, moves to mate, and chances."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from az_mpi.games.uci_moves import Moves
    from az_mpi.player.session import Session
    from az_mpi.search.reading import RootMove


def info_lines(session: "Session", moves: "Moves", seconds: float, num_new: int, best: int, wdl: bool) -> Iterator[str]:
    """Yield a line for each of the `best` best moves. seconds, num_new: what the search has taken, and the simulations
    in it. wdl: whether lines have chances."""
    found = session.moves()
    counts = f"nodes {session.simulations} nps {num_new / max(seconds, 1e-3):.0f}"
    for place, move in enumerate(found[:best], 1):
        if move.visits or place == 1:
            line = moves.line(session.state, move.variation)
            chances = f" wdl {wins_draws_losses(move)}" if wdl else ""
            yield (
                f"info depth {len(line)} seldepth {len(line)} multipv {place} score {score(move)}{chances} {counts} "
                f"hashfull {session.fullness * 1000:.0f} time {seconds * 1000:.0f} pv {' '.join(line)}"
            )


def score(move: "RootMove") -> str:
    """Return the score of a move as UCI writes it: moves to mate, or centipawns. A value becomes centipawns as in Leela
    Chess Zero: 0.5 is 111.7 tan(1.56 * 0.5) = 110."""
    value = move.value or 0.0
    if move.exact and abs(value) == 1:
        num_moves = (len(move.variation) + 1) // 2
        return f"mate {num_moves if value > 0 else -num_moves}"
    return f"cp {round(111.714640912 * math.tan(1.5620688421 * value))}"


def wins_draws_losses(move: "RootMove") -> str:
    """Return the chances to win, draw and lose after a move, in thousandths. The search knows their expectation e in
    [0, 1] alone, unless the result is proven. The chances are those of two halves of a point, each won with chance e:
    e^2, 2 e (1 - e), (1 - e)^2."""
    value = move.value or 0.0
    e = (value + 1) / 2
    won, lost = (max(value, 0.0), max(-value, 0.0)) if move.exact else (e * e, (1 - e) ** 2)
    wins, losses = round(1000 * won), round(1000 * lost)
    return f"{wins} {1000 - wins - losses} {losses}"
