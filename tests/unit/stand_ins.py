"""Stand-ins for large objects of which a test needs a few parts."""

from dataclasses import dataclass
from types import SimpleNamespace


def part_of_run(**parts):
    """Return what a function sees of a `Run`: these parts alone. A dict stands for an object with these attributes."""
    return SimpleNamespace(
        **{name: SimpleNamespace(**part) if isinstance(part, dict) else part for name, part in parts.items()}
    )


@dataclass
class Part:
    """One rank of a world whose other ranks are not there."""

    rank: int
    size: int

    def collect(self, item):
        return [item]

    def sum(self, values):
        return values


class Shown:
    """Takes the place of the progress bars and keeps what each was told."""

    def __init__(self):
        self.told = []

    def __call__(self, name, unit):
        told = []
        self.told.append(told)
        return SimpleNamespace(update=lambda done, total: told.append((name, done, total, unit)), finish=lambda: None)
