"""The configuration: a JSON file read into the models of `schema`.

A key is named by its dotted path ("train.batch_size"). All problems of a file are found and reported together.
"""

import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from az_mpi.config.schema import Config, flat
from az_mpi.config.words import allowed, choices, registry_of
from az_mpi.core.earlier_names import modern
from az_mpi.core.problems import ConfigError, Problem, config_json, escape, nearest, read_text, show
from az_mpi.core.registry import Registry, parse


class Key(NamedTuple):
    """One row of the table of all keys. default: `...` if the key is required. choices: the words it takes.
    registry: where the names that it takes are looked up; None if it takes no such names. may_change, may_rise: whether
    a resumed run may have another value, or a larger one."""

    default: Any
    allowed: str
    choices: list[str]
    may_change: bool
    may_rise: bool
    description: str
    registry: Registry | None


class Change(NamedTuple):
    """A key that differs between two configurations, and whether a resumed run may take the new value."""

    key: str
    old: Any
    new: Any
    may_change: bool


def _row(field):
    return Key(
        ... if field.is_required() else field.default,
        allowed(field.annotation, field.metadata),
        choices(field.annotation),
        field.json_schema_extra["may_change"],
        field.json_schema_extra["may_rise"],
        field.description,
        registry_of(field.annotation, field.metadata),
    )


SECTIONS = {
    name: field.annotation.model_fields
    for name, field in Config.model_fields.items()
    if field.json_schema_extra is None
}
SECTIONS_ABOUT = {"": "What the run learns, and for how long."} | {
    name: " ".join(Config.model_fields[name].annotation.__doc__.split()) for name in SECTIONS
}
KEYS = {name: _row(field) for name, field in Config.model_fields.items() if name not in SECTIONS} | {
    f"{section}.{name}": _row(field) for section, fields in SECTIONS.items() for name, field in fields.items()
}


def _misplaced(key, value, source=""):
    """Return the problem of a key that does not exist or is in the wrong place."""
    if key in SECTIONS:
        message = f"this is a section; its keys are {', '.join(SECTIONS[key])}"
    elif key in KEYS:
        message = "write it inside its section, without the dot"
    elif near := nearest(key, [*KEYS, *SECTIONS]):
        message = f"there is no such key; did you mean {' or '.join(near)}?"
    else:
        names = SECTIONS.get(key.rpartition(".")[0], Config.model_fields)
        message = f"there is no such key; the keys here are {', '.join(names)}"
    return Problem(escape(key), show(value), message, source)


def _invalid(key, value, source):
    """Return the problem of a value that its key does not allow."""
    row = KEYS[key]
    near = get_close_matches(value.lower(), row.choices, 1) if isinstance(value, str) else []
    message = f"allowed: {row.allowed}" + (f"; did you mean {near[0]}?" if near else "")
    if row.registry:
        message = next(filter(None, map(row.registry.problem, _names(value))), message)
    return Problem(key, "(missing)" if value is ... else show(value), message, source)


def _names(value):
    """Return the names in the value of a key that takes one name or a list of them."""
    return [name for name in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(name, str)]


def plugins(config: Config) -> list[tuple[str, Registry, str]]:
    """Return (key, registry, name) for every name in a configuration that a registry looks up, in key order."""
    values = flat(config)
    return [(key, row.registry, name) for key, row in KEYS.items() if row.registry for name in _names(values[key])]


def map_names(values: dict[str, Any], change: Callable[[str, str], str]) -> dict[str, Any]:
    """Return {dotted key: value} with change(key, name) in place of each name that a registry looks up."""
    mapped = dict(values)
    for key in values.keys() & {key for key, row in KEYS.items() if row.registry}:
        value = values[key]
        if isinstance(value, str):
            mapped[key] = change(key, value)
        elif isinstance(value, (list, tuple)):
            mapped[key] = [change(key, name) if isinstance(name, str) else name for name in value]
    return mapped


def _modern(given):
    """Return the values in today's keys: in earlier versions network.engine named evaluators as well as engines."""
    if given.get("network.engine") in ("uniform", "rollout"):
        return {"selfplay.evaluator": given["network.engine"]} | given | {"network.engine": "auto"}
    return given


# Keys of earlier versions: the key that each has become, and its value there.
OLD_KEYS = {"network.cache_entries": ("network.cache_bytes", lambda entries: 64 * entries)}


def _renamed(key, value):
    """Return a key and its value under the name that the key has now."""
    section, dot, name = key.rpartition(".")
    key = f"{section}{dot}{modern(name)}"
    new, convert = OLD_KEYS.get(key, (key, None))
    return new, convert(value) if convert and type(value) is int else value


def _place(given, folders, problems, origin):
    """Return the values with the relative paths of users' own files made absolute: a file is taken from the first of
    `folders` that has it. Append a problem for each file that no folder has."""

    def change(key, text):
        if KEYS[key].registry.problem(text) or not (name := parse(text)).is_file or Path(name.place).is_absolute():
            return text
        paths = [Path(folder).absolute() / name.place for folder in folders]
        found = [path for path in paths if path.is_file()]
        if not found:
            where = " or ".join(dict.fromkeys(escape(str(path)) for path in paths))
            problems.append(Problem(key, show(text), f"there is no file {where}", origin.get(key, "")))
        return str(name._replace(place=str(found[0]))) if found else text

    return map_names(given, change) if folders else given


