"""A position of chess with what came before it. A state is 32 words of 64 bits, 256 bytes:

- 0 to 4: the sets of squares of `chess_board`, as the player to move sees them;
- 5, flags: bit 0 is 1 if Black is to move; from bit 8 on the rights to castle, four bits each for the king's and the
  queen's side of the player to move and of the other one: the column + 1 of the rook, 0 for none; from bit 24 on the
  column + 1 of a pawn that may be taken en passant by a legal move, else 0; bits 32 and 33 how often the position was
  there before, up to 2; from bit 34 on, for each of the 8 positions before, the last one first, whether that one was
  there before it;
- 6, counts: bits 0 to 7 the plies since a capture or a move of a pawn; 8 to 15 those since which positions can repeat, at
  most 100; 16 to 31 all plies from where the game began; 32 to 39 those of them that are remembered, up to 8; from bit
  48 on the number of the full move, as in FEN;
- 7 to 31: the last 100 moves, 16 bits each, in a ring: the squares from and to as their player saw them, and what it
  takes to undo the move.

Repetitions are exact: the position some plies ago is the same one if the moves since then cancel out, for which no hash
is needed. The same moves give the earlier positions that the network sees, so that these cost no memory.
"""

import numpy as np
from numba import njit

from az_mpi.core.hashing import FNV_OFFSET, FNV_PRIME
from az_mpi.games.chess_board import (
    ACTION_KINDS,
    BISHOP,
    DIAGONAL,
    KING,
    KNIGHT,
    OFFSET,
    ONE,
    OTHER,
    OWN,
    PAWN,
    PROMOTES_TO,
    PROMOTIONS,
    QUEEN,
    ROOK,
    SLOW,
    STRAIGHT,
    ZERO,
    en_passant,
    first,
    flipped,
    num_in,
    set_of,
)

FLAGS, COUNTS, MOVES, WORDS = 5, 6, 7, 32
REMEMBERED = 100  # moves
HISTORY_MAX = 8
PLANES_EACH, PLANES_BESIDE = 13, 4  # of each position that the network sees, and further ones
ROWS_OF_PLANES = np.array([PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING])  # the order of the kinds in planes
CASTLES, EN_PASSANT, PROMOTED = 6, 7, 8  # in a move that is remembered; else the kind that it captured, or 0
RIGHTS, TARGET, REPEATED, EARLIER = np.uint64(8), np.uint64(24), np.uint64(32), np.uint64(34)  # bits of the flags
SAFE, PLIES, KNOWN, NUMBER = np.uint64(8), np.uint64(16), np.uint64(32), np.uint64(48)  # bits of the counts
NIBBLE, BYTE, SHORT = np.uint64(0xF), np.uint64(0xFF), np.uint64(0xFFFF)
FIFTY_MOVES, THIRD_TIME = 100, 2  # in plies, and in times that the position was there before
_TWO_BITS, _DARK = np.uint64(3), np.uint64(0xAA55AA55AA55AA55)
_WORTH = np.array([0, 5, 3, 9, 1, 3, 0])  # of each kind, where pieces are counted


@njit(cache=True, nogil=True)
def kind_on(straight: int, diagonal: int, slow: int, square: int) -> int:
    """Return the kind of the piece on a square, 0 for none."""
    at = np.uint64(square)
    return np.int64(straight >> at & ONE | (diagonal >> at & ONE) << ONE | (slow >> at & ONE) << np.uint64(2))


@njit(cache=True, nogil=True)
def _put(sets, square, kind):
    """Return STRAIGHT, DIAGONAL and SLOW with a kind of piece, or 0 for none, on a square."""
    at, word = np.uint64(square), np.uint64(kind)
    straight, diagonal, slow = sets
    keep = ~(ONE << at)
    return (
        straight & keep | (word & ONE) << at,
        diagonal & keep | (word >> ONE & ONE) << at,
        slow & keep | (word >> np.uint64(2)) << at,
    )


