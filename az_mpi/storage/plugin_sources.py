"""Copies of users' own files (games, evaluators, ...) in a run's folder. A resumed run must have the same files;
commands that look at the run later use the copies.

RUN/sources/HASH/own_game.py is the file as it was loaded; HASH is the beginning of its SHA-256. The description of each
start (starts/NNN.json) lists the files under "sources".
"""

from pathlib import Path
from typing import Any

from az_mpi.config.load import KEYS, map_names, plugins
from az_mpi.config.schema import Config
from az_mpi.core import files, registry
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import parse

FOLDER, DIGITS = "sources", 12


def describe(config: Config) -> list[dict[str, str]]:
    """Return the "sources" of a start's description: a dict for each of the user's own files. Raises Refusal."""
    rows = []
    for key, _, text in plugins(config):
        name = parse(text)
        if name.place:
            _, source = registry.load(name.place)
            file = Path(source.path).name
            rows.append(
                {
                    "key": key,
                    "name": _plain(name),
                    "sha256": source.sha256,
                    "kept": f"{FOLDER}/{source.sha256[:DIGITS]}/{file}",
                }
            )
    return rows


def keep(path: str | Path, config: Config) -> None:
    """Copy the user's own files into a run's folder, unless they are there. For root alone. Raises OSError."""
    for source in registry.sources(name for _, _, name in plugins(config)).values():
        file = Path(path) / FOLDER / source.sha256[:DIGITS] / Path(source.path).name
        if files.is_there(file):
            continue
        if files.is_there(file.parent):  # it was kept under another name
            files.write_bytes(file, source.content)
            continue
        file.parent.parent.mkdir(exist_ok=True)
        with files.whole_folder(file.parent) as temporary:
            files.create(temporary / file.name, source.content)


def check(path: str | Path, config: Config, description: dict[str, Any], allowed: bool) -> None:
    """Raise Refusal if the run was made with other files than this start has, unless that is allowed.

    description: of the run's newest start, or {}."""
    before = {(row["key"], row["name"]): row for row in description.get("sources", [])}
    lines = []
    for row in describe(config):
        old = before.get((row["key"], row["name"]), row)
        if old["sha256"] != row["sha256"]:
            lines.append(
                f"  {row['key']}: {row['name']} has SHA-256 {row['sha256'][:DIGITS]}; that of the run is in "
                f"{Path(path) / old['kept']}"
            )
    if lines and not allowed:
        raise Refusal(
            "\n".join(
                [
                    f"{path} holds a run that was made with another source:",
                    *lines,
                    "  put that one back, or give another --logdir for a new run;",
                    "  --allow_other_source continues with the new one",
                ]
            )
        )


def kept(path: str | Path, description: dict[str, Any]) -> dict[str, Any]:
    """Return {key: value} for the configuration keys that name users' own files, with the copies in a run's folder as
    paths. A command without a configuration file then uses the files that made the run."""
    copies = {(row["key"], row["name"]): row["kept"] for row in description.get("sources", [])}

    def change(key, text):
        if KEYS[key].registry.problem(text) or not parse(text).is_file:
            return text
        copy = copies.get((key, _plain(parse(text))))
        return str(parse(text)._replace(place=str(Path(path).absolute() / copy))) if copy else text

    values = {}
    for name, part in description["config"].items():
        values |= {f"{name}.{key}": value for key, value in part.items()} if isinstance(part, dict) else {name: part}
    return {key: value for key, value in map_names(values, change).items() if value != values[key]}


def _plain(name):
    """Return a name without folder and arguments, as starts of a run are compared."""
    return name._replace(arguments={}).short()
