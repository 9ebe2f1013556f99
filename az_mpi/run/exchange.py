"""The exchange: finished games go to segments on disk, and their positions to the trainers' windows in memory.

Every function here but `provenance`, `oldest` and `committed` is collective: every rank calls it.
"""

from typing import Any

from az_mpi import __version__
from az_mpi.run import ranking
from az_mpi.run.state import Run
from az_mpi.selfplay import ranked
from az_mpi.selfplay.record import Record
from az_mpi.train import replay


def committed(run: Run) -> Record:
    """Return on root the games of this iteration that an earlier start has stored, and an empty record elsewhere."""
    files = run.files
    return files.games_of(run.progress.iteration) if run.world.is_root else Record.empty(files.game)


def exchange(run: Run, old: Record) -> int:
    """Store this rank's new games, deal their positions and those of `old` to the trainers, and return the number of
    positions dealt by all ranks.

    old: the result of `committed` at the first exchange of an iteration, then an empty record.
    """
    world, progress, playing, training = run.world, run.progress, run.playing, run.training
    sent_before = world.sent_bytes
    record = store(run)
    # Only root has old games. Their positions are numbered first.
    num_games, num_positions = len(old.games) + len(record.games), [len(old.positions), len(record.positions)]
    num_unwritten = run.files.writer.num_unwritten if run.writers.is_one else None
    counts = world.collect([*num_positions, num_games, playing.player.num_unfinished, num_unwritten])
    # Games that are on disk need not be kept any longer.
    kept = counts[run.writers.rank][4]
    playing.unacknowledged = playing.unacknowledged[max(len(playing.unacknowledged) - kept, 0) :]
    before = counts[0][0] + sum(count[1] for count in counts[: world.rank])
    threshold, seed = playing.threshold.result, run.setup.config.seed
    deal(run, ranked.ranked(old, threshold, seed), progress.num_positions)
    deal(run, ranked.ranked(record, threshold, seed), progress.num_positions + before)
    made = sum(count[0] + count[1] for count in counts)
    progress.num_positions += made
    progress.num_games += sum(count[2] for count in counts)
    progress.unfinished_games = sum(count[3] for count in counts)
    if training.replay:
        training.replay.forget(oldest(run))
    counters = run.report.counters
    counters.add_games(record, progress.iteration, run.setup.config.selfplay.resign_threshold)
    counters.num_exchanges += 1
    counters.exchange_bytes += world.sent_bytes - sent_before
    return made


def store(run: Run) -> Record:
    """Hand the finished games of each group of ranks to its writer, as one segment; return those of this rank."""
    writers, unacknowledged, compress = run.writers, run.playing.unacknowledged, run.setup.config.exchange.compress
    group, record, iteration = writers.group, run.playing.player.take(), run.games_iteration
    unacknowledged.append((iteration, record))  # first: the games must survive a loss in the collectives below
    run.setup.callbacks.games(record)
    if group.survives and group.size > 1:  # rank 1 keeps the writer's games too: it may be lost before they are on disk
        unacknowledged[-1] = iteration, Record.join(run.setup.game, [record, record.copy_to_rank_1(group, compress)])
    new = record.gather(group, compress)
    number = writers.next_number(run.world, run.files, iteration)
    if writers.is_one and number != -1:
        run.files.writer.submit(iteration, new, provenance(run, new), number)
    return record


def settle(run: Run) -> bool:
    """Wait until the games that all writers were given are on disk, and let root renew the links to them; return false
    if a writer has ended before. Does nothing where root is the only writer: it does its work in order."""
    if not run.writers.are_several:
        return True
    run.files.flush()
    ends = run.world.collect(run.files.end is not None)
    if run.world.is_root:
        run.files.writer.submit(run.games_iteration, Record.empty(run.setup.game), {})
    return not any(ends)


def store_all(run: Run) -> None:
    """Store all finished games, those beyond the quota too, since the run ends."""
    run.playing.player.allow()
    store(run)


def refill(run: Run) -> None:
    """Fill the window from the segments before the checkpoint: root reads them and deals their positions."""
    world, progress, files = run.world, run.progress, run.files
    first, found, rank = oldest(run), [], ranking.ranker(run)
    if world.is_root:
        files.writer.flush()
        found = [s for s in files.segments() if s.iteration < run.games_iteration]
        held = files.removed().num_positions + sum(s.num_positions for s in found)
        if held != progress.num_positions and not files.writes_no_more:
            run.report.warn(
                "%s: the checkpoint counts %d positions before iteration %d, the segments hold %d; the run "
                "continues with those",
                files.folder / "games",
                progress.num_positions,
                run.games_iteration,
                held,
            )
    counts = world.share([s.num_positions for s in found])
    index = progress.num_positions - sum(counts)  # the newest position keeps its number if some are missing
    for place, num in enumerate(counts):
        if index + num > first:
            record = Record.empty(files.game)
            if world.is_root:
                record = rank(files.games_in(found[place].path), found[place].iteration)
            deal(run, record, index)
        index += num
    if run.training.replay:
        run.training.replay.forget(first)


def provenance(run: Run, record: Record) -> dict[str, Any]:
    """Return the origin of the games of `record`, as attributes of their segment.

    `weights`: the SHA-256 of all weights that may have played in these games, oldest first, separated by blanks.
    """
    weights = " ".join(run.playing.played_with(record.games["iteration"].min(initial=run.progress.iteration)))
    return {"weights": weights, "host": run.world.host, "ranks": run.world.size, "az_mpi": __version__}


def oldest(run: Run) -> int:
    """Return the number of the oldest position in the window; below 0 if it has room for more. Not collective."""
    num_positions = run.progress.num_positions
    return num_positions - replay.window_size(run.setup.config.replay, num_positions)


def deal(run: Run, record: Record, first_index: int) -> None:
    """Deal every rank's record, with what its games count (`ranking.ranker`), to the trainers. first_index: the number
    of the first position of this rank's record."""
    config, training = run.setup.config, run.training
    samples = replay.to_samples(record, run.setup.game, training.network.heads, config.train, first_index)
    mine = replay.deal(run.world, training.num_trainers, samples, config.exchange.compress)
    if training.replay:
        training.replay.add(mine)
