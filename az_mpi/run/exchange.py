"""From games played to positions trained on: segments on disk, shards of the window in the trainers' memory.

Every function here is collective, every rank calls it, unless it says otherwise.
"""

import functools

from az_mpi import __version__
from az_mpi.core import files
from az_mpi.selfplay.record import Record
from az_mpi.storage import segment
from az_mpi.storage.writer import insist
from az_mpi.train import replay


def committed(run):
    """Return, on root, the games of this iteration that a broken-off attempt has stored; none elsewhere.

    The writer may still be at segments of iterations before this one.
    """
    return stored(run, run.progress.iteration) if run.world.is_root else Record.empty(run.game)


def stored(run, iteration):
    """Return the games of an iteration that are on disk; damaged segments are set aside. Not collective."""
    return Record.join(run.game, [_read(run, old.path) for old in segments(run, iteration)])


def segments(run, iteration=None):
    """Return the segments of the run, or of an iteration, oldest first; damaged ones are set aside. Not collective."""
    folder = run.folder / "games"
    find = functools.partial(segment.find, folder, iteration, lambda *what: _set_aside(run, *what))
    return insist(run.writer, folder, find) or []


def _read(run, path):
    """Return the record in a segment; an empty one where it is damaged, and it is set aside."""
    try:
        found = insist(run.writer, path, lambda: segment.read(path, run.game))
    except segment.SegmentError as error:
        _set_aside(run, path, error)
        found = None
    return Record.empty(run.game) if found is None else found


def _set_aside(run, path, error):
    run.logger.warning("damaged: %s; it is kept as %s, its games are missed", error, files.set_aside(path).name)


def exchange(run, old):
    """Store this rank's new games and deal them, and root's `old` ones, to the trainers. Return the positions dealt,
    over all ranks.

    old: what `committed` returned, or an empty record. They belong to the iteration under way.
    """
    world, progress, sent_before = run.world, run.progress, run.world.sent_bytes
    record = store(run)
    # Only root holds old games, and their positions are numbered first.
    games_num, positions_num = len(old.games) + len(record.games), [len(old.positions), len(record.positions)]
    unwritten_num = run.writer.unwritten_num if world.is_root else None
    counts = world.collect([*positions_num, games_num, run.player.unfinished_num, unwritten_num])
    run.given = run.given[max(len(run.given) - counts[0][4], 0) :]  # what is on disk need not be given again
    before = counts[0][0] + sum(count[1] for count in counts[: world.rank])
    _deal(run, old, progress.positions_num)
    _deal(run, record, progress.positions_num + before)
    made = sum(count[0] + count[1] for count in counts)
    progress.positions_num += made
    progress.games_num += sum(count[2] for count in counts)
    progress.unfinished_games = sum(count[3] for count in counts)
    if run.replay:
        run.replay.forget(progress.positions_num - replay.window_size(run.config.replay, progress.positions_num))
    run.counters.add_games(record, progress.iteration)
    run.counters.exchanges_num += 1
    run.counters.exchange_bytes += world.sent_bytes - sent_before
    return made


def store(run):
    """Hand the games that the ranks have finished to root's writer, as one segment; return this rank's."""
    record = run.player.take()
    # While an iteration is trained, games are played for the next.
    iteration = run.progress.iteration + (run.progress.phase == "train")
    compress = run.config.exchange.compress
    run.given.append((iteration, record))  # before a collective, in which a loss would leave it with nobody
    if run.world.survives and run.world.size > 1:  # else root's own games would be lost with it until they are on disk
        run.given[-1] = iteration, Record.join(run.game, [record, record.from_root(run.world, compress)])
    new = record.gather(run.world, compress)
    if run.world.is_root:
        run.writer.submit(iteration, new, provenance(run, new))
    return record


def store_all(run):
    """Store what the ranks have finished as the run ends, beyond the quota too."""
    run.player.allow()
    store(run)


def refill(run):
    """Deal the window's positions anew from the segments that the checkpoint counts, read by root."""
    world, progress = run.world, run.progress
    end = progress.iteration + (progress.phase == "train")
    oldest = progress.positions_num - replay.window_size(run.config.replay, progress.positions_num)
    found = []
    if world.is_root:
        run.writer.flush()
        found = [s for s in segments(run) if s.iteration < end]
        held = sum(s.positions_num for s in found)
        if held != progress.positions_num and run.writer.ended is None:
            run.logger.warning("%s: the checkpoint counts %d positions before iteration %d, the segments hold %d; the "
                               "run goes on with these", run.folder / "games", progress.positions_num, end, held)
    counts = world.share([s.positions_num for s in found])
    index = progress.positions_num - sum(counts)  # the newest keeps its number, whatever is missing
    for num in counts:
        record = Record.empty(run.game)
        if index + num > oldest:
            if world.is_root:
                record = _read(run, found[0].path)
            _deal(run, record, index)
        found, index = found[1:], index + num
    if run.replay:
        run.replay.forget(oldest)


def provenance(run, record):
    """Return the attributes of a segment with the games of `record`: where they come from.

    `weights` has the SHA-256 of all weights that may have played in these games, oldest first, with blanks between.
    """
    weights = " ".join(run.played_with(record.games["iteration"].min(initial=run.progress.iteration)))
    return {"weights": weights, "host": run.world.host, "ranks": run.world.size, "az_mpi": __version__}


def _deal(run, record, first_index):
    """Give the trainers the positions of every rank's record, the first of this rank's being `first_index`."""
    rows = replay.to_samples(record, run.game, first_index, run.config.train.root_value_share)
    mine = replay.deal(run.world, run.trainers_num, rows, run.config.exchange.compress)
    if run.replay:
        run.replay.add(mine)
