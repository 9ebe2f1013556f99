"""The values that a key of the configuration takes, in words: for messages and --help_config."""

import json
from collections.abc import Iterable
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from az_mpi.core.registry import Registry


def registry_of(kind: Any, metadata: Iterable = ()) -> Registry | None:
    """Return the registry in which a field of type `kind` looks up its names; None if it takes no such names."""
    found = [item for item in (*metadata, *getattr(kind, "__metadata__", ())) if isinstance(item, Registry)]
    return next(filter(None, [*found, *map(registry_of, get_args(kind))]), None)


def choices(kind: Any) -> list[str]:
    """Return the words a field of type `kind` takes."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return ["true", "false"] if kind is bool else [word for part in get_args(kind) for word in choices(part)]


def allowed(kind: Any, limits: Iterable = ()) -> str:
    """Return in words what a field of type `kind` takes; `limits` are a number's annotated_types constraints."""
    origin, parts = get_origin(kind), get_args(kind)
    if registry := registry_of(kind, limits):
        listed = "a list of names, each at most once (files by their names alone): "
        return registry.allowed if kind is str else f"{listed}{registry.allowed}"
    if origin is Annotated:
        return allowed(parts[0], getattr(parts[1], "metadata", ()))
    if origin in (Union, UnionType):
        return " or ".join(allowed(part) for part in parts)
    if origin is Literal:
        return " or ".join(json.dumps(part) for part in parts)
    if origin is dict:
        return f'an object such as {{"name": 1}}; each value {allowed(parts[1])}'
    if kind is str:
        return "text of letters, digits, '.', '_' and '-'"
    return "true or false" if kind is bool else _number(kind, limits)


def _number(kind, limits):
    names = ("ge", "gt", "le", "multiple_of")
    limit = {name: getattr(item, name) for item in limits for name in names if hasattr(item, name)}
    words = "a whole number" if kind is int else "a finite number"
    if "gt" in limit:
        return f"{words} above {limit['gt']}" + (f", at most {limit['le']}" if "le" in limit else "")
    if "le" not in limit:
        return f"{words}, at least {limit['ge']}"
    step = {None: "", 2: ", even"}.get(limit.get("multiple_of"), f", a multiple of {limit.get('multiple_of')}")
    power = limit["le"] + 1  # 2^63-1 reads better than its 19 digits
    most = f"2^{power.bit_length() - 1}-1" if power > 10**6 and power & (power - 1) == 0 else limit["le"]
    return f"{words} from {limit['ge']} to {most}{step}"