@njit(cache=True, nogil=True)
def target_of(flags: int) -> int:
    """Return the square where a pawn may be taken en passant, as a set."""
    column = flags >> TARGET & NIBBLE
    return set_of(np.int64(column) + 15) if column else ZERO


@njit(cache=True, nogil=True)
def _after_castling(row, is_kings):
    """Return the squares of the king and the rook after castling in the row that begins with the square `row`."""
    return (row + 6, row + 5) if is_kings else (row + 2, row + 3)


@njit(cache=True, nogil=True)
def play_move(state: np.ndarray, action: int) -> None:
    """Play a legal action."""
    own, other = state[OWN], state[OTHER]
    kinds = state[STRAIGHT], state[DIAGONAL], state[SLOW]
    rights = state[FLAGS] >> RIGHTS & SHORT
    start, way = action // ACTION_KINDS, action % ACTION_KINDS
    end = start + OFFSET[way]
    kind, caught = kind_on(*kinds, start), kind_on(*kinds, end)
    code = caught
    target = ZERO
    kinds = _put(kinds, start, 0)
    own ^= set_of(start)
    if own & set_of(end):
        code = CASTLES
        king, rook = _after_castling(56, end > start)
        own = own ^ set_of(end) | set_of(king) | set_of(rook)
        kinds = _put(_put(_put(kinds, end, 0), king, KING), rook, ROOK)
    else:
        other &= ~set_of(end)
        own |= set_of(end)
        if kind == PAWN:
            if end < 8:
                code |= PROMOTED
                kind = PROMOTES_TO[(way - PROMOTIONS) % 3] if way >= PROMOTIONS else QUEEN
            elif end == start - 16:
                target = set_of(end + 8)
            elif caught == 0 and end != start - 8:
                code = EN_PASSANT
                other &= ~set_of(end + 8)
                kinds = _put(kinds, end + 8, 0)
        kinds = _put(kinds, end, kind)
    left = _rights_left(rights, kind, start, end) if rights else rights
    state[OWN], state[OTHER] = flipped(other), flipped(own)
    state[STRAIGHT], state[DIAGONAL], state[SLOW] = flipped(kinds[0]), flipped(kinds[1]), flipped(kinds[2])
    is_final = code != 0 and code != CASTLES or kind == PAWN
    _count(state, start | end << 6 | code << 12, is_final, left != rights)
    _set_flags(state, left, flipped(target))


@njit(cache=True, nogil=True)
def _rights_left(rights, kind, start, end):
    """Return the rights to castle after a move of a kind of piece."""
    if kind == KING:
        rights &= ~BYTE
    for k in range(2):
        mine, yours = np.uint64(4 * k), np.uint64(4 * k + 8)
        if np.int64(rights >> mine & NIBBLE) == start - 55:
            rights &= ~(NIBBLE << mine)
        if np.int64(rights >> yours & NIBBLE) == end + 1:
            rights &= ~(NIBBLE << yours)
    return rights


@njit(cache=True, nogil=True)
def _count(state, move, is_final, loses_rights):
    """Remember a move, and set the counts after it. is_final: whether it captures, or moves a pawn."""
    flags, counts = state[FLAGS], state[COUNTS]
    plies = counts >> PLIES & SHORT
    slot = plies % np.uint64(REMEMBERED)
    word, shift = MOVES + np.int64(slot >> np.uint64(2)), (slot & _TWO_BITS) << np.uint64(4)
    state[word] = state[word] & ~(SHORT << shift) | np.uint64(move) << shift
    quiet = ZERO if is_final else min((counts & BYTE) + ONE, BYTE)
    is_new = is_final or loses_rights or flags >> TARGET & NIBBLE != ZERO
    safe = ZERO if is_new else min((counts >> SAFE & BYTE) + ONE, np.uint64(REMEMBERED))
    known = min((counts >> KNOWN & BYTE) + ONE, np.uint64(HISTORY_MAX))
    number = (counts >> NUMBER) + (flags & ONE)
    state[COUNTS] = quiet | safe << SAFE | (plies + ONE & SHORT) << PLIES | known << KNOWN | number << NUMBER


