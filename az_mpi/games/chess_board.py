"""Chess as sets of squares: attacks, pins, checks and legal moves, without playing a move.

A set is 64 bits, bit 8 * row + column, as the player to move sees the board: row 0 is the rank that this player's pawns
promote on, column 0 the file a. The sets of a position are those of `OWN` to `SLOW`: the pieces of the player to move,
those of the other one, and three in which the kind of a piece is written in binary. Directions are numbered clockwise
from 0, which is up, so that those of rooks are even, and direction d + 4 is opposite to d.

Sets move by rotation of the 64 bits; a mask takes away what has left the board. Sliding pieces fill the empty squares
in their direction in three steps (the fill of Kogge and Stone), all pieces of a set at once.
"""

import numpy as np
from numba import njit

# For what only compiled code calls: without the wrappers for Python, it compiles faster.
kernel = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)

OWN, OTHER, STRAIGHT, DIAGONAL, SLOW = range(5)  # words of a state
ROOK, BISHOP, QUEEN, PAWN, KNIGHT, KING = range(1, 7)  # kinds: bit 0 is of STRAIGHT, bit 1 DIAGONAL, bit 2 SLOW
ACTION_KINDS = 73  # of each square: 8 directions by 7 distances, 8 jumps of knights, 9 moves that promote to less
JUMPS, PROMOTIONS = 56, 64  # the first kinds of the jumps, and of the promotions
PROMOTES_TO = np.array([KNIGHT, BISHOP, ROOK])  # kinds PROMOTIONS + 3 * direction + number; directions 7, 0, 1

ZERO, ONE, TWO, FOUR, HALF = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(32)
ALL = np.uint64(2**64 - 1)
TOP, LAST = np.uint64(0xFF), np.uint64(0xFF << 56)  # rows 0 and 7
PUSHED = np.uint64(0xFF << 40)  # row 5: where pawns stand that may move again
_LEFT, _RIGHT = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0xFEFEFEFEFEFEFEFE)  # what a step to the left, right can reach
_UP, _DOWN = ALL >> np.uint64(8), ALL << np.uint64(8)
# Of each direction: by how many bits a step turns a set, and which squares it can reach.
TURN = np.array([56, 57, 1, 9, 8, 7, 63, 55], np.uint64)
REACH = np.array([_UP, _UP & _RIGHT, _RIGHT, _RIGHT & _DOWN, _DOWN, _DOWN & _LEFT, _LEFT, _LEFT & _UP], np.uint64)
_STEPS = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]  # rows and columns
_JUMPS = [(-2, 1), (-1, 2), (1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1)]
_FORWARD = [_STEPS[7], _STEPS[0], _STEPS[1]]
MOVES = [(row * k, column * k) for row, column in _STEPS for k in range(1, 8)] + _JUMPS
MOVES += [step for step in _FORWARD for _ in PROMOTES_TO]
OFFSET = np.array([8 * row + column for row, column in MOVES])  # of each kind of action, in squares


def _rays():
    """Return uint64 [8, 64]: the squares in each direction from each square."""
    rays = np.zeros((8, 64), np.uint64)
    for d, (row, column) in enumerate(_STEPS):
        for square in range(64):
            r, c = square // 8 + row, square % 8 + column
            while 0 <= r < 8 and 0 <= c < 8:
                rays[d, square] |= ONE << np.uint64(8 * r + c)
                r, c = r + row, c + column
    return rays


def _near(steps):
    """Return uint64 [64]: the squares that are one of `steps` away from each square."""
    near = np.zeros(64, np.uint64)
    for square in range(64):
        for row, column in steps:
            r, c = square // 8 + row, square % 8 + column
            if 0 <= r < 8 and 0 <= c < 8:
                near[square] |= ONE << np.uint64(8 * r + c)
    return near


