"""Go on bitboards, with what the rules need to be fast kept in the state.

A state is (own stones, opponent's stones, marks, turn, the hashes of the last REMEMBERED positions, the newest first).
An empty point is marked if the player to move may play there, a stone if its chain has a single liberty. turn: bit 0
the player to move, bit 1 whether the move before was a pass, bit 2 whether the two before were, bit 3 whether stones
are marked: states of earlier versions have no such marks; from bit 8 on the number of plies. Player 0 is Black.
Shapes: B batch, N points, W words of a set of points.
"""

from collections.abc import Sequence
from copy import copy

import numpy as np

from az_mpi.games.base import OWN_AND_OTHER, require
from az_mpi.games.bitboards import BitboardGame, count, holds, lowest, packed
from az_mpi.games.state_text import stones_from_text, stones_to_text
from az_mpi.games.symmetry import dihedral

REMEMBERED = 16
PLIES_IN_PLAY = 1024  # where no training limits a game; each search keeps paths of that length
_PASSED, _TWO_PASSES, _MARKED, _PLY = np.uint64(2), np.uint64(4), np.uint64(8), np.uint64(8)
_SLOTS = 1024
# The sets of points, [7, W], that a move works with: the stones of the player who moves and of the other one, empty
# points, those of the stones whose chain has a single liberty, and two for changing needs.
OWN, OTHER, FREE, OWN_LAST, OTHER_LAST, CHAIN, FOUND = range(7)
_NONE, _ONE, _ALL = np.uint64(0), np.uint64(1), 1000


