"""Compiles the rules of a game that are written for one position, for this game alone: its attributes are constants.

Compiled code calls the functions of a game by their addresses, so that the loops over batches and the search are
compiled once for all games.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import sys
import types as python_types
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import cfunc, jit, njit, typeof
from numba.core import errors, types
from numba.core.dispatcher import Dispatcher
from numba.core.types.misc import unliteral
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, lower_getattr_generic, models, register_model, typeof_impl

from az_mpi.core.problems import OwnCodeError
from az_mpi.games.entry_points import Entries, write_address, written

if TYPE_CHECKING:
    from az_mpi.games.base import Game

NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_PLAIN = (*NUMBERS, complex, str, bytes, Enum, np.generic, np.dtype, types.Type, type(None))  # a `repr` tells all
_NUMBERS = itertools.count()  # of types: an id could be that of an object that is gone


class Self:
    """Stands for a game, as `self`, in the compiled code of one of its rules: a constant, whose attributes are too.

    name: of the module of the rule. rule: the name of its method. layout: (shape, dtype) of the arrays that it takes.
    make: the `njit` of the functions."""

    def __init__(self, game: Game, name: str, rule: str, layout: tuple, make: Any):
        self._game, self.rule, self.layout, self._make, self._methods = game, rule, layout, make, {}
        self.error: Exception | None = None  # of the compilation of a function: Numba's own one tells less
        self.type = SelfType(self, name)

    def find(self, name: str) -> Any:
        """Return an attribute of the game for compiled code: a number, an array, a tuple of numbers, or one of its
        methods, compiled. None: compiled code cannot use it."""
        if name in self._methods:
            return self._methods[name]
        found = method(type(self._game), name)
        if found is not None:
            self._methods[name] = self._make(found)
            return self._methods[name]
        return constant(getattr(self._game, name, None))


class SelfType(types.Opaque):
    """Numba's type of a `Self`: each has one of its own, so that functions are compiled for one game alone. Its name is
    in those of the functions: two that one process loads from the cache must not have the same name."""

    def __init__(self, me: Self, name: str):
        self.me = me
        super().__init__(f"{name}_{next(_NUMBERS)}")


class MethodType(types.Callable, types.Opaque):
    """Numba's type of a method of a `Self`, whose value is that `Self`."""

    def __init__(self, owner: SelfType, dispatcher: Dispatcher):
        self.owner, self.dispatcher = owner, dispatcher
        super().__init__(f"{owner.name}.{dispatcher.py_func.__name__}")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        args = map(unliteral, args)  # otherwise a method would be compiled for each number that it is given
        found = typeof(self.dispatcher).get_call_type(context, (self.owner, *args), kws)
        parameters = list(found.pysig.parameters.values())[1:]
        return found.replace(args=found.args[1:], recvr=self.owner, pysig=found.pysig.replace(parameters=parameters))

    def get_call_signatures(self) -> tuple[Any, bool]:
        return self.dispatcher.nopython_signatures, True

    def get_impl_key(self, sig: Any) -> Any:
        return self.dispatcher.get_overload(sig.args)


register_model(SelfType)(models.OpaqueModel)
register_model(MethodType)(models.OpaqueModel)


@typeof_impl.register(Self)
def _type_of(value, context):
    return value.type


@infer_getattr
class _Attributes(AttributeTemplate):
    key = SelfType

    def generic_resolve(self, typ, name):
        found = typ.me.find(name)
        return MethodType(typ, found) if isinstance(found, Dispatcher) else None if found is None else typeof(found)


@lower_getattr_generic(SelfType)
def _attribute(context, builder, typ, value, name):
    found = typ.me.find(name)
    return value if isinstance(found, Dispatcher) else context.get_constant_generic(builder, typeof(found), found)


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
    """Compile the rules of a game, or take them from the cache. Raises OwnCodeError if Numba cannot compile them.

    Each rule is compiled by itself, and known by what it depends on. Games that differ in a number that one rule alone
    uses, such as komi, share the others."""
    own = not type(game).__module__.startswith("az_mpi.games.")
    # Of a user's own game: code that is wrong could write outside of its arrays without the check.
    options = {"boundscheck": own, "error_model": "python" if own else "numpy", "nogil": True}
    make = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)
    layouts = _layouts(game)
    addresses = np.zeros(len(Entries._fields), np.int64)
    for entry, rule in written(game).items():
        content = repr((own, rule, layouts[rule], _fingerprint(game, method(type(game), rule), {})))
        name = f"az_mpi.games.rules_{hashlib.sha256(content.encode()).hexdigest()[:20]}"
        if name not in sys.modules:
            remade = functools.partial(_remade, make=functools.partial(_checked, name), done={})
            me = Self(game, name, rule, layouts[rule], lambda one, remade=remade: make(remade(one) if own else one))
            _compile(game, me, name)
        sys.modules[name].write(addresses[Entries._fields.index(entry) :].ctypes.data)
    return Entries(*addresses.tolist())


def _compile(game, me, name):
    """Compile one rule in a module of its own, so that Numba's cache tells rules apart."""
    module = sys.modules[name] = python_types.ModuleType(name)
    vars(module).update(ME=me, write_address=write_address)
    try:
        entry = python_types.FunctionType(_entry.__code__, vars(module))
        vars(module)["write"] = cfunc("void(intp)", cache=True)(entry).ctypes
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, errors.NumbaError):
            raise OwnCodeError(_cannot_compile(game, me.error or error)) from error
        raise


def _entry(to):
    write_address(ME, to)  # noqa: F821 - a constant of the module of each rule


