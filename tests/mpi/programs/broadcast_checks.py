"""Whoever trains, after a broadcast every rank has root's weights to the bit, and they travel only to those that did
not have them."""

from types import SimpleNamespace

import torch

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config import schema as models
from az_mpi.mpi.world import World
from az_mpi.network import resnet
from az_mpi.network.engines.engine import Engine
from az_mpi.report.counters import Counters
from az_mpi.run import weights
from az_mpi.run.state import Training


def check(world, trainers_num):
    trains, loaded = world.rank < trainers_num, []
    seed = 1 if trains else 2 + world.rank
    game = games.make("connect4")
    network = resnet.build(game, models.Network(blocks=2, channels=16), seed)
    if trains:  # values that no shorter format has
        with torch.no_grad():
            network.heads["policy"].out.weight.normal_(generator=torch.Generator().manual_seed(7))
    setup = SimpleNamespace(config=configuration.validate({"game": "connect4", "fault": {"copy_every": 0}}, "test"),
                            game=game)
    training, report = Training.make(setup, world, None, trainers_num, network), SimpleNamespace(counters=Counters())
    training.learner = trains or None
    playing = SimpleNamespace(load_weights=lambda network, *_: loaded.append(resnet.weights_hash(network)),
                              engine=Engine())
    run = SimpleNamespace(world=world, training=training, report=report, playing=playing, games_iteration=0,
                          progress=SimpleNamespace(step=0))
    before, counted = resnet.weights_hash(network), World.sent_bytes
    weights.broadcast_weights(run)
    assert world.agree(loaded) == [] and len(loaded) == 1
    assert (loaded == [before]) == trains
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    expected = size * (world.size - trainers_num) * world.is_root
    assert report.counters.broadcast_bytes == expected == World.sent_bytes - counted


def main():
    world = World.start()
    for trainers_num in range(1, world.size + 1):
        check(world, trainers_num)
    print("all checks passed")


main()
