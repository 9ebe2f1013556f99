"""What commands of GTP are made of: their arguments, colours, moves, and the error that answers a wrong one."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

NAMES = "black", "white"
COLOURS = {"b": 0, "black": 0, "w": 1, "white": 1}
PASS = "pass"
ANY = (str, ...)  # the arguments of a command that takes any number of them

# What GoGui offers besides: kind of the reply, label, command.
GOGUI = """\
string/Final Score/final_score
plist/Dead Stones/final_status_list dead
plist/Living Stones/final_status_list alive
string/Komi/get_komi
string/Rules/kata-get-rules
string/CPU Time/cputime"""


class GtpError(Exception):
    """A command fails. str() is the message for the program that sent it."""


class Made(NamedTuple):
    """A move by GTP: its player and its vertex. states, actions: of the session before it, for `Session.restore`."""

    player: int
    vertex: str
    states: "tuple[np.ndarray, ...]"
    actions: tuple[int, ...]


def read_all(readers: Sequence[Callable[[str], Any]], words: Sequence[str]) -> list[Any]:
    """Return the values of a command's arguments. Raises GtpError."""
    try:
        return [read(word) for read, word in zip(readers, words, strict=True)]
    except ValueError:
        raise GtpError("syntax error") from None


# What reads an argument of a command takes its text, and raises ValueError for any other text.


def colour(text: str) -> int:
    """Return the player of a colour: 0 for Black, 1 for White."""
    if text.lower() not in COLOURS:
        raise ValueError
    return COLOURS[text.lower()]


def whole(text: str) -> int:
    """Return a whole number of up to 9 digits; it is not negative."""
    return int(_matched(r"\d{1,9}", text))


def number(text: str) -> float:
    """Return a number that is written without an exponent."""
    return float(_matched(r"-?\d{1,9}(\.\d{0,9})?", text))


def _matched(pattern, text):
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError
    return text


def kgs_time(words: Sequence[str]) -> tuple[int, int, int]:
    """Return the arguments for `time_settings` of kgs-time_settings: none, absolute MAIN, byoyomi MAIN PERIOD NUMBER,
    or canadian MAIN PERIOD STONES. Each period of byo-yomi counts as one for a single stone."""
    kind, *numbers = words or [""]
    lengths = {"none": 0, "absolute": 1, "byoyomi": 3, "canadian": 3}
    if kind not in lengths or len(numbers) != lengths[kind]:
        raise GtpError("syntax error")
    main_s, period_s, stones = (*read_all([whole] * len(numbers), numbers), 0, 0, 0)[:3]
    return (0, 1, 0) if kind == "none" else (main_s, period_s, 1 if kind == "byoyomi" else stones)
