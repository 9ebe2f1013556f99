"""The arguments of GTP's commands. What reads one takes its text, and raises ValueError if it is something else."""

import re

COLOURS = {"b": 0, "black": 0, "w": 1, "white": 1}
ANY = (str, ...)  # any number of arguments


def colour(text: str) -> int:
    """Return the player of a colour: 0 for Black, 1 for White."""
    if text.lower() not in COLOURS:
        raise ValueError
    return COLOURS[text.lower()]


def whole(text: str) -> int:
    """Return a whole number from 0 on."""
    return int(_matched(r"\d{1,9}", text))


def number(text: str) -> float:
    """Return a number, without an exponent."""
    return float(_matched(r"-?\d{1,9}(\.\d{0,9})?", text))


def _matched(pattern, text):
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError
    return text
