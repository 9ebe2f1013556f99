"""Evaluations of the network in a run: their results on disk, and the best network so far.

RUN/evaluation.json has the finished matches of an evaluation under way, so that a start after a stop, or the ranks that
are left after a loss, do not play them again.

Every public function here is collective: every rank calls it.
"""

import functools
import json
import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from az_mpi.config.load import without_folders
from az_mpi.core import files
from az_mpi.evaluate import evaluation
from az_mpi.liveness import watchdog
from az_mpi.mpi.control_channel import Total
from az_mpi.network import resnet
from az_mpi.network.evaluators import NetworkEvaluator
from az_mpi.run import ranking, weights
from az_mpi.run.state import Run
from az_mpi.storage import checkpoint, plugin_sources, thinning
from az_mpi.telemetry.metrics import Timers
from az_mpi.telemetry.progress_bar import ProgressBar
from az_mpi.telemetry.summary import evaluation_lines

UNDER_WAY = "evaluation.json"


def is_done(run: Run) -> bool:
    """Return whether the present network has been evaluated already, perhaps before a restart. A network of the same
    iteration that was lost, and trained again, has other weights."""
    file, mine = _evaluation_file(run), _stem_hash(run)

    def look():
        try:
            return files.is_there(file) and files.read_json(file).get("stem", mine) == mine
        except (ValueError, AttributeError):  # damaged: evaluate again
            return False

    return run.world.share(run.world.is_root and bool(run.files.read(file, look)))


def evaluate(run: Run, answer: Callable[[Total], object]) -> None:
    """Evaluate the network, write the result, and keep the network if it is the best so far.

    answer: called with every total of the control channel meanwhile; it may raise Stopped, on every rank alike, which
    loses the match under way, or the work with the solver."""
    timers = Timers(run.world, run.report.status.enter)
    best = load_best(run, before=run.progress.iteration)
    with timers("evaluate"):
        result = measure(run, best, answer, _Kept(run).once)
    threshold = ranking.of_network(run, run.progress.iteration)
    times = timers.take()
    if run.world.is_root:
        result["stem"] = _stem_hash(run)
        match = result["matches"].get("best")
        result["promoted"] = match is None or evaluation.equals_or_beats(match)
        copy, write = run.setup.folder / "best" / f"{run.progress.iteration:06d}.safetensors", run.files.writer.do
        if result["promoted"]:
            # With its threshold, since the games that set it may be removed later (`storage.keep_windows`).
            about = None if math.isnan(threshold) else {"threshold": repr(threshold)}
            tensors = checkpoint.to_bytes(run.training.network.state_dict(), about)
            write(copy, lambda check: files.write_bytes(copy, tensors, before=check))
        else:  # an earlier start may have ended between its evaluation of this iteration and its checkpoint
            write(copy, lambda check: copy.unlink(missing_ok=True))
        run.report.metrics.write("evaluation", run.progress.step, result | times)
        # Last: the evaluation counts as done once this file is there.
        text, file = json.dumps(result, indent=1) + "\n", _evaluation_file(run)
        write(file, lambda check: files.write_bytes(file, text.encode(), before=check))
        # After that: until it counts as done, its matches and the best network before this one are needed.
        matches = run.setup.folder / UNDER_WAY
        write(matches, lambda check: matches.unlink(missing_ok=True))
        keep = run.setup.config.checkpoint.keep_best
        write(copy, lambda check: thinning.thin_networks(copy.parent, keep, check))
        run.setup.callbacks.evaluation(result)


def measure(
    run: Run,
    best: NetworkEvaluator | None,
    answer: Callable[[Total], object] = lambda total: None,
    once: evaluation.Once = evaluation.afresh,
) -> dict[str, Any]:
    """Return `evaluation.evaluate` for the present network, and log its lines.

    best: of the best network so far, or None. answer: see `evaluate`. once: see `evaluation.evaluate`."""
    setup = run.setup
    ours = NetworkEvaluator(setup.game, run.playing.engine)
    ours.threshold = ranking.of_network(run, run.progress.iteration)
    result = evaluation.evaluate(
        run.world,
        setup.config,
        setup.game,
        ours,
        best,
        run.progress.iteration,
        lambda *what: _Shown(run, answer, *what),
        once,
    )
    for line in evaluation_lines(result):
        run.report.say(line)
    return result


