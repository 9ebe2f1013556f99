"""Stand-ins for large objects of which a test needs a few parts."""

from types import SimpleNamespace


def part_of_run(**parts):
    """Return what a function sees of a `Run`: these parts alone. A dict stands for an object with these attributes."""
    return SimpleNamespace(
        **{name: SimpleNamespace(**part) if isinstance(part, dict) else part for name, part in parts.items()}
    )