@njit(cache=True, nogil=True)
def _set_flags(state, rights, target):
    """Set the flags after a move. rights: to castle, of its player and then of the other one; target: the square that a
    pawn has passed over, as the player to move sees it, as a set."""
    flags = state[FLAGS]
    column = ZERO
    if target and en_passant(state[OWN], state[OTHER], state[STRAIGHT], state[DIAGONAL], state[SLOW], target):
        column = np.uint64(first(target) - 15)
    earlier = (flags >> EARLIER << ONE | np.uint64(flags >> REPEATED & _TWO_BITS != ZERO)) & BYTE
    rights = rights >> RIGHTS | (rights & BYTE) << RIGHTS
    state[FLAGS] = flags & ONE ^ ONE | rights << RIGHTS | column << TARGET | earlier << EARLIER
    state[FLAGS] |= np.uint64(_repetitions(state)) << REPEATED


@njit(cache=True, nogil=True)
def _move(state, slot):
    """Return the move in a slot of the ring."""
    slot = np.uint64(slot)
    return np.int64(state[MOVES + np.int64(slot >> np.uint64(2))] >> ((slot & _TWO_BITS) << np.uint64(4)) & SHORT)


@njit(cache=True, nogil=True)
def _last_slot(state):
    """Return the slot of the last move."""
    return (np.int64(state[COUNTS] >> PLIES & SHORT) + REMEMBERED - 1) % REMEMBERED


@njit(cache=True, nogil=True)
def _repetitions(state):
    """Return how often the position was there before, up to 2. It can be one of `safe` plies ago only where each player
    has left and filled the same squares since then: only these positions are compared."""
    safe = np.int64(state[COUNTS] >> SAFE & BYTE)
    slot = _last_slot(state)
    found = 0
    changed = changed_before = ZERO
    for plies in range(1, safe + 1):
        move = _move(state, slot)
        changed, changed_before = changed_before ^ set_of(move & 63) ^ set_of(move >> 6 & 63), changed
        if plies & 1 == 0 and changed | changed_before == ZERO and _is_same(state, plies):
            found += 1
            if found == THIRD_TIME:
                break
        slot = slot - 1 if slot else REMEMBERED - 1
    return found


@njit(cache=True, nogil=True)
def _is_same(state, plies):
    """Return whether the kinds of pieces are where they were some plies ago, none of which can have captured."""
    kinds = state[STRAIGHT], state[DIAGONAL], state[SLOW]
    slot = _last_slot(state)
    turn = 56  # of squares, for a move of the other player
    for _ in range(plies):
        move = _move(state, slot)
        start, end = move & 63 ^ turn, move >> 6 & 63 ^ turn
        kinds = _put(_put(kinds, start, kind_on(*kinds, end)), end, 0)
        turn ^= 56
        slot = slot - 1 if slot else REMEMBERED - 1
    return kinds[0] == state[STRAIGHT] and kinds[1] == state[DIAGONAL] and kinds[2] == state[SLOW]


@njit(cache=True, nogil=True)
def _undone(mover, waiting, straight, diagonal, slow, move, turn):
    """Return these sets before a move of the player whose pieces are `mover`. turn: 0 if the sets are as this player
    sees them, 56 if they are as the other one does."""
    start, end, code = move & 63 ^ turn, move >> 6 & 63 ^ turn, move >> 12
    kinds = straight, diagonal, slow
    if code == CASTLES:
        king, rook = _after_castling(start & 56, end > start)
        mover = mover & ~(set_of(king) | set_of(rook)) | set_of(start) | set_of(end)
        kinds = _put(_put(_put(_put(kinds, king, 0), rook, 0), start, KING), end, ROOK)
    else:
        kind = PAWN if code & PROMOTED else kind_on(straight, diagonal, slow, end)
        mover ^= set_of(start) | set_of(end)
        caught, at = code & 7, end
        if caught == EN_PASSANT:
            caught, at = PAWN, end ^ 8  # the row behind: rows 2 and 3 are a pair, and rows 4 and 5
        kinds = _put(_put(_put(kinds, start, kind), end, 0), at, caught)
        if caught:
            waiting |= set_of(at)
    return mover, waiting, kinds[0], kinds[1], kinds[2]