class _Kept:
    """The finished matches of the evaluation under way, those of earlier starts among them. Collective."""

    def __init__(self, run: Run):
        self.run, self.path = run, run.setup.folder / UNDER_WAY
        keys = without_folders(run.setup.config)
        deciding = "evaluate.", "search.", "network.engine", "network.precision"
        # What decides the results, beside what never changes in a run. sources: of the user's own files.
        of = {key: keys[key] for key in keys if key.startswith(deciding)}
        of |= {"iteration": run.progress.iteration, "stem": _stem_hash(run)}
        self.of = json.dumps(of | {"sources": plugin_sources.describe(run.setup.config)})
        self.results = run.world.share((run.files.read(self.path, self._look) or {}) if run.world.is_root else None)

    def _look(self):
        """Return {title: result} of the matches that the file has, {} if it is of another evaluation."""
        try:
            told = files.read_json(self.path) if files.is_there(self.path) else {}
            return dict(told["matches"]) if told.get("of") == self.of else {}
        except (ValueError, AttributeError, KeyError, TypeError):  # damaged: play all matches
            return {}

    def once(self, title: str, play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of a match, and play it only if it is not there."""
        if title in self.results:
            self.run.report.say("%s: its result is there already", title)
            return self.results[title]
        result = self.results[title] = play()
        if self.run.world.is_root:
            content = (json.dumps({"of": self.of, "matches": self.results}) + "\n").encode()
            self.run.files.writer.do(self.path, lambda check: files.write_bytes(self.path, content, before=check))
        return result


class _Shown(evaluation.Shown):
    """Follows a match, or work with the solver: shows a progress bar, and answers requests of signals."""

    def __init__(self, run: Run, answer: Callable[[Total], object], name: str, unit: str):
        self.run, self.answer = run, answer
        self.bar = ProgressBar(run.report.logger, run.world.is_root, name, unit, run.report.status)

    def update(self, done, total):
        self.bar.update(done, total)
        watchdog.tick()
        if heard := self.run.control.poll():
            self.answer(heard)

    def finish(self):
        """This rank has done its part. Wait for the others, and answer requests meanwhile."""
        self.run.control.wait(lambda heard: self.answer(heard) or heard.done == self.run.world.size, done=True)
        self.bar.close()


def load_best(run: Run, before: int) -> NetworkEvaluator | None:
    """Return an evaluator of the best network before an iteration, or None if there is none or no opponent needs it."""
    world, playing, network = run.world, run.playing, run.training.network
    if not world.from_root(lambda: evaluation.plays_best(run.setup.config, run.setup.game)):
        return None
    folder = run.setup.folder / "best"
    look = functools.partial(_newest_best, folder, before, network, run.report.logger)
    tensors, iteration, threshold = world.on_root(lambda: run.files.read(folder, look)) or (None, 0, None)
    there, iteration, threshold = world.share([tensors is not None, iteration, threshold])
    if not there:
        return None
    network = deepcopy(network)
    network.load_state_dict(weights.grown(run, checkpoint.broadcast(world, tensors)))
    if playing.best_engine is None:
        playing.best_engine = run.setup.make_engine(network)[0]
        playing.best_engine.prepare(playing.player.batch_max)
    # Not a new engine each time: some libraries never free all memory of an engine.
    playing.load(playing.best_engine, network)
    best = NetworkEvaluator(run.setup.game, playing.best_engine)
    best.threshold = ranking.of_network(run, iteration) if threshold is None else float(threshold)
    return best


def _newest_best(folder, before, network, logger):
    """Return (the tensors, the iteration, the threshold or None) of the newest whole file of a best network before an
    iteration, or None. Raises OSError if the file system fails for a while. Not collective."""
    paths = [folder / name for name in files.names(folder) if name.endswith(".safetensors")]
    paths = [path for path in paths if path.stem.isdecimal() and int(path.stem) < before]
    for path in sorted(paths, reverse=True):
        try:
            tensors, about = checkpoint.from_bytes_with_about(files.read(path, files.DATA_BYTES_MAX))
            checkpoint.check_finite(tensors)
            if lines := checkpoint.differences(tensors, network.state_dict()):
                raise ValueError(f"it is another network's: {lines[0]}")
            return tensors, int(path.stem), about.get("threshold")
        except (OSError, ValueError) as error:
            if files.unavailable(error):
                raise
            logger.warning("damaged: %s: %s; an older best network is played, if there is one", path, error)
    return None


def _stem_hash(run):
    """Return a hash by which the present network is known. It leaves the tower out: one that has grown since then
    computes the same."""
    return resnet.weights_hash(run.training.network.stem)


def _evaluation_file(run):
    return run.setup.folder / "evaluations" / f"{run.progress.iteration:06d}.json"
