"""The rules of one game as functions that compiled code calls by their addresses.

Each takes the address of a state, which is aligned, and that of what it writes, or an action, as numbers of 64 bits.
It returns a number of 64 bits: `intrinsics.FAILED` if the game's own code raised an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import typeof
from numba.core import cgutils, errors, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from az_mpi.core.intrinsics import FAILED

if TYPE_CHECKING:
    from az_mpi.games.base import Game

WORDS_FROM = 64  # actions, from which on they are counted eight at once
_WORD = ir.IntType(64)


class Entries(NamedTuple):
    """The addresses of a game's functions. Compiled code takes this tuple as it is."""

    apply: int  # (state, action): play an action in a state; return 0
    legal_actions: int  # (state, bool [A]): write which actions are legal; return how many
    result: int  # (state, float32 [1], or [P] with three players or more): write values; return whether the game ended
    current_player: int  # (state): return the player to move, or CHANCE
    observe: int  # (state, planes [C, H, W]): write the planes; return 0
    canonical: int  # (state, uint64 [1]): write the canonical key; return the symmetry
    chances: int  # (state, float32 [O]): write the probabilities of the outcomes; return 0. 0: the game has no chance


def written(game: Game) -> dict[str, str]:
    """Return the method of one position that each entry of a game calls: {entry: method}."""
    names = {name: name for name in Entries._fields}
    names["result"] = "result" if game.num_players <= 2 else "results"
    names["chances"] = "outcome_chances"
    return names if game.num_outcomes else {entry: name for entry, name in names.items() if entry != "chances"}


# What the functions return as a game writes them, and the type and the place of the number that an entry writes.
_RETURNS = {
    "result": ("(whether the game is over, its value)", 2, types.float32, 1),
    "results": ("whether the game is over", 1, None, None),
    "canonical": ("(a key of 64 bits, the number of a symmetry)", 2, types.uint64, 0),
    "current_player": ("the number of a player, or CHANCE", 1, None, None),
}


@intrinsic
def write_address(typingctx: Any, me: Any, to: Any) -> Any:
    """Compile one rule of a game, and write the address of its entry to an address. me: a `Self` of
    `compiled_rules`."""
    try:
        rule = _signature(typingctx, me)
    except errors.NumbaError as error:
        me.me.error = error
        raise

    def codegen(context, builder, signature, given):
        entry = _entry(context, builder.module, me.me, rule)
        builder.store(builder.ptrtoint(entry, _WORD), builder.inttoptr(given[1], _WORD.as_pointer()))
        return context.get_dummy_value()

    return types.none(me, types.intp), codegen


def _signature(typingctx, me):
    """Return the signature of a rule as Numba has compiled it."""
    rule = me.me.rule
    kinds = [types.Array(from_dtype(dtype), len(shape), "C") for shape, dtype in me.me.layout]
    kinds += [types.int64] if rule == "apply" else []
    signature = typeof(me.me.find(rule)).get_call_type(typingctx, (me, *kinds), {})
    told, num = _RETURNS[rule][:2] if rule in _RETURNS else ("nothing", 0)
    parts = _parts(signature.return_type)
    if len(parts) != num or not all(isinstance(part, types.Number | types.Boolean) for part in parts):
        raise errors.TypingError(f"{rule} returns {signature.return_type}; it must return {told}")
    return signature


def _parts(kind):
    return () if kind == types.none else tuple(kind) if isinstance(kind, types.BaseTuple) else (kind,)


def _entry(context, module, me, signature):
    """Return the LLVM function of one rule."""
    rule = me.rule
    num_given = 1 if rule == "current_player" else 2
    function = ir.Function(module, ir.FunctionType(_WORD, [_WORD] * num_given), f"{rule}_at")
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    given = [
        _array(context, builder, at, kind, shape)
        for at, kind, (shape, _) in zip(function.args, signature.args[1:], me.layout)
    ]
    for _, at, size in given[1:]:
        cgutils.memset(builder, at, _WORD(size), 0)
    compiled = me.find(rule).overloads[signature.args]
    context.add_linking_libs([compiled.library])
    values = [context.get_dummy_value(), *(array for array, _, _ in given), *function.args[len(given) :]]
    status, returned = context.call_internal_no_propagate(
        builder, compiled.fndesc, signature, values[: len(signature.args)]
    )
    with builder.if_then(status.is_error, likely=False):
        builder.ret(_WORD(FAILED))
    if rule == "legal_actions":
        builder.ret(_num_true(builder, *given[1][1:]))
    elif rule in _RETURNS:
        builder.ret(_answer(context, builder, rule, returned, signature.return_type, function.args[-1]))
    else:
        builder.ret(_WORD(0))
    return function


def _array(context, builder, address, kind, shape):
    """Return (an array at an address, a pointer to it, its size in bytes)."""
    bytes_each = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = bytes_each * np.cumprod([1, *shape[:0:-1]])[::-1]
    data = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
    array = make_array(kind)(context, builder)
    places = ([context.get_constant(types.intp, int(number)) for number in numbers] for numbers in (shape, strides))
    populate_array(array, data, *places, context.get_constant(types.intp, bytes_each), None)
    return array._getvalue(), data, bytes_each * int(np.prod(shape))


def _num_true(builder, booleans, size):
    """Return how many of `size` booleans, of a byte each, are true. Eight at once, by the bits of a word: LLVM makes
    that vectors, which the sum of many bytes is not."""
    total = cgutils.alloca_once_value(builder, _WORD(0))
    in_words = size // 8 if size >= WORDS_FROM else 0
    words = builder.bitcast(booleans, _WORD.as_pointer())
    with cgutils.for_range(builder, _WORD(in_words)) as loop:
        word = builder.load(builder.gep(words, [loop.index]), align=1)
        builder.store(builder.add(builder.load(total), builder.ctpop(word)), total)
    rest = builder.gep(booleans, [_WORD(8 * in_words)])
    with cgutils.for_range(builder, _WORD(size - 8 * in_words)) as loop:
        one = builder.zext(builder.load(builder.gep(rest, [loop.index])), _WORD)
        builder.store(builder.add(builder.load(total), one), total)
    return builder.load(total)


def _answer(context, builder, rule, returned, kind, to):
    """Write what an entry writes, and return what it returns."""
    _, num, stored, which = _RETURNS[rule]
    if num == 1:
        return context.cast(builder, returned, kind, types.int64)
    values = cgutils.unpack_tuple(builder, returned, num)
    kinds = _parts(kind)
    value = context.cast(builder, values[which], kinds[which], stored)
    builder.store(value, builder.inttoptr(to, value.type.as_pointer()))
    return context.cast(builder, values[1 - which], kinds[1 - which], types.int64)
