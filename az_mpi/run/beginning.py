"""--from: a new run that begins with the weights of another network. Collective."""

from typing import NamedTuple

import numpy as np
import torch

from az_mpi.config.schema import Config
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game
from az_mpi.games.random_games import random_games
from az_mpi.network.transfer import Transfer, transfer
from az_mpi.run import resume
from az_mpi.run.state import Run
from az_mpi.storage import checkpoint

NUM_COMPARED = 32  # positions on which the two networks are compared
TOLERANCE = 1e-3


def family(name: str) -> str:
    """Return the name of a game, as in a configuration, without its arguments."""
    return name.partition("(")[0].strip()


class Origin(NamedTuple):
    """A network to begin with. text: how the user named it; name: of its game, as in its configuration."""

    text: str
    name: str
    game: Game
    network: torch.nn.Module

    def has_same_board(self, game: Game) -> bool:
        """Return whether its game has the board and the actions of `game`."""
        return self.game.planes_shape[1:] == game.planes_shape[1:] and self.game.num_actions == game.num_actions

    def transfer(self, game: Game, network: torch.nn.Module) -> Transfer:
        """Return what the network of a run, for `game`, takes of this one."""
        ours = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
        return transfer(self.network.state_dict(), ours, self.has_same_board(game))

    def check(self, config: Config, game: Game, network: torch.nn.Module) -> None:
        """Raise Refusal if a run with this configuration, game and new network cannot begin with this one."""
        if family(self.name) != family(config.game):
            raise Refusal(
                f"--from {self.text}: it is a network of {self.name}, and this run is of {config.game}\n"
                "  name a network of the same game"
            )
        found = self.transfer(game, network)
        if not any(layer.startswith("tower") for layer in found.taken + found.widened):
            settings = config.network
            raise Refusal(
                f"--from {self.text}: none of its blocks fits {settings.blocks} x {settings.channels} blocks of the "
                f"kind {settings.block}\n  give the network's own network.block, and as many channels or more"
            )


def begin(run: Run, text: str, origin: Origin | None) -> None:
    """Let a run that has no checkpoint yet begin with the weights of another network, say what was taken, and save a
    checkpoint. Collective. text: how the user named the network. origin: counts on root alone; None if the run had a
    checkpoint when the network was to be read."""
    if run.world.from_root(lambda: origin is None or bool(checkpoint.find(run.setup.folder / "checkpoints"))):
        run.report.say("--from %s is not used: the run has weights of its own", text)
        return
    training = run.training
    found = origin.transfer(run.setup.game, training.network) if origin and run.world.is_root else None
    tensors = checkpoint.broadcast(run.world, found.tensors if found else None)
    training.network.load_state_dict(tensors)
    if training.learner:
        training.learner.network.load_state_dict(tensors)  # what is trained, beside its average
    if origin and found:
        for line in _lines(run, origin, found):
            run.report.say("%s", line)
    run.mark()
    # This start resumes from that checkpoint, and then adds all hours of this process.
    resume.save(run, hours=run.hours_before)
    run.world.barrier()


def _lines(run, origin, found: Transfer):
    yield f"begins with {origin.text}, a network of {origin.name}:"
    for what, layers in (("taken", found.taken), ("widened", found.widened), ("new", found.new)):
        if layers:
            yield f"  {what}: {_in_words(layers)}"
    game = run.setup.game
    if origin.has_same_board(game) and origin.game.planes_shape == game.planes_shape:
        same = _computes_same(game, origin.network, run.training.network)
        yield "  it computes what that network does" if same else "  it computes something else than that network"


def _in_words(layers):
    blocks = {layer.split(".")[1] for layer in layers if layer.startswith("tower.")}
    words = [layer for layer in layers if not layer.startswith("tower.")]
    return ", ".join(([counted(len(blocks), "block")] if blocks else []) + words)


def _computes_same(game, theirs, ours):
    states = np.concatenate([states for states, _ in random_games(game, 8, np.random.default_rng(1))])[::3]
    planes = torch.from_numpy(game.planes(states[:NUM_COMPARED])).float()
    device = next(ours.parameters()).device
    with torch.inference_mode():
        one, other = theirs.cpu()(planes), ours(planes.to(device))
    return all(torch.allclose(one[name], other[name].cpu(), atol=TOLERANCE) for name in one if name in other)
