"""Loads files and modules of the user's own, and makes the errors if they fail or return something wrong."""

import functools
import hashlib
import importlib
import re
import sys
import traceback
import types
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core.earlier_names import give_earlier_name
from az_mpi.core.files import FULL, passes
from az_mpi.core.problems import NotNow, OwnCodeError, Refusal, escape


class Source(NamedTuple):
    """A user's own file or module as it was loaded: its path, its content and the SHA-256 of that, hexadecimal."""

    path: str
    content: bytes
    sha256: str


@functools.cache
def load(place: str) -> tuple[types.ModuleType, Source]:
    """Return (module, `Source`) of a file or an installed module. It is run once in a process, even if the file changes
    later. Raises Refusal; NotNow if its file system fails for a while."""
    try:
        return _load(place)
    except Refusal:
        raise
    except Exception as error:
        why = failure(place, error)
        if isinstance(error, OSError) and error.filename == place:
            why = f"{escape(place)} cannot be read: {error.strerror}"
        # What is full stays full until somebody makes room: reading needs none, so the file itself writes there.
        later = passes(error) and getattr(error, "errno", None) not in FULL
        raise (NotNow if later else Refusal)(f"{why}\n  {_cure(place, error)}") from error


def _load(place):
    try:
        if not place.endswith(".py"):
            module = importlib.import_module(place)
            path = getattr(module, "__file__", None)
            return module, _source(path, Path(path).read_bytes() if path else b"")
        source = _source(place, Path(place).read_bytes())
        # Numba keeps what it compiles by the module's name: another content must have another one.
        name = f"own_{re.sub(r'[^0-9a-zA-Z]', '_', Path(place).stem)}_{source.sha256[:12]}"
        return sys.modules.get(name) or _run(name, place, source.content), source
    except ModuleNotFoundError as error:
        if not give_earlier_name(error.name):
            raise
        return _load(place)


def _run(name, place, content):
    """Return the content of a file as a module of this name. Raises what the file raises."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = place
    try:
        exec(compile(content, place, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _source(path, content):
    return Source(str(path), content, hashlib.sha256(content).hexdigest())


def failure(place: str, error: BaseException) -> str:
    """Return what a user's file raised, and where in it, in one line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    lines += [error.lineno] if isinstance(error, SyntaxError) and error.filename == place else []
    where = f", line {lines[-1]}" if lines else ""
    return f"{escape(place)}{where}: {type(error).__name__}: {error}"


def _cure(place, error):
    if isinstance(error, FileNotFoundError):
        return "every host must see the file under this path; copy it there, or put it on a shared file system"
    if not isinstance(error, ModuleNotFoundError):
        return "fix the file; `python FILE` shows the whole error" if place.endswith(".py") else "fix the module"
    return (
        "a file is loaded by itself: make a package of several files, install it, and name it package.module:Class"
        if place.endswith(".py")
        else "install it on every host, or set PYTHONPATH to its folder"
    )


def fitting(evaluation: Any, shape: tuple[int, ...], num_values: int, who: object) -> Any:
    """Return an evaluation, the arrays (logits, value), for compiled code. Raises OwnCodeError unless logits have this
    shape, [n, A], and there are n values, or n rows of `num_values` if that is not 1; of a user's own code also unless
    it is of numbers. who: the evaluator or engine that made it."""
    logits, value = evaluation
    came = [getattr(part, "shape", type(part).__name__) for part in (logits, value)]
    values = shape[:1] if num_values == 1 else (shape[0], num_values)
    if came != [shape, values]:
        raise OwnCodeError(
            f"{type(who).__name__} returned logits {came[0]}, value {came[1]} for {shape[0]} states\n"
            f"  expected: logits float32 {shape}, value float32 {values}: a row for each state that it was given\n"
            "  examples/own_evaluator.py is an evaluator that can be copied"
        )
    for maker in (who, getattr(who, "engine", who)):
        if not type(maker).__module__.startswith("az_mpi."):
            _check_numbers(logits, value, maker)
    return logits, value


def _check_numbers(logits, value, who):
    import numpy as np  # not at the top: the configuration is read without it

    if not (np.isfinite(np.max(logits, axis=1)).all() and np.isfinite(value).all()):  # the largest is NaN if one is
        raise OwnCodeError(
            f"{type(who).__name__} returned logits or values that are no finite numbers\n"
            "  expected: finite numbers; a logit may be -inf where another one of its state is not"
        )