RAYS, NEAR, JUMP = _rays(), _near(_STEPS), _near(_JUMPS)
# Every second bit, every second pair of bits, and so on; the lowest bit of each byte.
_BITS, _PAIRS, _NIBBLES = np.uint64(ALL // 3), np.uint64(ALL // 5), np.uint64(ALL // 17)
_BYTES, _SHORTS = np.uint64(ALL // 257), np.uint64(ALL // 65537)
_EACH_BYTE = np.uint64(ALL // 255)


@kernel
def num_in(squares: int) -> int:
    """Return how many squares are in a set. LLVM knows this sum of bits, and uses the processor's own instruction."""
    squares = squares - ((squares >> ONE) & _BITS)
    squares = (squares & _PAIRS) + ((squares >> TWO) & _PAIRS)
    return np.int64((((squares + (squares >> FOUR)) & _NIBBLES) * _EACH_BYTE) >> np.uint64(56))


@kernel
def first(squares: int) -> int:
    """Return the number of the first square in a set, 64 if it is empty."""
    return num_in((squares & (~squares + ONE)) - ONE)


@kernel
def flipped(squares: int) -> int:
    """Return a set as the other player sees it: with the rows in the opposite order."""
    squares = (squares >> np.uint64(8)) & _BYTES | (squares & _BYTES) << np.uint64(8)
    squares = (squares >> np.uint64(16)) & _SHORTS | (squares & _SHORTS) << np.uint64(16)
    return squares >> HALF | squares << HALF


@kernel
def set_of(square: int) -> int:
    """Return the set of one square."""
    return ONE << np.uint64(square)


@kernel
def _step(squares, d):
    turn = TURN[d]
    return (squares << turn | squares >> (np.uint64(64) - turn)) & REACH[d]


@kernel
def _reached(sliders, empty, d):
    """Return the squares that any of these pieces reaches in a direction, also those where it meets a piece."""
    turn = TURN[d]
    way = empty & REACH[d]
    for _ in range(3):
        back = np.uint64(64) - turn
        sliders |= way & (sliders << turn | sliders >> back)
        way &= way << turn | way >> back
        turn = (turn + turn) & np.uint64(63)
    return _step(sliders, d)


@kernel
def attacked(own: int, other: int, straight: int, diagonal: int, slow: int) -> int:
    """Return the squares that the other player attacks, as if the king of the player to move were not there: where that
    king may not go."""
    empty = ~(own | other) | own & diagonal & slow
    pawns = other & slow & ~straight & ~diagonal
    squares = _step(pawns, 3) | _step(pawns, 5) | NEAR[first(other & diagonal & slow) & 63]
    knights = other & straight & slow
    while knights:
        squares |= JUMP[first(knights)]
        knights &= knights - ONE
    rooks, bishops = other & straight & ~slow, other & diagonal & ~slow
    for d in range(8):
        squares |= _reached(bishops if d & 1 else rooks, empty, d)
    return squares


@kernel
def checks_and_pins(own: int, other: int, straight: int, diagonal: int, slow: int) -> tuple[int, ...]:
    """Return (the pieces that give check, the squares where another piece than the king answers all checks, and the own
    pieces that shield the king in directions 0 and 4, 1 and 5, 2 and 6, 3 and 7)."""
    occupied = own | other
    king = own & diagonal & slow
    k = first(king) & 63
    pawns = other & slow & ~straight & ~diagonal
    checkers = JUMP[k] & other & straight & slow | (_step(king, 1) | _step(king, 7)) & pawns
    answers = checkers
    pin0 = pin1 = pin2 = pin3 = ZERO
    for d in range(8):
        snipers = RAYS[d, k] & other & ~slow & (diagonal if d & 1 else straight)
        while snipers:
            between = RAYS[d, k] & RAYS[d ^ 4, first(snipers)]
            shields = between & occupied
            if shields == ZERO:
                checkers |= snipers & (~snipers + ONE)
                answers |= between | checkers
            elif shields & (shields - ONE) == ZERO and shields & own:
                if d & 3 == 0:
                    pin0 |= shields
                elif d & 3 == 1:
                    pin1 |= shields
                elif d & 3 == 2:
                    pin2 |= shields
                else:
                    pin3 |= shields
            snipers &= snipers - ONE
    if checkers == ZERO:
        answers = ALL
    elif checkers & (checkers - ONE):
        answers = ZERO
    return checkers, answers, pin0, pin1, pin2, pin3


@njit(cache=True, nogil=True)
def en_passant(own: int, other: int, straight: int, diagonal: int, slow: int, target: int) -> int:
    """Return the pawns that may take en passant on `target`, a set of one square. Each capture is tried: it clears two
    squares at once, so that pins do not tell."""
    pawns = (_step(target, 3) | _step(target, 5)) & own & slow & ~straight & ~diagonal
    legal = ZERO
    while pawns:
        pawn = pawns & (~pawns + ONE)
        pawns ^= pawn
        gone = pawn | target << np.uint64(8)
        now = own & ~gone | target
        found = checks_and_pins(now, other & ~gone, straight & ~gone, diagonal & ~gone, slow & ~gone | target)
        if found[0] == ZERO:
            legal |= pawn
    return legal


@kernel
def _castling(own, other, straight, diagonal, slow, rights, danger, pins):
    """Return the rooks with which the player to move may castle now. rights: two numbers of four bits, the column + 1
    of the rook on the king's side and on the queen's side, 0 for none. danger: see `attacked`. pins: in the row."""
    rooks = ZERO
    king = own & diagonal & slow
    k = first(king)
    for side in range(2):
        column = np.int64(rights >> np.uint64(4 * side) & np.uint64(15))
        if column:
            rook = 55 + column
            king_to, rook_to = (62, 61) if side == 0 else (58, 59)
            way = _from_to(k, king_to)
            both = king | set_of(rook)
            free = (own | other) & ~both & (way | _from_to(rook, rook_to)) == ZERO
            if free and way & danger == ZERO and pins & set_of(rook) == ZERO:
                rooks |= set_of(rook)
    return rooks


@kernel
def _from_to(a, b):
    """Return the squares of a row from one to another one, with both."""
    low, high = min(a, b), max(a, b)
    return (ALL << np.uint64(low)) & (ALL >> np.uint64(63 - high))


@kernel
def can_move(
    own: int, other: int, straight: int, diagonal: int, slow: int, rights: int, target: int
) -> tuple[bool, bool]:
    """Return (whether the player to move has a legal move, whether that player is in check). rights, target: see
    `mark_legal`."""
    checkers, answers, pin0, pin1, pin2, pin3 = checks_and_pins(own, other, straight, diagonal, slow)
    pinned = pin0 | pin1 | pin2 | pin3
    empty = ~(own | other)
    pawns = own & slow & ~straight & ~diagonal
    goals = answers & ~own
    pushed = _step(pawns & ~(pinned ^ pin0), 0) & empty
    if target or pushed & answers or _step(pushed & PUSHED, 0) & empty & answers:
        return True, checkers != ZERO
    knights = own & straight & slow & ~pinned
    while knights:
        if JUMP[first(knights)] & goals:
            return True, checkers != ZERO
        knights &= knights - ONE
    for d in range(8):
        pin = pin0 if d & 3 == 0 else pin1 if d & 3 == 1 else pin2 if d & 3 == 2 else pin3
        free = own & ~(pinned ^ pin)
        movers = free & ~slow & (diagonal if d & 1 else straight)
        if _reached(movers, empty, d) & goals or d in (1, 7) and _step(pawns & free, d) & other & answers:
            return True, checkers != ZERO
    danger = attacked(own, other, straight, diagonal, slow)
    can = NEAR[first(own & diagonal & slow) & 63] & ~own & ~danger != ZERO
    can = can or _castling(own, other, straight, diagonal, slow, rights, danger, pin2) != ZERO
    return can, checkers != ZERO


@kernel
def _mark(legal, goals, kind):
    """Set the actions of a kind that lead to each square of a set."""
    offset = OFFSET[kind]
    while goals:
        legal[np.uint64((first(goals) - offset) * ACTION_KINDS + kind)] = True
        goals &= goals - ONE


@kernel
def _mark_pawns(legal, pawns, goals, d):
    """Set the pawns' actions in a direction, 7, 0 or 1, to those of `goals` that they reach."""
    to = _step(pawns, d) & goals
    _mark(legal, to, 7 * d)
    if to & TOP:
        for k in range(3):
            _mark(legal, to & TOP, PROMOTIONS + 3 * ((d + 1) & 7) + k)


@kernel
def mark_legal(
    own: int, other: int, straight: int, diagonal: int, slow: int, rights: int, target: int, legal: np.ndarray
) -> None:
    """Set the legal actions, bool [64 * ACTION_KINDS]. rights: to castle, see `_castling`; target: the square where the
    player to move may take en passant, as a set."""
    checkers, answers, pin0, pin1, pin2, pin3 = checks_and_pins(own, other, straight, diagonal, slow)
    pinned = pin0 | pin1 | pin2 | pin3
    king, pawns = own & diagonal & slow, own & slow & ~straight & ~diagonal
    empty, goals = ~(own | other), answers & ~own
    knights = own & straight & slow & ~pinned
    near = NEAR[first(king) & 63] & ~own
    if near or rights:
        danger = attacked(own, other, straight, diagonal, slow)
        near &= ~danger
        if rights and checkers == ZERO:
            rooks, k = _castling(own, other, straight, diagonal, slow, rights, danger, pin2), first(king)
            while rooks:  # the king's move on to the rook: to the right, direction 2, or to the left
                rook = first(rooks)
                _mark(legal, set_of(rook), 13 + rook - k if rook > k else 41 + k - rook)
                rooks &= rooks - ONE
    for d in range(8):
        pin = pin0 if d & 3 == 0 else pin1 if d & 3 == 1 else pin2 if d & 3 == 2 else pin3
        free = own & ~(pinned ^ pin)
        squares = free & ~slow & (diagonal if d & 1 else straight)
        for k in range(7):
            squares = _step(squares, d) & ~own
            if squares == ZERO:
                break
            _mark(legal, squares & answers, 7 * d + k)
            squares &= empty
        _mark(legal, _step(king, d) & near, 7 * d)
        _mark(legal, _step(_step(knights, d), (d + 1) & 7) & goals, JUMPS + d)
        if d == 0:
            _mark_pawns(legal, pawns & free, empty & answers, 0)
            _mark(legal, _step(_step(pawns & free, 0) & empty & PUSHED, 0) & empty & answers, 1)
        elif d == 1 or d == 7:
            _mark_pawns(legal, pawns & free, other & answers, d)
    if target:
        pawns = en_passant(own, other, straight, diagonal, slow, target)
        _mark(legal, _step(pawns, 7) & target, 49)
        _mark(legal, _step(pawns, 1) & target, 7)