def _flatten(data, problems):
    """Return {dotted key: value} of the valid keys of `data`; append a problem for each of the others."""
    given = {}
    parts = {"": data} | {f"{name}.": data[name] for name in SECTIONS if isinstance(data.get(name), dict)}
    for path, part in parts.items():
        for name in getattr(part, "twice", ()):
            problems.append(Problem(escape(path + name), show(part[name]), "written more than once: keep one"))
        for name, value in part.items():
            key, value = _renamed(path + name, value)
            if key in KEYS and "." not in name:
                given[key] = value
            elif f"{path}{name}." not in parts:
                problems.append(_misplaced(path + name, value))
    return given


def without_folders(config: Config) -> dict[str, Any]:
    """Return {dotted key: value} of a configuration, with users' own files without their folders."""
    return map_names(flat(config), lambda key, name: parse(name).short())


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of {dotted key: value} in their sections, as `Config` and JSON have them; the inverse of
    `flat`."""
    sections: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        (sections.setdefault(section, {}) if section else sections)[name] = value
    return sections


def _broken(given):
    """Return (keys whose values are missing or not allowed, the Config); the Config is None if there are such keys."""
    try:
        return [], Config.model_validate(nested(given))
    except ValidationError as error:
        places = [item["loc"] for item in error.errors(include_url=False, include_context=False, include_input=False)]
    keys = [place[0] if place[0] in KEYS else f"{place[0]}.{place[1]}" for place in places]
    return list(dict.fromkeys(keys)), None  # a list or a choice of types has several errors for one key


# Pairs of keys: the value of the first must not be more than that of the second.
NOT_MORE = (("replay.window_min", "replay.window_max"), ("train.ranks", "train.batch_size"))


def _contradict(low, high):
    """Return whether `low` is more than `high`. A word ("all") or a missing value contradicts nothing."""
    return isinstance(low, int) and isinstance(high, int) and low > high


def validate(
    data: Any, name: str, overrides: dict | None = None, sources: dict | None = None, folders: Sequence[Path] = ()
) -> Config:
    """Return the Config of `data` (as read from JSON). Raises ConfigError with all its problems.

    `name` is what the message calls the file. `overrides`: {dotted key: value} in place of `data`'s; `sources`: {dotted
    key: the option it came from}, for messages (default "--set"). `folders`: where users' own files are looked for; by
    default paths stay as they are."""
    if not isinstance(data, dict):
        raise ConfigError(name, [Problem("", "", f'not an object such as {{"game": "connect4"}}, but {show(data)}')])
    problems, overrides = [], dict(_renamed(*item) for item in (overrides or {}).items())
    origin = {key: f"from {(sources or {}).get(key, '--set')}" for key in overrides}
    given = _flatten(data, problems)
    problems += [_misplaced(key, value, origin[key]) for key, value in overrides.items() if key not in KEYS]
    given |= {key: value for key, value in overrides.items() if key in KEYS}
    given = _place(_modern(given), folders, problems, origin)
    broken, config = _broken(given)
    problems += [_invalid(key, given.get(key, ...), origin.get(key, "")) for key in broken]
    values = {key: given.get(key, row.default) for key, row in KEYS.items() if key not in broken}
    for low, high in NOT_MORE:
        if _contradict(values.get(low), values.get(high)):
            source = origin.get(low, "" if low in given else "the default")
            message = f"must not be more than {high}, which is {values[high]}" + (" by default" * (high not in given))
            problems.append(Problem(low, show(values[low]), message, source))
    if problems:
        raise ConfigError(name, problems)
    return config


def loads(text: str, name: str = "configuration", overrides: dict | None = None, sources: dict | None = None) -> Config:
    """Return the Config of a JSON text. The other arguments and errors are those of `validate`."""
    return validate(config_json(text, name), name, overrides, sources)


def load(path: str | Path, overrides: dict | None = None, sources: dict | None = None) -> Config:
    """Return the Config of a JSON file. The other arguments and errors are those of `validate`. Users' own files are
    looked for beside it, then in the current folder."""
    name, folders = escape(str(path)), (Path(path).parent, Path.cwd())
    return validate(config_json(read_text(path), name), name, overrides, sources, folders)


def to_json(config: Config) -> str:
    """Return the configuration as JSON text with every key; `loads` of that text gives an equal configuration."""
    return json.dumps(config.model_dump(), indent=2) + "\n"


def changes(old: Config, new: Config) -> list[Change]:
    """Return the Change of every key whose value differs between two configurations. The folder of a user's own file
    does not count; `storage.plugin_sources` compares the file's content."""
    before, after = without_folders(old), without_folders(new)
    return [
        Change(key, before[key], after[key], row.may_change or (row.may_rise and after[key] > before[key]))
        for key, row in KEYS.items()
        if before[key] != after[key]
    ]
