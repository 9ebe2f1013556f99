"""What is removed from a long run's folder, so that it does not grow without end: older networks in RUN/best, and if
the user asks for it older segments in RUN/games."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from az_mpi.core import files
from az_mpi.storage.segment import Segment

NAME = "removed.json"  # in RUN/games


def spread(iterations: Iterable[int], num: int) -> list[int]:
    """Return those of these iterations that are kept, ascending, at most `num` (2 or more): the newest half, and of the
    older ones the first and those that lie most evenly on a logarithmic scale.

    What is kept can be thinned again later, together with newer iterations: the one that leaves the smallest hole goes
    first."""
    kept = sorted(set(iterations))
    while len(kept) > num:
        older = range(1, len(kept) - num // 2)
        del kept[min(older, key=lambda k: kept[k + 1] / max(kept[k - 1], 1))]
    return kept


def thin_networks(folder: str | Path, num: int, check: Callable[[], None] = lambda: None) -> None:
    """Remove networks from RUN/best until `spread` keeps all that are left. Raises OSError.

    check: called before anything is removed; may raise `files.Forbidden`."""
    ending = ".safetensors"
    stems = [name.removesuffix(ending) for name in files.names(folder) if name.endswith(ending)]
    there = {int(stem): Path(folder) / f"{stem}{ending}" for stem in stems if stem.isdecimal()}
    if old := there.keys() - set(spread(there, num)):
        check()
    for iteration in old:
        there[iteration].unlink(missing_ok=True)


class Removed(NamedTuple):
    """Games that were removed from a run's folder: their number, that of their positions, and the names of segments
    among them that may still be there, because the job that removed them may have been killed."""

    num_games: int = 0
    num_positions: int = 0
    names: Sequence[str] = ()


def removed(folder: str | Path) -> Removed:
    """Return what was removed from RUN/games. A damaged record counts as none. Raises OSError."""
    path = Path(folder) / NAME
    if not files.is_there(path):
        return Removed()
    try:
        content = files.read_json(path)
        return Removed(int(content["num_games"]), int(content["num_positions"]), list(content["names"]))
    except (ValueError, KeyError, TypeError):
        return Removed()


def thin_games(
    folder: str | Path,
    segments: Sequence[Segment],
    num_positions: int,
    end: int,
    num_games: int = 0,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Remove the oldest of these segments, of iterations before `end`, as far as the others hold `num_positions`.
    Raises OSError; afterwards it may be called again.

    The record of what was removed comes first, so that a reader counts each game once even if this is broken off.
    segments: oldest first. num_games: so many games stay before each iteration of which one stays, if there are so
    many. check: see `thin_networks`."""
    before, old = removed(folder), []
    segments = [one for one in segments if one.path.name not in before.names]  # of a try that was broken off
    left = sum(segment.num_positions for segment in segments)
    for segment in segments:
        left -= segment.num_positions
        if left < num_positions or segment.iteration >= end:
            if num_games:
                first = _first(segments, segment.iteration, num_games)
                old = [one for one in old if one.iteration < first]
            break
        old.append(segment)
    names = [*(name for name in before.names if files.is_there(Path(folder) / name)), *(one.path.name for one in old)]
    if old:
        num_games = before.num_games + sum(segment.num_games for segment in old)
        num_positions = before.num_positions + sum(segment.num_positions for segment in old)
        _write(folder, Removed(num_games, num_positions, names), check)
    else:
        check()
    _unlink(folder, names)


def _first(segments, iteration, num_games):
    """Return the iteration, this one or an earlier one, from which on segments hold so many games before this one, in
    whole iterations; the first one of all if they do not."""
    earlier = sorted((one for one in segments if one.iteration < iteration), key=lambda one: -one.iteration)
    for segment in earlier:
        if num_games <= 0 and segment.iteration < iteration:
            break
        iteration = segment.iteration
        num_games -= segment.num_games
    return iteration


def finish(folder: str | Path, forget: bool, check: Callable[[], None] = lambda: None) -> None:
    """Complete a removal that was broken off, before a run continues: from an older checkpoint it may write segments
    with the names of those that were removed. Raises OSError; afterwards it may be called again.

    forget: count from 0 what is removed, since the run begins again with new weights and the games that are there.
    check: see `thin_networks`."""
    before = removed(folder)
    check()
    _unlink(folder, before.names)
    if forget:
        (Path(folder) / NAME).unlink(missing_ok=True)
    elif before.names:
        _write(folder, before._replace(names=()), check)


def _write(folder, content, check):
    files.write_bytes(Path(folder) / NAME, json.dumps(content._asdict()).encode(), before=check)


def _unlink(folder, names):
    for name in names:
        (Path(folder) / name).unlink(missing_ok=True)