class Rules(BitboardGame):
    """Go: area scoring (Tromp and Taylor: stones and the empty regions that touch one colour only), no suicide.

    Two passes end the game, and so do `max_plies` moves (by default twice the number of points): both are scored as the
    board stands. `komi` points go to White, player 1; a difference of 0 is a draw. Positional superko: no stone may
    bring back one of the last 16 positions (passes make no position); longer cycles are not seen, and end by
    `max_plies`. An action is a point, counted row by row from the top left, in text column and row from the bottom left
    without a column I (D4); the last action is to pass ("pass").
    """

    sgf_number = 1

    def __init__(self, size: int = 9, komi: float = 7, max_plies: int = 0):
        require("size", size, 1, 19)  # below 5: for tests
        require("max_plies", max_plies, 0, 10_000)
        if type(komi) not in (int, float) or not abs(komi) <= 400 or komi * 2 % 1:
            raise ValueError(f"komi is {komi!r}; allowed: a multiple of 0.5 from -400 to 400")
        symmetries = dihedral(size, size)
        super().__init__(size, size, symmetries, num_planes=5, num_sets=3, letters="ABCDEFGHJKLMNOPQRST", upwards=True)
        self.max_plies = max_plies or 2 * self.cells
        self.komi = komi
        limit = f",max_plies={max_plies}" if max_plies else ""
        self.name = f"go(size={size},komi={komi:g}{limit})"
        self.num_actions, self.state_size = self.cells + 1, 3 * self.words + 1 + REMEMBERED
        self.symmetry_actions = np.pad(symmetries, ((0, 0), (0, 1)), constant_values=self.cells)
        # For the rules: the points of the board, those with a point to the left, and to the right; what a stone of each
        # player on each point adds to the hash of a position; and where such a word is in a table of open addressing.
        column = np.arange(self.cells) % size
        self._points, self._has_left, self._has_right = packed(np.stack([column >= 0, column > 0, column < size - 1]))
        words = np.random.default_rng(1).integers(2**64, size=(2, size + 2, size + 2), dtype=np.uint64)
        self._hash_words = words[:, 1:-1, 1:-1].reshape(2, -1)
        self._point_at = np.full((2, _SLOTS), -1, np.int16)
        for player, words in enumerate(self._hash_words):
            for point, slot in enumerate((words % _SLOTS).astype(int)):
                while self._point_at[player, slot] >= 0:
                    slot = (slot + 1) % _SLOTS
                self._point_at[player, slot] = point

    def untruncated(self) -> "Rules":
        longer = copy(self)
        longer.max_plies = max(self.max_plies, PLIES_IN_PLAY)
        return longer

    def initial(self, n: int) -> np.ndarray:
        states = super().initial(n)
        states[:, 2 * self.words : 3 * self.words] = packed(np.full(self.cells, self.cells > 1))
        return states

    def apply(self, state: np.ndarray, action: int) -> None:
        words, turn, sets = self.words, 3 * self.words, self.sets_of(state)
        player, passed = state[turn] & _ONE, state[turn] & _PASSED
        if not state[turn] & _MARKED:
            self.find_last(sets)
        state[turn] = ((state[turn] >> _PLY) + _ONE) << _PLY | _MARKED | _ONE - player
        if action < self.cells:
            key = state[turn + 1] ^ self.put_stone(sets, np.int64(player), action)
            for k in range(len(state) - 1, turn + 1, -1):
                state[k] = state[k - 1]
            state[turn + 1] = key
        else:
            state[turn] |= _PASSED | _TWO_PASSES if passed else _PASSED
        for w in range(words):
            state[w], state[words + w] = sets[OTHER, w], sets[OWN, w]
            sets[CHAIN, w] = sets[FREE, w] | sets[OTHER, w] & ~sets[OTHER_LAST, w] | sets[OWN_LAST, w]
        for w in range(words):  # a move is legal if its stone has a liberty, or lives with a chain, or takes one
            sets[FOUND, w] = sets[FREE, w] & self.beside(sets, OWN_LAST, w)
            state[2 * words + w] = sets[FREE, w] & self.beside(sets, CHAIN, w)
        self.forbid_repeats(state, sets, 1 - np.int64(player))
        for w in range(words):
            state[2 * words + w] |= sets[OWN_LAST, w] | sets[OTHER_LAST, w]

    def sets_of(self, state: np.ndarray) -> np.ndarray:
        """Return the sets of points that a move works with."""
        sets = np.empty((7, self.words), np.uint64)
        for w in range(self.words):
            own, other, marks = state[w], state[self.words + w], state[2 * self.words + w]
            sets[OWN, w], sets[OTHER, w], sets[FREE, w] = own, other, self._points[w] & ~(own | other)
            sets[OWN_LAST, w], sets[OTHER_LAST, w] = own & marks, other & marks
        return sets

    def find_last(self, sets: np.ndarray) -> None:
        """Find the chains with a single liberty."""
        for stones in range(2):
            for point in range(self.cells):
                if holds(sets[stones], 0, point):
                    self.begin(sets, point)
                    if self.grow(sets, stones, 2) == 1:
                        self.join(sets, OWN_LAST + stones)

    def put_stone(self, sets: np.ndarray, player: int, point: int) -> int:
        """Put a stone of the player who moves on a point and take what it captures. Return how the hash changes."""
        stone, key = _ONE << np.uint64(point & 63), self._hash_words[player, point]
        sets[OWN, point >> 6] |= stone
        sets[FREE, point >> 6] ^= stone
        self.begin(sets, point)
        for w in range(self.words):
            sets[FOUND, w] = self.beside(sets, CHAIN, w) & (sets[OTHER, w] | sets[OWN_LAST, w])
        for w in range(self.words):
            while sets[FOUND, w] & sets[OTHER, w]:
                self.begin(sets, 64 * w + lowest(sets[FOUND, w] & sets[OTHER, w]))
                liberties = self.grow(sets, OTHER, 2)
                for v in range(self.words):
                    sets[FOUND, v] &= ~sets[CHAIN, v]
                if liberties == 1:
                    self.join(sets, OTHER_LAST)
                elif liberties == 0:
                    key ^= self.hash_of(sets, 1 - player)
                    self.leave(sets, OTHER)
                    self.leave(sets, OTHER_LAST)
                    self.join(sets, FREE)
                    for v in range(self.words):  # own chains that gain liberties
                        sets[FOUND, v] |= self.beside(sets, CHAIN, v) & sets[OWN_LAST, v]
        for w in range(self.words):
            sets[CHAIN, w] = sets[FOUND, w]
        self.grow(sets, OWN_LAST, _ALL)
        self.leave(sets, OWN_LAST)
        self.begin(sets, point)
        if self.grow(sets, OWN, 2) == 1:
            self.join(sets, OWN_LAST)
        return key

    def forbid_repeats(self, state: np.ndarray, sets: np.ndarray, player: int) -> None:
        """Take the mark off the points where a stone would bring back a position. FOUND: where it captures."""
        first = 3 * self.words + 1
        key = state[first]
        for k in range(first + 1, first + REMEMBERED):  # a move that captures nothing adds one word to the hash
            slot = np.int64((key ^ state[k]) % np.uint64(_SLOTS))
            while self._point_at[player, slot] >= 0:
                point = self._point_at[player, slot]
                if self._hash_words[player, point] == key ^ state[k] and not holds(sets[FOUND], 0, point):
                    state[2 * self.words + (point >> 6)] &= ~(_ONE << np.uint64(point & 63))
                slot = (slot + 1) % _SLOTS
        for w in range(self.words):
            rest = sets[FOUND, w]
            while rest:
                self.begin(sets, 64 * w + lowest(rest))
                self.grow(sets, OWN_LAST, _ALL)
                sets[CHAIN, w] ^= rest & (~rest + _ONE)
                after = key ^ self._hash_words[player, 64 * w + lowest(rest)] ^ self.hash_of(sets, 1 - player)
                for k in range(first, first + REMEMBERED):
                    if state[k] == after:
                        state[2 * self.words + w] &= ~(rest & (~rest + _ONE))
                rest &= rest - _ONE

    def beside(self, sets: np.ndarray, which: int, w: int) -> int:
        """Return word w of the points beside those of a set; bits after the last point mean nothing."""
        size, rest = np.uint64(self.rows), np.uint64(64 - self.rows)
        here = sets[which, w]
        before = sets[which, w - 1] if w > 0 else _NONE
        after = sets[which, w + 1] if w + 1 < self.words else _NONE
        level = (here << _ONE | before >> np.uint64(63)) & self._has_left[w]
        level |= (here >> _ONE | after << np.uint64(63)) & self._has_right[w]
        return level | here << size | before >> rest | here >> size | after << rest

    def grow(self, sets: np.ndarray, stones: int, enough: int) -> int:
        """Add to CHAIN the points of a set that hang together with it. Return the number of its liberties; when it has
        `enough` of them, the rest of the chain is left out."""
        while True:
            liberties, more = 0, _NONE
            for w in range(self.words):
                near = self.beside(sets, CHAIN, w)
                liberties += count(near & sets[FREE, w])
                new = near & sets[stones, w] & ~sets[CHAIN, w]
                sets[CHAIN, w] |= new
                more |= new
            if liberties >= enough or not more:
                return liberties

    def begin(self, sets: np.ndarray, point: int) -> None:
        """Make CHAIN a single point."""
        for w in range(self.words):
            sets[CHAIN, w] = _NONE
        sets[CHAIN, point >> 6] = _ONE << np.uint64(point & 63)

    def join(self, sets: np.ndarray, which: int) -> None:
        """Add CHAIN to a set."""
        for w in range(self.words):
            sets[which, w] |= sets[CHAIN, w]

    def leave(self, sets: np.ndarray, which: int) -> None:
        """Take CHAIN off a set."""
        for w in range(self.words):
            sets[which, w] &= ~sets[CHAIN, w]

    def hash_of(self, sets: np.ndarray, player: int) -> int:
        """Return what stones of a player on the points of CHAIN add to a hash."""
        key = _NONE
        for w in range(self.words):
            bits = sets[CHAIN, w]
            while bits:
                key ^= self._hash_words[player, 64 * w + lowest(bits)]
                bits &= bits - _ONE
        return key

    def legal_actions(self, state: np.ndarray, legal: np.ndarray) -> None:
        for w in range(self.words):
            may = self.cells_of(state, 2, w)
            for j in range(64 * w, min(64 * w + 64, self.cells)):
                legal[j] = may >> np.uint64(j & 63) & _ONE
        legal[self.cells] = True

    def cells_of(self, state: np.ndarray, which: int, w: int) -> int:
        word = state[which * self.words + w]
        return word & ~(state[w] | state[self.words + w]) if which == 2 else word

    def result(self, state: np.ndarray) -> tuple[bool, float]:
        turn = state[3 * self.words]
        if not turn & _TWO_PASSES and turn >> _PLY < np.uint64(self.max_plies):
            return False, 0.0
        sets, lead = self.sets_of(state), 0
        for stones in range(2):
            for w in range(self.words):
                sets[CHAIN, w] = self.beside(sets, stones, w) & sets[FREE, w]
            self.grow(sets, FREE, _ALL)
            for w in range(self.words):
                lead += (1 - 2 * stones) * count(sets[CHAIN, w] | sets[stones, w])
        sign = 1 - 2 * self.current_player(state)
        return True, sign * np.sign(sign * lead - self.komi)

    def current_player(self, state: np.ndarray) -> int:
        return np.int64(state[3 * self.words] & _ONE)

    def is_cut(self, state: np.ndarray) -> bool:
        return not np.asarray(state)[3 * self.words] & _TWO_PASSES

    def lead(self, states: np.ndarray) -> np.ndarray:
        return self._owners(states).sum(axis=(1, 2), dtype=np.float32) - np.float32(self.komi)

    def ownership(self, states: np.ndarray, player: int) -> np.ndarray:
        return self._owners(states) * np.int8(1 - 2 * player)

    def _owners(self, states):
        """Return whose area each point is, int8 [B, size, size]: 1 player 0's, -1 player 1's, 0 nobody's."""
        own, other = np.moveaxis(self.planes(states)[:, :2] > 0, 1, 0)
        black = (self.to_play(states) == 0)[:, None, None]
        reached = [
            _reached(stones, ~(own | other)) for stones in (np.where(black, own, other), np.where(black, other, own))
        ]
        return reached[0].astype(np.int8) - reached[1]

    def describe_planes(self) -> tuple[Sequence[str], str]:
        return (
            *OWN_AND_OTHER,
            "empty points where the player to move may not play: ko and suicide",
            "1 everywhere if Black, player 0, is to move",
            "1 everywhere if the other player has just passed",
        ), self.describe_rows()

    def observe(self, state: np.ndarray, planes: np.ndarray) -> None:
        """Own stones, the other player's, empty points where the player to move may not play; ones where Black is to
        move, ones after a pass."""
        self.observe_stones(state, planes)
        black, passed = 1 - self.current_player(state), state[3 * self.words] & _PASSED != _NONE
        for row in range(self.rows):
            for column in range(self.rows):
                w, bit = (row * self.rows + column) >> 6, np.uint64((row * self.rows + column) & 63)
                may_not = ~(state[w] | state[self.words + w] | state[2 * self.words + w])
                planes[2, row, column] = may_not >> bit & _ONE
                planes[3, row, column] = black
                planes[4, row, column] = passed

    def beside_stones(self, state: np.ndarray) -> int:
        return state[3 * self.words] & np.uint64(3)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return self.cell_name(action) if action < self.cells else "pass"

    def state_to_text(self, state: np.ndarray) -> str:
        """Return the stones, who is to move, and how many passes came just before: 0, 1 or 2. What else came before,
        and so a ko, is not in it."""
        passes = int(state[3 * self.words])
        return f"{stones_to_text(self, np.asarray(state))} {(passes >> 1 & 1) + (passes >> 2 & 1)}"

    def text_to_state(self, text: str) -> np.ndarray:
        players, mover, words = stones_from_text(text, self.rows, self.columns)
        if words not in ([], ["0"], ["1"], ["2"]):
            raise ValueError(f"{' '.join(words)[:20]!r} is no number of passes; allowed: 0, 1, 2")
        points = [np.flatnonzero(players.ravel() == player).tolist() for player in (0, 1)]
        state = self.initial(1)
        # One stone after the other: a part of a position that has no chain without liberties has none either.
        for k in range(2 * max(map(len, points)) + mover):
            point = points[k % 2].pop() if points[k % 2] else self.cells
            if point < self.cells and not self.legal(state)[0, point]:
                raise ValueError(f"the stone on {self.cell_name(point)} has no liberty")
            state = self.play(state, np.array([point]))
        turn = 3 * self.words
        state[0, turn] &= ~np.uint64(0xFFFFFF06)  # neither passes nor plies
        state[0, turn] |= np.uint64((0, 2, 6)[int((words or "0")[0])])
        state[0, turn + 2 :] = 0
        if (self.board(state[0]).players != players).any():
            raise ValueError("there are stones without a liberty")
        return state[0]


def _reached(stones, free):
    """Return stones and the empty points that hang together with them, bool [B, size, size]."""
    while True:
        wide = np.pad(stones, ((0, 0), (1, 1), (1, 1)))
        beside = wide[:, 2:, 1:-1] | wide[:, :-2, 1:-1] | wide[:, 1:-1, 2:] | wide[:, 1:-1, :-2]
        grown = stones | beside & free
        if (grown == stones).all():
            return stones
        stones = grown
