"""Checkpoints that tests make, damage and compare."""

import torch

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network import resnet
from az_mpi.storage.checkpoint import Checkpoint, Progress

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "sha256")


def make(iteration, seed=1):
    network = resnet.build(games.make("tictactoe"), models.Network(blocks=1, channels=8), seed)
    optimizer = {"stem.weight.exp_avg": torch.rand(8, 2, 3, 3), "stem.weight.step": torch.tensor(float(iteration))}
    progress = Progress(
        iteration, step=10 * iteration, samples_due=0.1 + iteration, num_games=7, num_positions=60, unfinished_games=3
    )
    return Checkpoint(progress, network.state_dict(), optimizer)


def same_tensors(one, other):
    """Whether the names, types, shapes and bits are the same."""
    return list(sorted(one)) == list(sorted(other)) and all(
        one[k].dtype == other[k].dtype
        and one[k].shape == other[k].shape
        and one[k].contiguous().numpy().tobytes() == other[k].contiguous().numpy().tobytes()
        for k in one
    )


def assert_same(found, expected):
    assert found.progress == expected.progress
    assert same_tensors(found.model, expected.model) and same_tensors(found.optimizer, expected.optimizer)


def flip(path):
    """Flip one bit in the middle of the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
