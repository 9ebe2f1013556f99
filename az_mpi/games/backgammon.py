"""Backgammon without a doubling cube. A ply is a throw of both dice, or the move of one checker by one die.

A state has, for the player to move and then for the other one, the checkers on each of the points 1 to 24 as that
player counts them, and those on the bar; then the dice that are left, how many moves are left, and the player to move.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from az_mpi.core.hashing import FNV_OFFSET, FNV_PRIME
from az_mpi.games.base import CHANCE, require
from az_mpi.games.board_data import NO_CELL, Board
from az_mpi.games.position_game import PositionGame

POINTS, CHECKERS = 24, 15
BAR = POINTS  # its place in a side of the state, after the points 1 to 24 at 0 to 23
SIDE = POINTS + 1
OTHER = SIDE  # where the other player's side begins
DIE, SECOND, LEFT, PLAYER = 2 * SIDE, 2 * SIDE + 1, 2 * SIDE + 2, 2 * SIDE + 3  # SECOND: 0 if all dice left are alike
FIRST_THROW = -1  # of LEFT: the throw that begins the game, which is no double; 0: another throw
HOME = 6  # points
PASS = 2 * SIDE
START = {5: 5, 7: 3, 12: 5, 23: 2}  # checkers on the points 6, 8, 13 and 24
THROWS = tuple((high, low) for high in range(1, 7) for low in range(1, high + 1))
COUNTS = 3  # planes of a player's points with at least 1, 2 and 3 checkers; one more is of those beyond
HEIGHT, MIDDLE = 11, 6  # of a drawn board: its rows, and the column between its halves


class Rules(PositionGame):
    """Backgammon. Two players move 15 checkers each from point 24 to point 1, as each of them counts, and off. A throw
    of two dice gives two moves, a double four. A checker may not go where two or more of the other player's are; a
    single one there goes to the bar, from which it has to enter before any other move of its player. Checkers go off
    when all are on the points 1 to 6. Both dice must be played if that is possible; if either one can be but not both,
    it is the larger. Who has all checkers off wins.

    Player 0 moves first, with two different dice. A win counts 1; with gammons=True it counts 1/3, twice as much if the
    loser has no checker off, and three times if one of them is besides on the bar or in the winner's home. Games of
    more than max_plies plies, throws included, are drawn.

    An action is 2 * point + die: the point from which the checker goes, 0 to 23, or 24 for the bar, as the player to
    move counts them; die 0 is the larger of two different ones. Action 50 passes, where no move is possible.
    Outcomes of chance are the throws 11, 21, 22, 31, and so on.
    """

    num_outcomes, num_actions, state_size = len(THROWS), PASS + 1, 2 * SIDE + 4
    state_dtype, planes_dtype = np.dtype(np.int8), np.dtype(np.float32)
    planes_shape = (2 * (COUNTS + 1) + 4 + 12 + 1, 1, POINTS)
    action_kinds = 2
    symmetry_cells = np.arange(POINTS, dtype=np.int32)[None]
    symmetry_actions = np.arange(PASS + 1, dtype=np.int32)[None]
    other_view = np.arange(POINTS, dtype=np.int32)[::-1].copy()

    def __init__(self, gammons: bool = False, max_plies: int = 3000):
        require("max_plies", max_plies, 4, 2**20)
        if type(gammons) is not bool:
            raise ValueError(f"gammons is {gammons!r}; allowed: True, False")
        arguments = ["gammons=True"] * gammons + [f"max_plies={max_plies}"] * (max_plies != 3000)
        self.name = f"backgammon({','.join(arguments)})" if arguments else "backgammon"
        self.gammons, self.max_plies = gammons, max_plies
        self.throws = np.array(THROWS, np.int64)

    def initial(self, n: int) -> np.ndarray:
        states = np.zeros((n, self.state_size), self.state_dtype)
        for point, num in START.items():
            states[:, [point, OTHER + point]] = num
        states[:, LEFT] = FIRST_THROW
        return states

    def apply(self, state: np.ndarray, action: int) -> None:
        if state[LEFT] <= 0:
            high, low = self.throws[action]
            state[DIE], state[SECOND], state[LEFT] = high, 0 if high == low else low, 4 if high == low else 2
            return
        if action < PASS:
            place = action >> 1
            second = action & 1
            die = state[SECOND] if second else state[DIE]
            state[place] -= 1
            if place >= die:
                land = place - die
                state[land] += 1
                if state[OTHER + POINTS - 1 - land] == 1:
                    state[OTHER + POINTS - 1 - land] = 0
                    state[OTHER + BAR] += 1
            if not second and state[SECOND]:
                state[DIE] = state[SECOND]
            state[SECOND] = 0
            state[LEFT] -= 1
        if checkers(state, 0) == 0:
            return
        if action == PASS or state[LEFT] == 0 or not can_move(state, state[DIE], -1, -1):
            for k in range(SIDE):
                state[k], state[OTHER + k] = state[OTHER + k], state[k]
            state[DIE] = state[SECOND] = state[LEFT] = 0
            state[PLAYER] = 1 - state[PLAYER]

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        die, second = state[DIE], state[SECOND]
        most = 0  # how many dice can be played, of two different ones
        for action in range(2 * SIDE):
            place, played, kept = action >> 1, die, second
            if action & 1:
                played, kept = second, die
            if played and is_move(state, place, played, -1, -1):
                both = kept > 0 and can_move(state, kept, place, place - played)
                if both and most < 2:
                    legal[:] = False
                most = max(most, 2 if both else 1)
                legal[action] = both or most < 2
        if most == 1 and second:
            larger = False
            for place in range(SIDE):
                larger = larger or legal[2 * place]
            for place in range(SIDE):
                legal[2 * place + 1] = legal[2 * place + 1] and not larger
        legal[PASS] = most == 0

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        if checkers(state, 0) > 0:
            return False, 0.0
        if not self.gammons:
            return True, 1.0
        if checkers(state, OTHER) < CHECKERS:
            return True, 1.0 / 3
        behind = state[OTHER + BAR]
        for k in range(POINTS - HOME, POINTS):
            behind += state[OTHER + k]
        return True, 1.0 if behind else 2.0 / 3

    def current_player(self, state: np.ndarray) -> int:
        if state[LEFT] <= 0 and checkers(state, 0) > 0:
            return CHANCE
        return np.int64(state[PLAYER])

    def outcome_chances(self, state: np.ndarray, chances: np.ndarray) -> None:
        for k in range(len(self.throws)):
            is_double = self.throws[k, 0] == self.throws[k, 1]
            if state[LEFT] == FIRST_THROW:
                chances[k] = 0 if is_double else 1.0 / 15
            else:
                chances[k] = 1.0 / 36 if is_double else 1.0 / 18

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        for side in range(2):
            for k in range(POINTS):
                cell = POINTS - 1 - k if side else k
                num = state[side * OTHER + k]
                for at_least in range(COUNTS):
                    planes[side * (COUNTS + 1) + at_least, 0, cell] = num > at_least
                planes[side * (COUNTS + 1) + COUNTS, 0, cell] = max(num - COUNTS, 0) / 4
            first = 2 * (COUNTS + 1) + 2 * side
            planes[first] = state[side * OTHER + BAR] / 2
            planes[first + 1] = (CHECKERS - checkers(state, side * OTHER)) / CHECKERS
        dice = 2 * (COUNTS + 1) + 4
        if state[DIE]:
            planes[dice + state[DIE] - 1] = 1
        if state[SECOND]:
            planes[dice + 6 + state[SECOND] - 1] = 1
        planes[dice + 12] = max(state[LEFT], 0) / 4

    def canonical(self, state: np.ndarray) -> tuple[int, int]:
        # Not of the player: both see the board alike.
        key = FNV_OFFSET
        for number in state[:PLAYER]:
            key = (key ^ np.uint64(number + 1)) * FNV_PRIME
            key ^= key >> np.uint64(29)
        return key, 0

    def describe_planes(self) -> tuple[Sequence[str], str]:
        names = []
        for who in ("the player to move", "the other player"):
            names += [f"points where {who} has at least {n} checkers" for n in range(1, COUNTS + 1)]
            names.append(f"how many checkers beyond {COUNTS} {who} has on a point, divided by 4")
        for who in ("the player to move", "the other player"):
            names.append(f"checkers of {who} on the bar, divided by 2, everywhere")
            names.append(f"checkers of {who} that are off, divided by {CHECKERS}, everywhere")
        names += [f"1 everywhere if the larger die, or the only one left, shows {n}" for n in range(1, 7)]
        names += [f"1 everywhere if the smaller die shows {n}" for n in range(1, 7)]
        return (*names, "moves left, divided by 4, everywhere"), "column 0 is point 1 of the player to move"

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        """Return the points from and to, such as "13/7", "bar/22" or "4/off"; "4/off(6)" if the die is larger than the
        point; "pass"."""
        if action == PASS:
            return "pass"
        place, second = divmod(int(action), 2)
        die = int(np.asarray(state)[SECOND if second else DIE])
        begin = "bar" if place == BAR else str(place + 1)
        if place >= die:
            return f"{begin}/{place + 1 - die}"
        return f"{begin}/off" if place + 1 == die else f"{begin}/off({die})"

    def outcome_to_text(self, state: np.ndarray, outcome: int) -> str:
        return "{}-{}".format(*THROWS[int(outcome)])

    def show(self, state: np.ndarray) -> str:
        return self.board(state).named_text()

    def board(self, state: np.ndarray) -> Board:
        """Return the board with the home of player 0 at the bottom right. Up to five checkers are drawn on a point; the
        one in front then says how many there are. A column's name is its two points, as the player to move counts."""
        sides = np.asarray(state)[: 2 * SIDE].reshape(2, SIDE)
        mover = int(state[PLAYER])
        players = np.full((HEIGHT, 2 * MIDDLE + 1), -1, np.int8)
        players[:, MIDDLE] = NO_CELL
        symbols = np.full(players.shape, " ", "<U2")
        for player, side in ((mover, sides[0]), (1 - mover, sides[1])):
            for k in range(POINTS):
                row, column, step = _place(k if player == 0 else POINTS - 1 - k)
                for i in range(min(side[k], 5)):
                    players[row + i * step, column] = player
                if side[k] > 5:
                    symbols[row + 4 * step, column] = side[k]
        lower = [*range(12, 6, -1), 0, *range(6, 0, -1)]
        counted = [(25 - point, point) if mover == 0 else (point, 25 - point) for point in lower]
        columns = tuple(f"{above}/{below}" if 0 < below < 25 else "" for above, below in counted)
        return Board(players, tuple(map(tuple, symbols.tolist())), columns=columns, beside=self._beside(state, sides))

    def _beside(self, state, sides):
        mover = int(state[PLAYER])
        order = (mover, 1 - mover)  # of the sides, to X and O
        bar = [int(sides[k][BAR]) for k in order]
        off = [CHECKERS - int(sides[k].sum()) for k in order]
        dice = [int(die) for die in (state[DIE], state[SECOND]) if die]
        if len(dice) == 1:
            dice *= int(state[LEFT])
        parts = [f"dice {' '.join(map(str, dice))}"] if dice else []
        parts += [f"on the bar: X {bar[0]}, O {bar[1]}"] if any(bar) else []
        return "; ".join([*parts, f"off: X {off[0]}, O {off[1]}"])


