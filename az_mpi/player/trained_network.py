"""A trained network with its game and configuration, from a run or from a file that `export` wrote."""

import inspect
import json
import logging
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from az_mpi import __version__, games
from az_mpi.config import load as configuration
from az_mpi.config.schema import Config
from az_mpi.core import files
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import GAMES, parse
from az_mpi.games.base import Game, described_planes
from az_mpi.network import onnx_file, resnet
from az_mpi.network.engines.engine import played
from az_mpi.player.network_paths import none_whole, not_exported, run_above, run_of, zoo_file
from az_mpi.storage import checkpoint, run_folder

KEPT = ("game", "seed", "network", "search")  # what a file keeps of the configuration
NAMED_MAX = 1000  # actions whose names a file has


class TrainedNetwork(NamedTuple):
    """A network on the CPU, with its game and configuration. iteration: after how many it was saved. run: the folder of
    the run that it is from; None if it is from a file that `export` wrote. threshold: see `Evaluator.threshold`."""

    config: Config
    game: Game
    network: resnet.ResNet
    iteration: int
    run: Path | None = None
    threshold: float = math.nan

    def about(self) -> dict[str, str]:
        """Return what a file says of the network: {name: text}, all but the version and the game as JSON."""
        config = self.config.model_copy(update={"search": self.config.match_search()})
        values = configuration.nested(configuration.without_folders(config))  # it may be read on another machine
        kept = {name: value for name, value in values.items() if name in KEPT}
        outputs = list(self.network.heads)
        planes, board = described_planes(self.game)
        rows = {
            "iteration": self.iteration,
            "planes_shape": self.game.planes_shape,
            "planes": planes,
            "planes_rows": board,
            "players": self.game.num_players,
            "outcomes": self.game.num_outcomes,  # of a move of chance at most; 0: there is none
            "heads": outputs,
            "actions": self._names_of_actions(),
            "config": kept,
        }
        rows |= {} if math.isnan(self.threshold) else {"threshold": self.threshold}
        return {"az_mpi": __version__, "game": self.game.name} | {name: json.dumps(row) for name, row in rows.items()}

    def _names_of_actions(self):
        """Return the actions in the game's notation, as each of the two players writes them; None where there are
        many, or a library would have to be asked for illegal ones."""
        game = self.game
        name = parse(self.config.game)
        if game.num_actions > NAMED_MAX or ":" in name.attribute or game.num_players != 2 or game.num_outcomes:
            return None
        first = game.initial(1)
        second = game.play(first, np.argmax(game.legal(first), axis=1))
        return [[_text(game, states[0], action) for action in range(game.num_actions)] for states in (first, second)]


def _text(game, state, action):
    try:
        return game.action_to_text(state, action)
    except Exception:  # of an action that is never legal here
        return None


def read(path: str | Path) -> TrainedNetwork:
    """Return the network at a path: a run's folder, for its newest checkpoint; a checkpoint, or a file of weights, in a
    run's folder; an ONNX or safetensors file that `export` wrote; or a name in the zoo. Raises Refusal."""
    in_zoo = zoo_file(path)
    path = Path(path)
    if in_zoo:
        return _of_file(in_zoo, checkpoint.from_bytes_with_about)
    if path.suffix == ".onnx":
        return _of_file(path, onnx_file.read)
    if path.suffix == ".safetensors" and not run_above(path):
        return _of_file(path, checkpoint.from_bytes_with_about)
    run = run_of(path)
    config = run_folder.recorded_config(run)
    game, network = _built(config)
    tensors, iteration, told = _weights(path, run, network.state_dict())
    filled = _filled(config, game, network, tensors, iteration, path, f"the network of {run}")
    threshold = _threshold(run, config, game, iteration) if told is None else float(told)
    return filled._replace(run=run, threshold=threshold)


def _threshold(run, config, game, iteration):
    """Return what the network after so many complete iterations ranks results by: what those of the last one did."""
    if not config.selfplay.ranked_reward:
        return math.nan
    from az_mpi.storage import thresholds  # not at the top: it loads HDF5

    try:
        return thresholds.of_iteration(run / "games", config, game, iteration - 1).result
    except OSError as error:
        raise Refusal(f"{run / 'games'} cannot be read: {error}") from error


