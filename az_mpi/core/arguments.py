"""Command lines: the parser that all commands share."""

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from az_mpi.core.problems import Refusal, escape, nearest, show, users_json

MOST = 1_000_000  # of any number that an option takes


class Parser(argparse.ArgumentParser):
    """Raises Refusal for a wrong command line, and takes no abbreviated options.

    about: what --help says first. run: whether the first argument is a run's folder."""

    def __init__(self, prog: str, about: str, epilog: str | None = None, run: bool = False, **how: Any):
        super().__init__(
            prog=prog,
            description=about,
            epilog=epilog,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **how,
        )
        if run:
            self.add_argument("run", metavar="RUN", type=Path, help="the run's folder (--logdir of run_dist.py)")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options as a namespace. Raises Refusal."""
        given, extras = self.parse_known_args(args, namespace)
        if extras := [argument for argument in extras if argument != "--"]:
            self._refuse(extras)
        return given

    def _refuse(self, extras):
        """Raise Refusal for arguments that no option takes, with the most similar option for each."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        told = []
        for argument in (argument.partition("=")[0] for argument in extras if argument.startswith("-")):
            near = nearest(argument.lstrip("-"), [name.lstrip("-") for name in options])
            told.append(f"there is no option {escape(argument)}" + "".join(f"; did you mean --{n}?" for n in near[:1]))
        if not told:
            is_file = "--config_file" in options and extras[0].endswith(".json")
            hint = f"; did you mean --config_file {escape(extras[0])}?" if is_file else ""
            told = [not_taken(extras[0]) + hint]
        self.error(f"\n{self.prog}: error: ".join(told))

    def error(self, message: str) -> NoReturn:
        """Raise Refusal with a message of argparse, and with the values of an option that lacks its own."""
        found = re.match(r"argument (?:.*/)?(-[\w-]+): expected .*argument", message)
        if found and (values := _values(self._option_string_actions[found[1]])):
            message += f"; allowed: {values}"
        raise Refusal(f"{self.prog}: error: {message}\nAll options: {self.prog} --help")


def _values(action):
    """Return the words that an option takes, "" if it takes any."""
    words = map(str, action.choices or ())
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return ", ".join(words) or (metavar.strip("{}").replace(",", ", ") if metavar.startswith("{") else "")


def not_taken(argument: str) -> str:
    """Return the message about an argument that belongs to no option."""
    text = f"{show(argument)} belongs to no option"
    if argument.isspace():
        text += (
            "\n  a backslash at the end of a line joins it with the next line only if nothing follows it; with a "
            "blank\n  after it, it makes the blank an argument, and the command ends there: remove the blank"
        )
    return text


def setting(text: str) -> tuple[str, Any]:
    """Return (key, value) of an option's text KEY=VALUE. Raises ArgumentTypeError, which the parser shows."""
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
    """Return an option's text as a number above 0, up to MOST. Raises ArgumentTypeError, which the parser shows."""
    with suppress(ValueError):
        if 0 < (number := float(text)) <= MOST:
            return number
    raise argparse.ArgumentTypeError(f"{show(text)} is no number above 0 and up to {MOST:,}")


def share(text: str) -> float:
    """Return an option's text as a number from 0 to below 1. Raises ArgumentTypeError, which the parser shows."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < 1:
            return number
    raise argparse.ArgumentTypeError(f"{show(text)} is no number from 0 to below 1")


def whole(most: int = MOST, least: int = 1) -> Callable[[str], int]:
    """Return the type of an option that takes whole numbers from `least` to `most`: a function of its text. It raises
    ArgumentTypeError, which the parser shows."""

    def convert(text):
        if re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{show(text)} is no whole number from {least} to {most:,}")

    return convert


count = whole()


def even(text: str) -> int:
    """Return an option's text as an even number from 2 to MOST. Raises ArgumentTypeError, which the parser shows."""
    number = count(text)
    if number % 2:
        raise argparse.ArgumentTypeError(f"{number} is no even number")
    return number
