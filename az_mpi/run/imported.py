"""Games that were imported since the newest checkpoint: they count as an iteration that is over. Collective."""

from az_mpi.run.state import Run
from az_mpi.storage import imports


def take_up(run: Run) -> bool:
    """Count the imported games that no checkpoint counts, so that the window gets them; return whether there are any.

    In the middle of a training nothing is done: the iteration that they are stored for then finds them as games that
    an earlier start has played."""
    progress, files, folder = run.progress, run.files, run.setup.folder
    newest = run.world.from_root(lambda: files.read(folder, lambda: imports.newest_iteration(folder)))
    if newest is None or newest < progress.iteration or progress.phase != "play":
        return False
    if newest > progress.iteration:
        run.report.say("the iteration under way ends with the games that it has")
    progress.iteration = newest + 1
    counts = files.totals(progress.iteration) if run.world.is_root else None
    progress.num_games, progress.num_positions = run.world.share(counts)
    run.report.say("the run has imported games: they count as iteration %d", newest)
    return True
