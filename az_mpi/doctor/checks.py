"""The doctor's findings: checks in sections, printed as lines or as one JSON object."""

import json
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TextIO, TypeVar

from az_mpi.core.printing import counted

OK, WARNING, PROBLEM = "ok", "warning", "problem"
WIDTH = 118
Result = TypeVar("Result")
Ranks = Sequence[dict[str, Any]]  # the facts of each rank, see `facts.gather`


class Check(NamedTuple):
    """One finding. A `problem` keeps a run from starting; `cure` says how to fix it."""

    name: str
    level: str
    text: str
    cure: str = ""


def tried(act: Callable[..., Result], *arguments: Any) -> tuple[Result | None, str | None]:
    """Return (the result of `act`, None), or (None, its exception as one line): a rank that fails must still take part
    in the next collective, through which all ranks learn of it."""
    try:
        return act(*arguments), None
    except Exception as error:
        return None, in_words(error)


def in_words(error: BaseException) -> str:
    """Return an exception as one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def ranks_in_words(ranks: Collection[int]) -> str:
    """Return rank numbers as text: "rank 3", "ranks 0-2, 5"."""
    runs = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


class Report:
    """Collects sections of checks. Where `shown`, prints each section as soon as it is known."""

    def __init__(self, shown: bool, as_json: bool):
        self.shown = shown
        self.as_json = as_json
        self.sections: list[tuple[str, Sequence[Check]]] = []
        self.figures: dict[str, Any] = {}
        # The stream for progress. For a report as text it is the report's own: mpirun of Open MPI 5.0 may join part of
        # a line of one stream to the next line of the other (openpmix issue 3858).
        self.progress: TextIO | None = (sys.stderr if as_json else sys.stdout) if shown else None

    def say(self, text: str = "") -> None:
        """Print a line of the report for people."""
        if self.shown and not self.as_json:
            print(text, flush=True)

    def add(self, title: str, checks: Sequence[Check], lines: Sequence[str] = (), **figures: Any) -> None:
        """Add a section; `lines` are printed after it as they are, `figures` go into the JSON object."""
        self.sections.append((title, checks))
        self.figures |= figures
        self.say(title)
        for check in checks:
            self.say(_fill(check.text, f"  {check.level:<8} "))
            if check.cure and check.level != OK:
                self.say(_fill(check.cure, " " * 11 + "cure: "))
        for line in lines:
            self.say(f"  {line}")
        self.say()

    def count(self, level: str) -> int:
        """Return the number of checks of a level."""
        return sum(check.level == level for _, checks in self.sections for check in checks)

    @property
    def would_start(self) -> bool:
        return not self.count(PROBLEM)

    def finish(self) -> None:
        """Print the verdict, or the whole as one JSON object."""
        if not self.shown:
            return
        num = {level: self.count(level) for level in (WARNING, PROBLEM)}
        if self.as_json:
            rows = [{"section": title, **check._asdict()} for title, checks in self.sections for check in checks]
            print(
                json.dumps(
                    {
                        "would_start": self.would_start,
                        "num_problems": num[PROBLEM],
                        "num_warnings": num[WARNING],
                        "checks": rows,
                        **self.figures,
                    }
                ),
                flush=True,
            )
            return
        counts = ", ".join(f"{counted(n, level)}" for level, n in num.items())
        self.say(f"{counts}: a run would {'start' if self.would_start else 'not start'} here")


def _fill(text, head):
    return textwrap.fill(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * 11, break_on_hyphens=False, break_long_words=False
    )
