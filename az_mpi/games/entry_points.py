"""The rules of one game as functions that compiled code calls by their addresses.

`compiled_rules` runs this file once for each game, as a module of its own, in which it has set the names that are only
declared below. They are constants of the compiled code. Each function takes the address of a state, which is aligned,
and of what it writes to. It returns a number of 64 bits, FAILED if the game's own code raised an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import carray, cfunc, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    FUNCTIONS: tuple[Any, ...]  # compiled, in the order of `compiled_rules.RULES`
    STATE: tuple[tuple[int], np.dtype]  # shape and dtype
    PLANES: tuple[tuple[int, int, int], np.dtype]
    ACTIONS: tuple[int]

apply, legal_actions, result, current_player, observe, canonical = FUNCTIONS
STATE_SHAPE, STATE_DTYPE = STATE
PLANES_SHAPE, PLANES_DTYPE = PLANES
FAILED = -1


@intrinsic
def _pointer(typingctx, address):
    def codegen(context, builder, signature, given):
        return builder.inttoptr(given[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.intp), codegen


@cfunc("int64(intp, int64)", cache=True)
def apply_at(state: int, action: int) -> int:
    """Play an action in a state; return 0."""
    try:
        apply(carray(_pointer(state), STATE_SHAPE, STATE_DTYPE), action)
    except Exception:
        return FAILED
    return 0


@cfunc("int64(intp, intp)", cache=True)
def legal_actions_at(state: int, legal: int) -> int:
    """Write which actions are legal, bool [A]; return how many."""
    out = carray(_pointer(legal), ACTIONS, np.bool_)
    num = 0
    try:
        out[:] = False
        legal_actions(carray(_pointer(state), STATE_SHAPE, STATE_DTYPE), out)
        for a in range(len(out)):
            num += out[a]
    except Exception:
        return FAILED
    return num


@cfunc("int64(intp, intp)", cache=True)
def result_at(state: int, value: int) -> int:
    """Write the value of the result, float32 [1]; return whether the game has ended."""
    out = carray(_pointer(value), (1,), np.float32)
    try:
        ended, out[0] = result(carray(_pointer(state), STATE_SHAPE, STATE_DTYPE))
    except Exception:
        return FAILED
    return np.int64(ended)


@cfunc("int64(intp)", cache=True)
def current_player_at(state: int) -> int:
    """Return the player to move."""
    try:
        return np.int64(current_player(carray(_pointer(state), STATE_SHAPE, STATE_DTYPE)))
    except Exception:
        return FAILED


@cfunc("int64(intp, intp)", cache=True)
def observe_at(state: int, planes: int) -> int:
    """Write the planes, [C, H, W]; return 0."""
    out = carray(_pointer(planes), PLANES_SHAPE, PLANES_DTYPE)
    try:
        out[:] = 0
        observe(carray(_pointer(state), STATE_SHAPE, STATE_DTYPE), out)
    except Exception:
        return FAILED
    return 0


@cfunc("int64(intp, intp)", cache=True)
def canonical_at(state: int, key: int) -> int:
    """Write the canonical key, uint64 [1]; return the symmetry."""
    out = carray(_pointer(key), (1,), np.uint64)
    try:
        found = canonical(carray(_pointer(state), STATE_SHAPE, STATE_DTYPE))
        out[0] = found[0]
        return np.int64(found[1])
    except Exception:
        return FAILED
