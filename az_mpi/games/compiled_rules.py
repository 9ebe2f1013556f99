"""Compiles the rules of a game that are written for one position, for this game alone: its attributes are constants.

Compiled code calls the functions of a game by their addresses, so that the loops over batches and the search are
compiled once for all games.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import sys
import types as python_types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, typeof
from numba.core import errors, types
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model, typeof_impl

from az_mpi.core.problems import OwnCodeError

if TYPE_CHECKING:
    from az_mpi.games.base import Game

RULES = ("apply", "legal_actions", "result", "current_player", "observe", "canonical")
TEMPLATE = Path(__file__).with_name("entry_points.py")
NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


_NUMBERS = itertools.count()  # of types: an id could be that of an object that is gone


class Entries(NamedTuple):
    """The addresses of a game's functions, see `entry_points`. Compiled code takes this tuple as it is."""

    apply: int
    legal_actions: int
    result: int
    current_player: int
    observe: int
    canonical: int


class Self:
    """Stands for a game, as `self`, in the compiled code of its functions: a constant, whose attributes are too.

    make: the `njit` of the functions."""

    def __init__(self, game: Game, make: Any):
        self._game, self._make, self._bound = game, make, {}
        self.type = SelfType(self)

    def find(self, name: str) -> Any:
        """Return an attribute of the game for compiled code: a number, an array, a tuple of numbers, or one of its
        methods as a compiled function without its first parameter. None: compiled code cannot use it."""
        if name in self._bound:
            return self._bound[name]
        found = method(type(self._game), name)
        if found is not None:
            self._bound[name] = self._compiled(found)
            return self._bound[name]
        return constant(getattr(self._game, name, None))

    def _compiled(self, function):
        names = list(inspect.signature(function).parameters)[1:]
        scope = {"function": self._make(function), "me": self}
        exec(f"def bound({', '.join(names)}):\n    return function(me{''.join(', ' + name for name in names)})", scope)
        return self._make(scope["bound"])


class SelfType(types.Opaque):
    """Numba's type of a `Self`: each has one of its own, so that functions are compiled for one game alone."""

    def __init__(self, me: Self):
        self.me = me
        super().__init__(f"rules_{next(_NUMBERS)}")


register_model(SelfType)(models.OpaqueModel)


@typeof_impl.register(Self)
def _type_of(value, context):
    return value.type


@infer_getattr
class _Attributes(AttributeTemplate):
    key = SelfType

    def generic_resolve(self, typ, name):
        found = typ.me.find(name)
        return None if found is None else typeof(found)


@lower_getattr_generic(SelfType)
def _attribute(context, builder, typ, value, name):
    found = typ.me.find(name)
    if isinstance(found, Dispatcher):
        return context.get_dummy_value()
    return context.get_constant_generic(builder, typeof(found), found)


def method(kind: type, name: str) -> Any:
    """Return the function of a class with this name, None if there is none: what Python finds is no plain function."""
    found = inspect.getattr_static(kind, name, None)
    found = found.py_func if isinstance(found, Dispatcher) else found
    return found if isinstance(found, python_types.FunctionType) else None


def constant(value: Any) -> Any:
    """Return a value as a constant of compiled code; None if it cannot be one."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.ascontiguousarray(value)
    if isinstance(value, NUMBERS):
        return value
    return value if isinstance(value, tuple) and value and all(isinstance(one, NUMBERS) for one in value) else None


def compiled(game: Game) -> Entries:
    """Compile the rules of a game, or take them from the cache. Raises OwnCodeError if Numba cannot compile them."""
    kind = type(game)
    own = not kind.__module__.startswith("az_mpi.games.")
    shapes = (
        ((game.state_size,), np.dtype(game.state_dtype)),
        (tuple(game.planes_shape), np.dtype(game.planes_dtype)),
        (game.num_actions,),
    )
    seen: dict = {}
    content = repr((own, shapes, [_fingerprint(game, method(kind, name), seen) for name in RULES]))
    name = f"az_mpi.games.rules_{hashlib.sha256(content.encode()).hexdigest()[:20]}"
    module = sys.modules.get(name)
    if module is None:
        # Of a user's own game: code that is wrong could write outside of its arrays without the check.
        me = Self(game, njit(boundscheck=own, nogil=True))
        module = python_types.ModuleType(name)
        module.__file__ = str(TEMPLATE)
        vars(module).update(
            FUNCTIONS=[me.find(rule) for rule in RULES], STATE=shapes[0], PLANES=shapes[1], ACTIONS=shapes[2]
        )
        sys.modules[name] = module
        try:
            exec(compile(TEMPLATE.read_bytes(), TEMPLATE, "exec"), vars(module))
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, errors.NumbaError):
                raise OwnCodeError(_cannot_compile(game, error)) from error
            raise
    return Entries(*(getattr(module, f"{rule}_at").address for rule in RULES))


def _cannot_compile(game, error):
    told = [line.rstrip() for line in str(error).splitlines() if line.strip() and not line.startswith("Failed in")]
    return "\n  ".join(
        [
            f"the game {game.name}: Numba cannot compile its rules",
            *told[:12],
            "they may use numbers, arrays and methods of the game, and functions with Numba's @njit",
            "with `compiled = False` in its class they run as Python, some hundred times slower",
        ]
    )


def as_python(function: Any, done: dict | None = None) -> Any:
    """Return a function with none of the functions that it calls compiled, so that a debugger can follow it."""
    done = {} if done is None else done
    function = function.py_func if isinstance(function, Dispatcher) else function
    if function not in done:
        scope = dict(function.__globals__)
        done[function] = python_types.FunctionType(
            function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
        )
        names = [name for name in _names(function.__code__) if isinstance(scope.get(name), Dispatcher)]
        scope |= {name: as_python(scope[name], done) for name in names}
    return done[function]


def _fingerprint(game: Any, value: Any, seen: dict) -> str:
    """Return a text that differs where compiled code that uses `value` may differ: a function of a game, with all that
    it calls and the constants that it uses, or a constant."""
    value = value.py_func if isinstance(value, Dispatcher) else value
    if isinstance(value, python_types.FunctionType):
        if value not in seen:
            seen[value] = value.__qualname__  # for a function that calls itself
            used = {}
            for name in _names(value.__code__):  # the code does not say which of these a name is; it may be several
                meant = value.__globals__.get(name), method(type(game), name), constant(getattr(game, name, None))
                used[name] = [_fingerprint(game, one, seen) for one in meant]
            cells = [_fingerprint(game, cell.cell_contents, seen) for cell in value.__closure__ or ()]
            seen[value] = _hash(value.__qualname__, _of_code(value.__code__), used, cells)
        return seen[value]
    if isinstance(value, np.ndarray):
        return _hash(value.shape, value.dtype.str, np.ascontiguousarray(value).tobytes())
    if isinstance(value, tuple):
        return repr([_fingerprint(game, item, seen) for item in value])
    return repr(value) if isinstance(value, (*NUMBERS, str, type(None))) else type(value).__name__


def _names(code):
    inner = [one for one in code.co_consts if isinstance(one, python_types.CodeType)]
    return sorted({*code.co_names, *(name for one in inner for name in _names(one))})


def _of_code(code):
    constants = [_of_code(one) if isinstance(one, python_types.CodeType) else repr(one) for one in code.co_consts]
    return _hash(code.co_code, constants, code.co_names, code.co_varnames)


def _hash(*what):
    return hashlib.sha256(repr(what).encode()).hexdigest()


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