@njit(cache=True, nogil=True)
def _earlier(own, other, straight, diagonal, slow, state, plies, slot):
    """Return the sets of a position, as the player to move in `state` sees them, a ply earlier: that many plies, from
    1 on, before `state`. slot: of the move between them."""
    move = _move(state, slot)
    if plies & 1:
        other, own, straight, diagonal, slow = _undone(other, own, straight, diagonal, slow, move, 56)
    else:
        own, other, straight, diagonal, slow = _undone(own, other, straight, diagonal, slow, move, 0)
    return own, other, straight, diagonal, slow


@njit(cache=True, nogil=True)
def _fill(plane, squares):
    while squares:
        square = np.uint64(first(squares))
        plane[square >> np.uint64(3), square & np.uint64(7)] = 1
        squares &= squares - ONE


@njit(cache=True, nogil=True)
def _level(state):
    """Return how many squares of their plane the plies without a capture or pawn move fill."""
    return min(np.int64(state[COUNTS] & BYTE) * 64 // FIFTY_MOVES, 64)


@njit(cache=True, nogil=True)
def castling_rooks(flags: int) -> tuple[int, int]:
    """Return the rooks with which the player to move, and the other one, may still castle."""
    own = other = ZERO
    for side in range(2):
        mine, yours = flags >> np.uint64(8 + 4 * side) & NIBBLE, flags >> np.uint64(16 + 4 * side) & NIBBLE
        own |= set_of(np.int64(mine) + 55) if mine else ZERO
        other |= set_of(np.int64(yours) - 1) if yours else ZERO
    return own, other


@njit(cache=True, nogil=True)
def fill_planes(state: np.ndarray, planes: np.ndarray, history: int) -> None:
    """Fill in the planes, uint8 [C, 8, 8], which are 0 before; see `chess.Rules.describe_planes`."""
    flags = state[FLAGS]
    own, other, straight, diagonal, slow = state[OWN], state[OTHER], state[STRAIGHT], state[DIAGONAL], state[SLOW]
    known = min(history, np.int64(state[COUNTS] >> KNOWN & BYTE))
    slot = _last_slot(state)
    again = flags >> REPEATED & _TWO_BITS != ZERO
    for plies in range(known + 1):
        first_plane = PLANES_EACH * plies
        if plies:
            own, other, straight, diagonal, slow = _earlier(own, other, straight, diagonal, slow, state, plies, slot)
            slot = slot - 1 if slot else REMEMBERED - 1
            again = flags >> (EARLIER + np.uint64(plies - 1)) & ONE != ZERO
        for k in range(6):
            kind = np.uint64(ROWS_OF_PLANES[k])
            pieces = straight if kind & ONE else ~straight
            pieces &= diagonal if kind & np.uint64(2) else ~diagonal
            pieces &= slow if kind & np.uint64(4) else ~slow
            _fill(planes[first_plane + k], pieces & own)
            _fill(planes[first_plane + 6 + k], pieces & other)
        if again:
            _fill(planes[first_plane + 12], ~ZERO)
    beside = PLANES_EACH * (history + 1)
    mine, yours = castling_rooks(flags)
    _fill(planes[beside], mine)
    _fill(planes[beside + 1], yours)
    _fill(planes[beside + 2], target_of(flags))
    level = np.uint64(_level(state))
    _fill(planes[beside + 3], ~ZERO >> (np.uint64(64) - level) if level else ZERO)


@njit(cache=True, nogil=True)
def key_of(state: np.ndarray, history: int) -> int:
    """Return a hash of what `fill_planes` shows."""
    flags = state[FLAGS]
    own, other, straight, diagonal, slow = state[OWN], state[OTHER], state[STRAIGHT], state[DIAGONAL], state[SLOW]
    known = min(history, np.int64(state[COUNTS] >> KNOWN & BYTE))
    slot = _last_slot(state)
    again = np.uint64(flags >> REPEATED & _TWO_BITS != ZERO)
    earlier = flags >> EARLIER & (BYTE >> np.uint64(HISTORY_MAX - known))
    shown = flags >> RIGHTS & np.uint64(0xFFFFF) | again << np.uint64(20) | earlier << np.uint64(21)
    h = FNV_OFFSET ^ shown ^ np.uint64(_level(state)) << NUMBER ^ np.uint64(known) << np.uint64(56)
    for plies in range(known + 1):
        if plies:
            own, other, straight, diagonal, slow = _earlier(own, other, straight, diagonal, slow, state, plies, slot)
            slot = slot - 1 if slot else REMEMBERED - 1
        for word in (own, other, straight, diagonal, slow):
            h = (h ^ word) * FNV_PRIME
            h ^= h >> np.uint64(29)
    return h


@njit(cache=True, nogil=True)
def is_bare(state: np.ndarray) -> bool:
    """Return whether no play can lead to a mate: bare kings, with one knight or bishops on squares of one colour."""
    straight, diagonal, slow = state[STRAIGHT], state[DIAGONAL], state[SLOW]
    if straight & ~slow | slow & ~straight & ~diagonal:
        return False
    bishops = diagonal & ~slow & ~straight
    if straight & slow:
        return num_in(state[OWN] | state[OTHER]) == 3
    return bishops & _DARK == ZERO or bishops & ~_DARK == ZERO


@njit(cache=True, nogil=True)
def is_drawn(state: np.ndarray) -> bool:
    """Return whether a position in which there are moves is a draw: by repetition, by 50 moves, or bare."""
    is_late = np.int64(state[COUNTS] & BYTE) >= FIFTY_MOVES
    return is_late or np.int64(state[FLAGS] >> REPEATED & _TWO_BITS) >= THIRD_TIME or is_bare(state)


@njit(cache=True, nogil=True)
def worth(state: np.ndarray) -> int:
    """Return by how much the pieces of the player to move count more: pawns 1, knights and bishops 3, rooks 5, queens 9."""
    lead = 0
    for side in range(2):
        pieces = state[OWN + side]
        while pieces:
            kind = kind_on(state[STRAIGHT], state[DIAGONAL], state[SLOW], first(pieces))
            lead += _WORTH[kind] if side == 0 else -_WORTH[kind]
            pieces &= pieces - ONE
    return lead


@njit(cache=True, nogil=True)
def set_up(state: np.ndarray, kinds: np.ndarray) -> None:
    """Set up a start position of Chess960. kinds: of the pieces in each column."""
    found = ZERO, ZERO, ZERO
    rights = ZERO
    for column in range(8):
        found = _put(_put(found, 56 + column, kinds[column]), column, kinds[column])
        found = _put(_put(found, 48 + column, PAWN), 8 + column, PAWN)
        if kinds[column] == ROOK:  # the first one is of the queen's side
            rights = np.uint64(column + 1) | rights << np.uint64(4)
    state[OWN], state[OTHER] = BYTE << np.uint64(56) | BYTE << np.uint64(48), SHORT
    state[STRAIGHT], state[DIAGONAL], state[SLOW] = found
    state[FLAGS] = (rights | rights << RIGHTS) << RIGHTS
    state[COUNTS] = ONE << NUMBER | ONE << PLIES
