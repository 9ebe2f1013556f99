"""Go on bitboards, with what the rules need to be fast kept in the state.

A state is (own stones, opponent's stones, points where the player to move may play, turn, the hashes of the last
REMEMBERED positions, the newest first). turn: bit 0 the player to move, bit 1 whether the move before was a pass, bit 2
whether the two before were; from bit 8 on the number of plies. Player 0 is Black.
Shapes: B batch, N points, W words of a set of points. In kernels a board has a border all round: int8 [(size + 2)^2].
"""

from collections.abc import Sequence
from copy import copy

import numpy as np
from numba import njit

from az_mpi.games.base import OWN_AND_OTHER, require
from az_mpi.games.bitboards import BitboardGame, packed
from az_mpi.games.state_text import stones_from_text, stones_to_text
from az_mpi.games.symmetry import dihedral

REMEMBERED = 16
PLIES_IN_PLAY = 1024  # where no training limits a game; each search keeps paths of that length
EMPTY, BORDER = 2, 3  # on a board in a kernel; 0 and 1 are the players' stones
_PASSED, _TWO_PASSES, _PLY = 2, 4, 8


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
        self._hash_words = np.random.default_rng(1).integers(2**64, size=(2, (size + 2) ** 2), dtype=np.uint64)

    def untruncated(self) -> "Rules":
        longer = copy(self)
        longer.max_plies = max(self.max_plies, PLIES_IN_PLAY)
        return longer

    def initial(self, n: int) -> np.ndarray:
        states = super().initial(n)
        states[:, 2 * self.words : 3 * self.words] = packed(np.full(self.cells, self.cells > 1))
        return states

    def play(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return _play(states, np.ascontiguousarray(actions, np.int64), self.rows, self._hash_words)

    def legal(self, states: np.ndarray) -> np.ndarray:
        return _legal(states, self.cells)

    def terminal(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _terminal(states, self.rows, float(self.komi), self.max_plies)

    def is_cut(self, state: np.ndarray) -> bool:
        return not self._turn(np.asarray(state)[None])[0] & np.uint64(_TWO_PASSES)

    def lead(self, states: np.ndarray) -> np.ndarray:
        return _owners(states, self.rows).sum(axis=(1, 2), dtype=np.float32) - np.float32(self.komi)

    def ownership(self, states: np.ndarray, player: int) -> np.ndarray:
        return _owners(states, self.rows) * np.int8(1 - 2 * player)

    def describe_planes(self) -> tuple[Sequence[str], str]:
        return (
            *OWN_AND_OTHER,
            "empty points where the player to move may not play: ko and suicide",
            "1 everywhere if Black, player 0, is to move",
            "1 everywhere if the other player has just passed",
        ), self.describe_rows()

    def to_play(self, states: np.ndarray) -> np.ndarray:
        return (self._turn(states) & np.uint64(1)).astype(np.int8)

    def _turn(self, states):
        return states[:, 3 * self.words]

    def planes(self, states: np.ndarray) -> np.ndarray:
        """Own stones, the other player's, empty points where the player to move may not play; ones where Black is to
        move, ones after a pass."""
        planes = super().planes(states)
        turn = self._turn(states)
        flat = planes.reshape(len(states), 5, -1)
        flat[:, 2, :] = (flat[:, 0] | flat[:, 1] | _legal(states, self.cells)[:, :-1]) == 0
        planes[:, 3] = (~turn & np.uint64(1))[:, None, None]
        planes[:, 4] = (turn >> np.uint64(1) & np.uint64(1))[:, None, None]
        return planes

    def beside_stones(self, states: np.ndarray) -> np.ndarray:
        return self._turn(states) & np.uint64(3)

    def action_to_text(self, state: np.ndarray, action: int) -> str:
        return self.cell_name(action) if action < self.cells else "pass"

    def state_to_text(self, state: np.ndarray) -> str:
        """Return the stones, who is to move, and how many passes came just before: 0, 1 or 2. What else came before,
        and so a ko, is not in it."""
        passes = int(self._turn(np.asarray(state)[None])[0])
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


@njit(cache=True, nogil=True)
def _unpack(state, size, board):
    """Fill in a board from a state."""
    words = (size * size + 63) // 64
    player = np.int64(state[3 * words] & np.uint64(1))
    board[:] = BORDER
    for r in range(size):
        for c in range(size):
            j = r * size + c
            w = j >> 6
            bit = np.uint64(j & 63)
            stone = EMPTY
            if state[w] >> bit & np.uint64(1):
                stone = player
            elif state[words + w] >> bit & np.uint64(1):
                stone = 1 - player
            board[(r + 1) * (size + 2) + c + 1] = stone


@njit(cache=True, nogil=True)
def _region(board, start, mark, seen, stack, wide):
    """Find the points of `start`'s colour that hang together with it: mark them with `mark` in `seen` and list them in
    `stack`. Return (their number; 1 if a stone of player 0 is beside them, plus 2 if one of player 1 is; an empty point
    beside them, or 0; whether there is another one)."""
    colour = board[start]
    count = 1
    k = 0
    touches = 0
    liberty = 0
    more = False
    stack[0], seen[start] = start, mark
    while k < count:
        p = stack[k]
        k += 1
        for q in (p - wide, p - 1, p + 1, p + wide):
            if board[q] == colour:
                if seen[q] != mark:
                    seen[q] = mark
                    stack[count] = q
                    count += 1
            elif board[q] == EMPTY:
                more |= liberty > 0 and liberty != q
                liberty = q
            elif board[q] != BORDER:
                touches |= 1 << board[q]
    return count, touches, liberty, more


@njit(cache=True, nogil=True)
def _put(board, p, player, key, seen, stack, wide, hash_words):
    """Put a stone on the board, in place, take off what it captures, and return the position's new hash."""
    board[p] = player
    key ^= hash_words[player, p]
    seen[:] = -1
    for q in (p - wide, p - 1, p + 1, p + wide):
        if board[q] == 1 - player:
            count, _, liberty, _ = _region(board, q, q, seen, stack, wide)
            for i in range(count if liberty == 0 else 0):
                board[stack[i]] = EMPTY
                key ^= hash_words[1 - player, stack[i]]
    return key


@njit(cache=True, nogil=True)
def _find_groups(board, size, groups, stack, hash_words):
    """Fill in `groups`: (the group of each point with a stone int64, and of each group the hash of its stones uint64,
    its number of liberties up to 2 int64, and -1 int64)."""
    wide, (group, group_hash, liberties, counted) = size + 2, groups
    group[:], num = -1, 0
    for p in range(wide, wide * (size + 1)):
        if board[p] < EMPTY and group[p] < 0:
            count, _, liberty, more = _region(board, p, num, group, stack, wide)
            liberties[num], group_hash[num], counted[num] = np.int64(liberty > 0) + more, 0, -1
            for i in range(count):
                group_hash[num] ^= hash_words[board[p], stack[i]]
            num += 1


@njit(cache=True, nogil=True)
def _try(board, p, player, wide, groups):
    """Return (whether a stone of `player` on the empty point p would have a liberty, the hash of what it captures)."""
    group, group_hash, liberties, counted = groups
    lives = False
    captured = np.uint64(0)
    for q in (p - wide, p - 1, p + 1, p + wide):
        if board[q] == EMPTY:
            lives = True
        elif board[q] == player:
            lives |= liberties[group[q]] > 1
        elif board[q] != BORDER and liberties[group[q]] == 1:
            lives = True
            if counted[group[q]] != p:  # p may touch a group twice
                captured ^= group_hash[group[q]]
                counted[group[q]] = p
    return lives, captured


@njit(cache=True, nogil=True)
def _mark_legal(board, player, state, size, groups, hash_words):
    """Set in a state the points where `player` may play."""
    words = (size * size + 63) // 64
    now = 3 * words + 1  # the hash of the board, which those of the positions before follow
    for j in range(size * size):
        p = (j // size + 1) * (size + 2) + j % size + 1
        if board[p] == EMPTY:
            may, captured = _try(board, p, player, size + 2, groups)
            key = state[now] ^ hash_words[player, p] ^ captured
            if may:
                for h in range(now, now + REMEMBERED):
                    may &= state[h] != key
            if may:
                state[2 * words + (j >> 6)] |= np.uint64(1) << np.uint64(j & 63)


@njit(cache=True, nogil=True)
def _pack(board, size, player, state):
    """Set the stones of a state in which `player` is to move."""
    words = (size * size + 63) // 64
    for j in range(size * size):
        stone = board[(j // size + 1) * (size + 2) + j % size + 1]
        if stone < EMPTY:
            state[(0 if stone == player else words) + (j >> 6)] |= np.uint64(1) << np.uint64(j & 63)


@njit(cache=True, nogil=True)
def _play(states, actions, size, hash_words):
    after = np.zeros_like(states)
    points = size * size
    wide = size + 2
    turn = 3 * ((points + 63) // 64)
    board = np.empty(wide * wide, np.int8)
    stack = np.empty(points, np.int64)
    groups = np.empty(wide * wide, np.int64), np.empty(points, np.uint64), stack.copy(), stack.copy()
    for b in range(len(states)):
        before = states[b]
        state = after[b]
        player = np.int64(before[turn] & np.uint64(1))
        passed = before[turn] & np.uint64(_PASSED)
        state[turn] = (before[turn] >> np.uint64(_PLY)) + np.uint64(1) << np.uint64(_PLY) | np.uint64(1 - player)
        _unpack(before, size, board)
        if actions[b] < points:
            p = (actions[b] // size + 1) * wide + actions[b] % size + 1
            state[turn + 1] = _put(board, p, player, before[turn + 1], groups[0], stack, wide, hash_words)
            for k in range(turn + 2, len(state)):
                state[k] = before[k - 1]
        else:
            state[turn] |= np.uint64(_PASSED | _TWO_PASSES if passed else _PASSED)
            for k in range(turn + 1, len(state)):
                state[k] = before[k]
        _pack(board, size, 1 - player, state)
        _find_groups(board, size, groups, stack, hash_words)
        _mark_legal(board, 1 - player, state, size, groups, hash_words)
    return after


@njit(cache=True, nogil=True)
def _legal(states, points):
    words = (points + 63) // 64
    legal = np.empty((len(states), points + 1), np.bool_)
    for b in range(len(states)):
        for j in range(points):
            legal[b, j] = states[b, 2 * words + (j >> 6)] >> np.uint64(j & 63) & np.uint64(1)
        legal[b, points] = True
    return legal


@njit(cache=True, nogil=True)
def _own(board, size, seen, stack, owners):
    """Set whose area each point is, int8 [size, size]: 1 player 0's, -1 player 1's, 0 nobody's. Return the area of
    player 0 minus that of player 1."""
    wide = size + 2
    lead = 0
    seen[:] = -1
    for p in range(wide, wide * (size + 1)):
        if board[p] != BORDER and seen[p] < 0:
            count, touches, _, _ = _region(board, p, 0, seen, stack, wide)
            owner = 1 - 2 * board[p] if board[p] < EMPTY else (touches == 1) - np.int64(touches == 2)
            lead += count * owner
            for i in range(count):
                owners[stack[i] // wide - 1, stack[i] % wide - 1] = owner
    return lead


@njit(cache=True, nogil=True)
def _owners(states, size):
    """Return whose area each point is, int8 [B, size, size], see `_own`."""
    owners = np.empty((len(states), size, size), np.int8)
    wide = size + 2
    board = np.empty(wide * wide, np.int8)
    seen = np.empty(wide * wide, np.int64)
    stack = np.empty(size * size, np.int64)
    for b in range(len(states)):
        _unpack(states[b], size, board)
        _own(board, size, seen, stack, owners[b])
    return owners


@njit(cache=True, nogil=True)
def _terminal(states, size, komi, max_plies):
    ended = np.zeros(len(states), np.bool_)
    value = np.zeros(len(states), np.float32)
    turn = 3 * ((size * size + 63) // 64)
    wide = size + 2
    board = np.empty(wide * wide, np.int8)
    seen = np.empty(wide * wide, np.int64)
    stack = np.empty(size * size, np.int64)
    owners = np.empty((size, size), np.int8)
    for b in range(len(states)):
        if states[b, turn] & np.uint64(_TWO_PASSES) or states[b, turn] >> np.uint64(_PLY) >= np.uint64(max_plies):
            _unpack(states[b], size, board)
            lead = np.sign(_own(board, size, seen, stack, owners) - komi)
            ended[b], value[b] = True, lead * (1 - 2 * np.int64(states[b, turn] & np.uint64(1)))
    return ended, value