def _layouts(game):
    state = (game.state_size,), np.dtype(game.state_dtype)
    return {name: (state,) for name in written(game).values()} | {
        "legal_actions": (state, ((game.num_actions,), np.dtype(np.bool_))),
        "observe": (state, (observed(game), np.dtype(game.planes_dtype))),
        "results": (state, ((game.num_players,), np.dtype(np.float32))),
        "outcome_chances": (state, ((game.num_outcomes,), np.dtype(np.float32))),
    }


def observed(game: Game) -> tuple[int, ...]:
    """Return the shape of the planes that `observe` sets. A class with planes of its own for batches may ask a class
    above it for fewer planes than it has itself."""
    kind = next(kind for kind in type(game).__mro__ if "observe" in vars(kind))
    return tuple(vars(kind).get("planes_shape", game.planes_shape))


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


def as_python(function: Any) -> Any:
    """Return a function with none of the functions that it calls compiled, so that a debugger can follow it."""
    return _remade(function, lambda plain, dispatcher: plain, {})


def _checked(name, plain, dispatcher):
    """Return a function compiled as a dispatcher does it, but with each index checked: Numba leaves that to the options
    of each function, not of its caller. name: of the module of the rule. It is in that of the function, so that no two
    rules that one process loads from the cache have functions of one name."""
    plain.__qualname__ = f"{name}.{plain.__qualname__}"
    given = None if dispatcher._can_compile else dispatcher.nopython_signatures
    return jit(given, **dispatcher.targetoptions | {"boundscheck": True})(plain)


def _remade(function: Any, make: Any, done: dict) -> Any:
    """Return a function with make(a plain function, its dispatcher) in place of each compiled one: itself, and those
    that it calls by their names or as attributes of modules. done: {function or module: what is made of it}."""
    if function not in done:
        old = function.py_func if isinstance(function, Dispatcher) else function
        scope, cells = dict(old.__globals__), tuple(python_types.CellType() for _ in old.__closure__ or ())
        new = python_types.FunctionType(old.__code__, scope, old.__name__, old.__defaults__, cells)
        new.__kwdefaults__ = old.__kwdefaults__
        done[function] = new if old is function else make(new, function)
        names = _names(old.__code__)
        scope |= {name: _used(scope[name], names, make, done) for name in names if name in scope}
        for cell, before in zip(cells, old.__closure__ or ()):
            cell.cell_contents = _used(before.cell_contents, names, make, done)
    return done[function]


def _used(value, names, make, done):
    """Return what a function whose code has these names is to use in place of a value. See `_remade`."""
    if isinstance(value, Dispatcher):
        return _remade(value, make, done)
    if not _is_followed(value):
        return value
    if value not in done:
        done[value] = python_types.ModuleType(value.__name__)
        vars(done[value]).update(vars(value))
    for name in names:
        if name in vars(value) and (value, name) not in done:
            done[value, name] = True  # here, since modules may import each other
            setattr(done[value], name, _used(vars(value)[name], names, make, done))
    return done[value]


def _fingerprint(game: Any, value: Any, seen: dict, names: tuple[str, ...] = ()) -> str:
    """Return a text that differs where compiled code that uses `value` may differ: a function of a game, with all that
    it calls and the constants that it uses, a constant, or a module, of which the code uses `names`."""
    if isinstance(value, Dispatcher):
        options = [(name, _fingerprint(game, one, seen)) for name, one in sorted(value.targetoptions.items())]
        return _hash(options, _fingerprint(game, value.py_func, seen))
    if isinstance(value, python_types.FunctionType):
        if value not in seen:
            seen[value] = value.__qualname__  # for a function that calls itself
            used = {}
            names = _names(value.__code__)
            for name in names:  # the code does not say which of these a name is; it may be several
                meant = value.__globals__.get(name), method(type(game), name), constant(getattr(game, name, None))
                used[name] = [_fingerprint(game, one, seen, names) for one in meant]
            cells = [_fingerprint(game, cell.cell_contents, seen, names) for cell in value.__closure__ or ()]
            defaults = _fingerprint(game, value.__defaults__, seen)
            seen[value] = _hash(value.__qualname__, _of_code(value.__code__), used, cells, defaults)
        return seen[value]
    if _is_followed(value):
        if (value, names) not in seen:
            seen[value, names] = value.__name__  # for a module that another one of them imports
            seen[value, names] = _hash([_fingerprint(game, vars(value).get(name), seen, names) for name in names])
        return seen[value, names]
    return _of_constant(game, value, seen)


def _of_constant(game, value, seen):
    if isinstance(value, np.ndarray):
        return _hash(value.shape, value.dtype, np.ascontiguousarray(value).tobytes())
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", ())
        return repr([type(value).__name__, fields, [_fingerprint(game, item, seen) for item in value]])
    if isinstance(value, type):
        inside = getattr(value, "__members__", getattr(value, "_fields", ()))  # of an Enum, of a named tuple
        return repr([value.__qualname__, inside])
    return repr(value) if isinstance(value, _PLAIN) else type(value).__name__


def _is_followed(value):
    """Return whether a value is a module that may be a user's own."""
    return isinstance(value, python_types.ModuleType) and value.__name__.partition(".")[0] not in ("numpy", "numba")


def _names(code):
    inner = [one for one in code.co_consts if isinstance(one, python_types.CodeType)]
    return tuple(sorted({*code.co_names, *(name for one in inner for name in _names(one))}))


def _of_code(code):
    constants = [_of_code(one) if isinstance(one, python_types.CodeType) else repr(one) for one in code.co_consts]
    return _hash(code.co_code, constants, code.co_names, code.co_varnames)


def _hash(*what):
    return hashlib.sha256(repr(what).encode()).hexdigest()
