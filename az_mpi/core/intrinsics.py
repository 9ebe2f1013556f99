"""What Numba lacks: calls by address, prefetching, small arrays on the stack, and a fast exponential."""

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.core.types.misc import unliteral
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

FAILED = -(2**40)  # what a function of a game, called by its address, returns if its own code raised an exception
SHARED_BYTES = 2**13  # of the arguments of `shared_call`
STACK_FLOATS = 2**15  # of `floats_on_stack`: one for each action that a game may have

# Numba counts references to arrays in atomic operations, for each array that a function is given: here more time than
# all the rest of a search. These compile functions that count none, so they cannot make arrays.
UNCOUNTED = {"nogil": True, "_nrt": False}
_INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _compiled_once(**options):
    """Return a decorator like Numba's njit(**options), for functions that compiled code calls. Numba would compile such
    a function once more for each constant that it is called with."""

    def decorate(function):
        dispatcher = njit(cache=True, **UNCOUNTED, **options)(function)
        find = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kws: find([unliteral(kind) for kind in args], kws)
        return dispatcher

    return decorate


# Python may call `uncounted` functions; only compiled code calls `inner` ones, which take half as long to compile, and
# `inlined` ones, which are not called there: a call would pass each part of each array. An `inner` function that an
# `inlined` one calls first becomes a part of its callers too, and so do its arrays on the stack, of which a thread may
# have 2 MiB; an `apart` function does not.
uncounted = _compiled_once
inner = functools.partial(_compiled_once, **_INNER)
apart = functools.partial(_compiled_once, forceinline=False, **_INNER)
inlined = functools.partial(_compiled_once, forceinline=True, **_INNER)
_POWERS = (2.0 ** np.arange(-127, 1)).astype(np.float32)
_LOG2_E = np.float32(1.44269504)
_LN_2, _LN_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)  # in two parts: i times the first is exact


@intrinsic
def call1(typingctx: Any, address: Any, a: Any) -> Any:
    """Call the function at an address with a number of 64 bits, and return the one that it returns."""
    return types.int64(types.int64, types.int64), _call


@intrinsic
def call2(typingctx: Any, address: Any, a: Any, b: Any) -> Any:
    """Call the function at an address with two numbers of 64 bits, and return the one that it returns."""
    return types.int64(types.int64, types.int64, types.int64), _call


def _call(context, builder, signature, given):
    word = ir.IntType(64)
    function = ir.FunctionType(word, [word] * (len(given) - 1)).as_pointer()
    return builder.call(builder.inttoptr(given[0], function), given[1:])


@intrinsic
def shared_call(typingctx: Any, at: Any, function: Any, given: Any) -> Any:
    """Write the arguments `given`, a tuple, to the address `at`, of SHARED_BYTES, and return the address of a function
    for `call2`: with `at` and a number t it calls function(*given, t), and returns 0, or FAILED if that raised an
    exception. Several threads may call it at the same time. Nothing keeps the arrays of `given` alive.

    function: `inner`, without a result. Numba's own loops with threads would compile it once more, and take longer to
    compile the larger it is."""
    signature = function.get_call_type(typingctx, (*given.types, types.int64), {})

    def codegen(context, builder, _, values):
        kind = context.get_value_type(given)
        if context.get_abi_sizeof(kind) > SHARED_BYTES:
            raise ValueError(f"{function} takes more than {SHARED_BYTES} bytes")
        builder.store(values[2], builder.inttoptr(values[0], kind.as_pointer()))
        word = ir.IntType(64)
        entry = ir.Function(builder.module, ir.FunctionType(word, [word, word]), f"{builder.function.name}.shared")
        entry.linkage = "internal"
        inside = ir.IRBuilder(entry.append_basic_block())
        loaded = inside.load(inside.inttoptr(entry.args[0], kind.as_pointer()))
        compiled = function.dispatcher.overloads[signature.args]
        context.add_linking_libs([compiled.library])
        parts = [
            context.cast(inside, inside.extract_value(loaded, i), one, to)
            for i, (one, to) in enumerate(zip(given.types, signature.args))
        ]
        status, _ = context.call_internal_no_propagate(inside, compiled.fndesc, signature, [*parts, entry.args[1]])
        inside.ret(inside.select(status.is_error, word(FAILED), word(0)))
        return builder.ptrtoint(entry, word)

    return types.int64(at, function, given), codegen


@njit(cache=True, nogil=True, parallel=True)
def in_threads(entry: int, at: int, num: int) -> int:
    """Call a function of `shared_call` with the numbers 0, ..., num - 1, in threads; return how many calls failed."""
    failed = 0
    for t in prange(num):
        failed += call2(entry, at, np.int64(t)) != 0
    return failed


def finish_shared(found: int, shared: np.ndarray, num: int) -> None:
    """Do what a compiled function has prepared in `shared`, uint8 [SHARED_BYTES]. found: what it returned: the function
    of `shared_call` for `num` threads, or with num 1 what that returned. Raises RuntimeError if a call failed."""
    if num > 1:
        found = in_threads(found, shared.ctypes.data, num)
    if found:
        raise RuntimeError("compiled code has failed")


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask the processor to bring the cache line at an address, which need not be valid, near; wait for nothing."""

    def codegen(context, builder, signature, given):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(given[0], byte), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def floats_on_stack(typingctx: Any) -> Any:
    """Return an array of STACK_FLOATS numbers, float32, that lives as long as the call of the function that asks. An
    array that is made by NumPy would be allocated and freed in each call."""
    kind = types.Array(types.float32, 1, "C")

    def codegen(context, builder, signature, given):
        with builder.goto_entry_block():  # not by Numba's `alloca_once`, which writes zeros to all of it
            room = builder.alloca(ir.ArrayType(ir.FloatType(), STACK_FLOATS))
        word = context.get_value_type(types.intp)
        array = make_array(kind)(context, builder)
        populate_array(
            array,
            data=builder.bitcast(room, ir.FloatType().as_pointer()),
            shape=[word(STACK_FLOATS)],
            strides=[word(4)],
            itemsize=word(4),
            meminfo=None,
        )
        return array._getvalue()

    return kind(), codegen


@njit(cache=True, nogil=True, inline="always")
def exp32(x: np.float32) -> np.float32:
    """Return e^x for x <= 0 in float32, with a relative error below 3e-7; 2^-127 or less counts as that, or 0.

    x = i log 2 + f: a table of the powers of two, and the Taylor polynomial of degree 6 for |f| <= log(2) / 2."""
    x = max(np.float32(x), np.float32(-87.0))
    i = np.int32(x * _LOG2_E - np.float32(0.5))
    f = x - np.float32(i) * _LN_2 - np.float32(i) * _LN_2_REST
    p = np.float32(1 / 720)
    p = p * f + np.float32(1 / 120)
    p = p * f + np.float32(1 / 24)
    p = p * f + np.float32(1 / 6)
    p = p * f + np.float32(0.5)
    p = p * f + np.float32(1)
    p = p * f + np.float32(1)
    return p * _POWERS[(i + np.int32(127)) & np.int32(127)]  # NaN reads inside of the table, too
