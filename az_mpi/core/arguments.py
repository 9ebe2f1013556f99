"""Command lines: the parser that all commands share."""

import argparse
import math
from pathlib import Path
from typing import Any, NoReturn

from az_mpi.core.problems import Refusal


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


def positive(text: str) -> float:
    """Return an option's text as a finite number above 0. Raises ValueError, which the parser tells."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


def count(text: str) -> int:
    """Return an option's text as a whole number from 1 on. Raises ValueError, which the parser tells."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number
