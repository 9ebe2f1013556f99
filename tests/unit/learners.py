"""Learners of one rank in tests: a window of made-up positions, a number of steps, and a resume from a checkpoint."""

import numpy as np
from helpers import CONNECT4, untrained

from az_mpi.storage import checkpoint
from az_mpi.storage.checkpoint import Checkpoint
from az_mpi.train.replay import Samples, sample_dtype

HEADS = untrained().heads
BATCH = 48


def filled(replay, value=None, weight=None):
    """Return a window with 500 positions, always the same but for their value and weight."""
    rng, rows = np.random.default_rng(1), np.zeros(500, sample_dtype(CONNECT4, HEADS))
    rows["state"] = rng.integers(0, 1 << 40, rows["state"].shape)
    policy = rng.dirichlet(np.ones(7), 500)
    rows["value"], rows["weight"] = rng.choice([-1, 0, 1], 500), rng.uniform(0.5, 1.5, 500)
    if value:
        rows["value"], rows["weight"] = value, weight
    replay.add(Samples.of(rows, policy))
    return replay


def train(learner, replay, steps):
    """Take so many optimiser steps."""
    learner.progress.samples_due = steps * BATCH
    assert learner.train(replay, learner.progress, lambda *what: None) == steps and learner.progress.samples_due == 0


def weights(network):
    """Return copies of a network's tensors by name."""
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def saved(learner, folder):
    """Return a learner's state as it comes back from a checkpoint on the disk."""
    state = Checkpoint(learner.progress, learner.average.state_dict(), learner.optimizer_tensors())
    checkpoint.save(folder, state, keep=1)
    [path] = checkpoint.find(folder)
    found = checkpoint.read(path)
    checkpoint.check_fits(path, found, learner.average.state_dict())
    return found


def resume(learner, state):
    """Load a checkpoint as a rank that trains does when a run is resumed."""
    learner.average.load_state_dict(state.model)
    learner.progress = state.progress.copy()
    learner.load(learner.progress, state.optimizer)