def _place(point):
    """Return (row, column, step to the next checker) of a point as player 0 counts it, from 0."""
    lower = point < POINTS // 2
    column = 11 - point if lower else point - 12
    return (HEIGHT - 1, column + (column >= MIDDLE), -1) if lower else (0, column + (column >= MIDDLE), 1)


@njit(cache=True, nogil=True)
def checkers(state: np.ndarray, begin: int) -> int:
    """Return how many checkers of the side that begins there are not off."""
    total = 0
    for k in range(begin, begin + SIDE):
        total += state[k]
    return total


@njit(cache=True, nogil=True)
def can_move(state: np.ndarray, die: int, left: int, reached: int) -> bool:
    """Return whether a checker can move by a die, after one has moved from `left` to `reached`; -1, -1: after none."""
    for place in range(SIDE):
        if is_move(state, place, die, left, reached):
            return True
    return False


@njit(cache=True, nogil=True)
def is_move(state: np.ndarray, place: int, die: int, left: int, reached: int) -> bool:
    """Return whether the checker from `place` can move by a die, after one has moved from `left` to `reached`, below 0
    if it went off; -1, -1: after none."""
    if _count(state, place, left, reached) == 0 or (place != BAR and _count(state, BAR, left, reached) > 0):
        return False
    if place >= die:
        return state[OTHER + POINTS - 1 - (place - die)] < 2
    for k in range(HOME, SIDE):
        if _count(state, k, left, reached) > 0:
            return False
    if place + 1 < die:
        for k in range(place + 1, HOME):
            if _count(state, k, left, reached) > 0:
                return False
    return True


@njit(cache=True, nogil=True)
def _count(state, place, left, reached):
    return state[place] - (place == left) + (place == reached)
