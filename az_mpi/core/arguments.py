"""Command lines: the parser that all commands share."""

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from az_mpi.core.problems import Refusal, show, users_json

MOST = 1_000_000  # of any number that an option takes


class Parser(argparse.ArgumentParser):
    """Raises Refusal for a wrong command line, and takes no abbreviated options.

    about: what --help says first. run: whether the first argument is a run's folder."""

    def __init__(self, prog: str, about: str, epilog: str | None = None, run: bool = False, **how: Any):
        super().__init__(prog=prog, description=about, epilog=epilog, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter, **how)  # fmt: skip
        if run:
            self.add_argument("run", metavar="RUN", type=Path, help="the run's folder (--logdir of run_dist.py)")

    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{self.prog}: error: {message}\nAll options: {self.prog} --help")


def setting(text: str) -> tuple[str, Any]:
    """Return (key, value) of an option's text KEY=VALUE. Raises ArgumentTypeError, which the parser tells."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{show(text)} is not KEY=VALUE, such as search.simulations=200")
    return key, json_or_word(value)


def json_or_word(text: str) -> Any:
    """Return the JSON value of `text`, or `text` itself where it is no JSON, so that words need no quotes."""
    try:
        return users_json(text)
    except ValueError:
        return text


def positive(text: str) -> float:
    """Return an option's text as a number above 0, up to MOST. Raises ArgumentTypeError, which the parser tells."""
    with suppress(ValueError):
        if 0 < (number := float(text)) <= MOST:
            return number
    raise argparse.ArgumentTypeError(f"{show(text)} is no number above 0 and up to {MOST:,}")


def whole(most: int = MOST, least: int = 1) -> Callable[[str], int]:
    """Return the type of an option that takes whole numbers from `least` to `most`: a function of its text. It raises
    ArgumentTypeError, which the parser tells."""
    def convert(text):
        if re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{show(text)} is no whole number from {least} to {most:,}")

    return convert


count = whole()


def even(text: str) -> int:
    """Return an option's text as an even number from 2 to MOST. Raises ArgumentTypeError, which the parser tells."""
    number = count(text)
    if number % 2:
        raise argparse.ArgumentTypeError(f"{number} is no even number")
    return number