def at_size(trained: TrainedNetwork, columns: int, rows: int) -> Game:
    """Return the game of a network on a board of another size, if all that the network computes in play is of cells or
    of means over them, so that it plays there as it is. Raises ValueError, which says why it cannot."""
    name = parse(trained.config.game)
    if name == parse("gomoku"):
        name = parse("mnk(k=5)")
    known = inspect.signature(GAMES.find(str(name))).parameters
    keys = [("size", "size"), ("columns", "rows"), ("m", "n")]
    across, down = next((pair for pair in keys if known.keys() >= set(pair)), ("", ""))
    learned = f"{trained.game.planes_shape[2]} x {trained.game.planes_shape[1]}"
    if not across or across == down and columns != rows:
        raise ValueError(f"the network plays {learned} alone")
    try:
        game = games.make(str(name._replace(arguments=name.arguments | {across: columns, down: rows})))
    except Refusal as error:
        raise ValueError(str(error).splitlines()[-1].strip()) from None
    planes = torch.zeros((1, *game.planes_shape))
    try:
        with torch.inference_mode():
            logits = played(trained.network)(planes)["policy"]
    except RuntimeError:  # a layer that reads all cells has weights for each
        raise ValueError(f"the network plays {learned} alone, since it has weights for each cell") from None
    if logits.shape != (1, game.num_actions):
        raise ValueError(f"the network plays {learned} alone")
    return game


def _of_file(path, read):
    try:
        tensors, about = read(files.read(path, files.DATA_BYTES_MAX))
        if "config" not in about:
            raise ValueError("it does not say which game it is for")
        data = json.loads(about["config"])
        iteration, threshold = int(about["iteration"]), float(about.get("threshold", "nan"))
    except (OSError, ValueError, KeyError) as error:
        raise not_exported(path, error) from error
    config = configuration.validate(data, f"the configuration in {path}", folders=[path.parent, Path.cwd()])
    game, network = _built(config)
    filled = _filled(config, game, network, tensors, iteration, path, "its configuration")
    return filled._replace(threshold=threshold)


def _built(config):
    game = games.make(config.game)
    return game, resnet.build(game, config.network, config.seed)


def _filled(config, game, network, tensors, iteration, path, what) -> "TrainedNetwork":
    if lines := checkpoint.differences(tensors, network.state_dict()):
        raise Refusal(f"{path} does not fit {what}: {lines[0]}")
    network.load_state_dict(tensors | checkpoint.added_blocks(tensors, network.state_dict()))  # as they begin
    return TrainedNetwork(config, game, network.eval(), iteration)


def _weights(path: Path, run: Path, ours: dict[str, torch.Tensor]) -> tuple[dict[str, Any], int, str | None]:
    """Return (the weights at `path`, tensors by name; their iteration; the threshold stored with them, if any). ours:
    those of the run's network, for comparison."""
    try:
        if path.is_file():
            iteration = int(path.stem) if path.stem.isdecimal() else 0
            tensors, about = checkpoint.from_bytes_with_about(files.read(path, files.DATA_BYTES_MAX))
            return tensors, iteration, about.get("threshold")
        if (path / "state.json").is_file():
            found = checkpoint.read(path)
        elif path != run:
            raise Refusal(
                f"{path}: there is no checkpoint and no file of weights of this name\n"
                f"  {run}/checkpoints and {run}/best have them; name the run itself for its newest one"
            )
        else:
            found, lines = checkpoint.load_newest(run / "checkpoints", set_aside=False, ours=ours)
            for line in lines:
                logging.getLogger("az_mpi").warning(line)
            if found is None:
                raise none_whole(run)
        return found.model, found.progress.iteration, None
    except Refusal:
        raise
    except Exception as error:  # safetensors has errors of its own
        raise Refusal(f"{path} cannot be read: {error}") from error
