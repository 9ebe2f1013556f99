"""How long to think about a move: limits, and the clocks of games with a time limit."""

import math
from typing import NamedTuple


class Limit(NamedTuple):
    """Where thinking about one move ends: at the first of these that is reached. 0: no such limit.

    simulations: visits of the root, including those that an earlier search left. seconds: no simulation begins that is
    expected to end later."""

    simulations: int = 0
    seconds: float = 0.0


class Clock:
    """The time of one player: `main_s` seconds, then periods of `period_s` for `moves` moves each (Canadian byo-yomi;
    moves 0 with a period_s: no limit, as GTP has it)."""

    def __init__(self, main_s: float, period_s: float, moves: int):
        self.period_s = period_s
        self.moves = moves
        self.unlimited = moves == 0 and (period_s > 0 or main_s == 0)
        self.left_s, self.moves_left = main_s, 0  # moves_left 0: main time
        if main_s == 0:
            self._next_period()

    def set_left(self, left_s: float, moves_left: int) -> None:
        """Correct the clock: left_s for the next `moves_left` moves; 0: of main time."""
        self.unlimited = False
        self.left_s = max(left_s, 0.0)
        self.moves_left = moves_left

    def budget_s(self, moves_to_go: int) -> float:
        """Return the seconds to think about the next move. moves_to_go: how many moves main time should last."""
        if self.unlimited:
            return math.inf
        if self.moves_left:
            return self.left_s / self.moves_left
        each_s = self.period_s / self.moves if self.moves else 0.0
        return min(max(self.left_s / moves_to_go, each_s), self.left_s + each_s)

    def spend(self, used_s: float) -> None:
        """Take the time of one move off the clock."""
        self.left_s -= used_s
        if not self.moves_left and self.left_s <= 0 and self.moves:
            over_s = -self.left_s
            self._next_period()
            self.left_s -= over_s
        if self.moves_left:
            self.moves_left -= 1
            if not self.moves_left:
                self._next_period()
        self.left_s = max(self.left_s, 0.0)

    def _next_period(self):
        self.left_s, self.moves_left = (self.period_s, self.moves) if self.moves else (0.0, 0)
