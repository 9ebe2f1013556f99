"""Values as chess programs write them: [%eval 0.35] in a comment is the advantage of White in pawns."""

import math

# Of Lichess: the share of games that White wins, less the share that it loses, is 2 / (1 + exp(-k centipawns)) - 1.
PER_PAWN = 0.368208
VALUE_MOST = 0.99999  # a value has no number of pawns at 1


def pawns_of(value: float) -> float:
    """Return a value in [-1, 1] in pawns."""
    value = min(max(value, -VALUE_MOST), VALUE_MOST)
    return math.log((1 + value) / (1 - value)) / PER_PAWN


def value_of(pawns: float) -> float:
    """Return an advantage in pawns as a value in [-1, 1]."""
    return 2 / (1 + math.exp(-min(max(PER_PAWN * pawns, -50.0), 50.0))) - 1
