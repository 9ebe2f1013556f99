"""Judging the network: matches and the exact solver, what they found on disk, and the best network so far.

Every function here is collective: every rank calls it.
"""

import copy
import functools
import json

from safetensors import SafetensorError

from az_mpi.core import files
from az_mpi.evaluate import evaluation
from az_mpi.liveness import watchdog
from az_mpi.network.evaluators import NetworkEvaluator
from az_mpi.report.console import ProgressBar
from az_mpi.report.metrics import Timers
from az_mpi.report.summary import evaluation_lines
from az_mpi.run import resume
from az_mpi.storage import checkpoint
from az_mpi.storage.writer import insist


def judged(run):
    """Return whether the network as it is now has been judged already, perhaps before a restart."""
    file = _evaluation_file(run)
    return run.world.share(run.world.is_root and bool(insist(run.writer, file, lambda: files.is_there(file))))


def evaluate(run):
    """Play the configured matches, write their result, and keep the network if it is the best so far."""
    world, iteration_index = run.world, run.progress.iteration
    best = load_best(run, before=iteration_index)
    timers = Timers(world, run.status.enter)
    with timers("evaluate"):
        result = verdict(run, best)
    times = timers.take()
    if world.is_root:
        match = result["matches"].get("best")
        result["promoted"] = match is None or match["score"] >= 0.5
        file = run.folder / "best" / f"{iteration_index:06d}.safetensors"
        if result["promoted"]:
            tensors = checkpoint.to_bytes(run.network.state_dict())
            run.writer.do(file, lambda check, file=file: files.write_bytes(file, tensors, before=check))
        else:  # of an attempt that ended before it could save this iteration
            run.writer.do(file, lambda check, file=file: file.unlink(missing_ok=True))
        run.metrics.write("evaluation", run.progress.step, result | times)
        # The file's appearance commits the evaluation: it comes last.
        text = json.dumps(result, indent=1) + "\n"
        file = _evaluation_file(run)
        run.writer.do(file, lambda check, file=file: files.write_bytes(file, text.encode(), before=check))
    return result


def verdict(run, best):
    """Return what the configured matches and the exact solver say of the network as it is now."""
    ours = NetworkEvaluator(run.game, run.engine)
    result = evaluation.evaluate(run.world, run.config, run.game, ours, best, run.progress.iteration,
                                 lambda *what: _Watched(run, *what))
    for line in evaluation_lines(result):
        run.say(line)
    return result


class _Watched:
    """A match, or work with the solver, as `evaluation.evaluate` tells of it: a progress bar, and requests of
    signals. To stop within loses nothing but the match."""

    def __init__(self, run, name, unit):
        self.run, self.bar = run, ProgressBar(run.logger, run.world.is_root, name, unit, run.status)

    def update(self, done, total):
        self.bar.update(done, total)
        watchdog.tick()
        if heard := self.run.control.look():
            self._answer(heard)

    def finish(self):
        """This rank has done its part. Wait for the others, which may be asked to stop."""
        self.run.control.wait(lambda heard: self._answer(heard) or heard.done == self.run.world.size, done=True)
        self.bar.close()

    def _answer(self, heard):
        if heard.save:
            resume.answer_save(self.run)
        if heard.stop:
            resume.leave(self.run)


def load_best(run, before):
    """Return an evaluator of the best network found before an iteration, or None where there is none."""
    world = run.world
    tensors = None

    def look():
        nonlocal tensors
        tensors = insist(run.writer, run.folder / "best", functools.partial(_newest_best, run, before))
        return tensors is not None

    if not world.from_root(look):
        return None
    network = copy.deepcopy(run.network)
    network.load_state_dict(checkpoint.broadcast(world, tensors))
    if run.best_engine is None:
        run.best_engine = run.make_engine(network)[0]
    else:  # an engine that is made anew each time can take memory that its library never gives back
        run.best_engine.load(network)
    return NetworkEvaluator(run.game, run.best_engine)


def _newest_best(run, before):
    """Return the tensors of the newest whole file of a best network before an iteration, or None. Raises OSError where
    the file system fails, perhaps for a while. Not collective."""
    paths = [run.folder / "best" / name for name in files.names(run.folder / "best") if name.endswith(".safetensors")]
    paths = [path for path in paths if path.stem.isdecimal() and int(path.stem) < before]
    for path in sorted(paths, reverse=True):
        try:
            tensors = checkpoint.from_bytes(files.read(path, files.DATA_BYTES_MAX))
            checkpoint.check_finite(tensors)
            if lines := checkpoint.differences(tensors, run.network.state_dict()):
                raise ValueError(f"it is another network's: {lines[0]}")
            return tensors
        except (OSError, SafetensorError, ValueError) as error:
            if files.unavailable(error):
                raise
            run.logger.warning("damaged: %s: %s; an older best network is played, if there is one", path, error)
    return None


def _evaluation_file(run):
    return run.folder / "evaluations" / f"{run.progress.iteration:06d}.json"
