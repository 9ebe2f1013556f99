"""Errors that a user can fix, each as one block of text; and reading a configuration's JSON so that they are clear."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core import exit_codes, files
from az_mpi.core.files import passes
from az_mpi.core.printing import counted

FILE_BYTES_MAX = 2**16  # a larger file is no configuration (and /dev/zero would never end)
SHOWN_MAX = 40  # problems listed; a file with more is something else


class Problem(NamedTuple):
    """One thing wrong. `key` is empty if it is the file as a whole; `value` is as the user sees it."""

    key: str
    value: str
    message: str
    source: str = ""  # where the value comes from, if not from the file

    def __str__(self) -> str:
        if not self.key:
            return f"  {self.message}"
        source = f"  ({self.source})" if self.source else ""
        return f"  {self.key} = {self.value}{source}\n      {self.message}"


class Refusal(Exception):
    """A request cannot be done as it is. str() is one block for the user, `status` the exit status."""

    status = exit_codes.USAGE


class NotNow(Refusal):
    """A request cannot be done now; the same command can succeed later."""

    status = exit_codes.RESUMABLE


def refusal_of(error: BaseException) -> type[Refusal]:
    """Return what an error of a file system is to be raised as: NotNow if it may pass by itself."""
    return NotNow if passes(error) else Refusal


class OwnCodeError(Refusal):
    """A user's own code, such as a game, has broken a rule. It may be raised on one rank alone, during a run."""


class NotHere(Refusal):
    """A request cannot be done on this host, for lack of a processor, a GPU, memory or a program; another one may be
    able to."""


def is_on_every_rank(error: BaseException) -> bool:
    """Return whether an error that code of all ranks raises is one that the others raise too."""
    return isinstance(error, Refusal) and not isinstance(error, OwnCodeError)


def reworded(error: Refusal, text: str) -> Refusal:
    """Return a Refusal with another text: NotNow or NotHere if `error` is one, so that its status stays."""
    return next((kind for kind in (NotNow, NotHere) if isinstance(error, kind)), Refusal)(text)


class ConfigError(Refusal):
    """A configuration cannot be used. str() is one block for the user that lists the `problems`."""

    def __init__(self, name: str, problems: Iterable[Problem]):
        self.problems = list(problems)
        num = len(self.problems)
        lines = [f"{name}: {counted(num, 'problem')} in the configuration", *map(str, self.problems[:SHOWN_MAX])]
        if num > SHOWN_MAX:
            lines.append(f"  ... and {num - SHOWN_MAX} more")
        lines.append("All keys and what they take: python run_dist.py --help_config")
        super().__init__("\n".join(lines))


def need_current_folder() -> None:
    """Raise Refusal if the current folder was removed: names of files and modules are looked up from there."""
    try:
        os.getcwd()
    except OSError as error:
        raise Refusal(f"the current folder cannot be used: {error.strerror}\n  cd to a folder that exists") from error


def show(value: Any) -> str:
    """Return a value as JSON in ASCII, shortened."""
    try:
        text = json.dumps(value)
    except (RecursionError, TypeError, ValueError):
        text = f"({type(value).__name__} that cannot be shown)"
    return text if len(text) <= 60 else text[:57] + "..."


def escape(text: str) -> str:
    """Return a key or a file name fit for a terminal: one line of ASCII, shortened."""
    text = json.dumps(text)[1:-1]
    return text if len(text) <= 200 else text[:197] + "..."


def readable(path: Path) -> str:
    """Return the last name of a path as text for people: its bytes as UTF-8 in any locale, the others replaced."""
    return os.fsencode(path.name).decode(errors="replace")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file that a user asked for. Raises Refusal if it cannot be written."""
    try:
        files.write_bytes(path, content.encode(errors="replace") if isinstance(content, str) else content)
    except OSError as error:
        raise Refusal(f"{escape(str(path))} cannot be written: {error.strerror}") from error


def nearest(key: str, names: Iterable[str]) -> list[str]:
    """Return the dotted `names` most similar to `key`, for "did you mean": at most three, about equally similar."""
    section, _, last = key[:80].lower().replace("-", "_").rpartition(".")
    scores = {}
    for name in names:
        home, _, word = name.rpartition(".")
        alike = SequenceMatcher(None, last, word).ratio()
        if alike >= (0.6 if home == section else 0.75):  # stricter for other sections
            scores[name] = alike + 0.1 * SequenceMatcher(None, section, home).ratio()
    ranked = sorted(scores, key=lambda name: scores[name], reverse=True)[:3]
    return [name for name in ranked if scores[name] > scores[ranked[0]] - 0.05]


class JsonObject(dict):
    """A JSON object that remembers which of its keys were written `twice`."""

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        self.twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]


def _integer(digits):
    return int(digits) if len(digits) < 400 else float(digits)  # Python refuses to read very long ones: infinity


def users_json(text: str) -> Any:
    """Return the value of a JSON text that a user wrote, its objects as JsonObject. Raises ValueError."""
    return files.parse_json(text, object_pairs_hook=JsonObject, parse_int=_integer)


def _point_at(text, error):
    """Return where and what a JSON syntax error is, with the line it is in and a mark under the place."""
    line = "".join(char if char.isprintable() else " " for char in text.split("\n")[error.lineno - 1])
    start = max(0, error.colno - 60)
    return (
        f"not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}\n"
        f"      {line[start : start + 100]}\n      {' ' * (error.colno - 1 - start)}^"
    )


def config_json(text: str, name: str) -> Any:
    """Return the value of the JSON text of the file `name`. Raises ConfigError."""
    if not text.strip():
        raise ConfigError(name, [Problem("", "", 'the file is empty; the least is {"game": "connect4"}')])
    try:
        return users_json(text)
    except json.JSONDecodeError as error:
        message = _point_at(text, error)
    except ValueError as error:
        message = f"not a configuration: {error}"
    raise ConfigError(name, [Problem("", "", message)])


def read_text(path: str | Path) -> str:
    """Return the text of a file. Raises ConfigError; NotNow if its file system fails for a while."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) <= FILE_BYTES_MAX:
            return data.decode("utf-8-sig")
        message = f"not a configuration: it is larger than {FILE_BYTES_MAX} bytes"
    except UnicodeDecodeError as error:
        message = f"not UTF-8 text: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        if passes(error):
            text = f"{escape(str(path))}: {message}\n  the same command continues once its file system works"
            raise NotNow(text) from error
    raise ConfigError(escape(str(path)), [Problem("", "", message)])
