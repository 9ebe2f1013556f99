"""Runs whose network is not just the newest weights: an average plays, or the tower grows."""

import h5py
import pytest
from jobs import SMALL, records
from safetensors.torch import load_file

from az_mpi import games
from az_mpi.network import resnet
from az_mpi.storage import checkpoint
from az_mpi.storage.run_folder import recorded_config

pytestmark = pytest.mark.mpi


def state_after(folder, iteration):
    return checkpoint.read(folder / "checkpoints" / f"{iteration:06d}")


def hash_of(folder, tensors):
    config = recorded_config(folder)
    network = resnet.build(games.make(config.game), config.network, config.seed)
    network.load_state_dict(tensors)
    return resnet.weights_hash(network)


def test_an_average_plays_and_a_resumed_run_is_the_unbroken_one(run_dist, tmp_path):
    """One rank trains. The other one plays with the average that it receives."""
    options = [*SMALL, "--set", "train.ema_decay=0.9", "--set", "train.schedule=constant", "--set", "train.ranks=1"]
    run_dist(2, tmp_path / "one", *options, "--set", "iterations=2")
    run_dist(2, tmp_path / "two", *options, "--set", "iterations=1")
    run_dist(2, tmp_path / "two", *options, "--set", "iterations=2")
    one, two = (state_after(tmp_path / name, 2) for name in ("one", "two"))
    for ours, theirs in ((one.model, two.model), (one.optimizer, two.optimizer)):
        assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)
    assert not one.model["stem.weight"].equal(one.optimizer["stem.weight.raw"])
    played = hash_of(tmp_path / "one", state_after(tmp_path / "one", 1).model)
    with h5py.File(sorted((tmp_path / "one" / "games").glob("*.h5"))[-1]) as segment:
        assert segment.attrs["weights"] == played
    [best] = (tmp_path / "one" / "best").iterdir()
    assert all(tensor.equal(one.model[name]) for name, tensor in load_file(best).items())


def test_a_run_with_more_blocks_resumes_and_trains_the_new_ones(run_dist, tmp_path):
    folder, options = tmp_path / "run", [*SMALL, "--set", "evaluate.every=1", "--set", 'evaluate.opponents=["best"]']
    before = run_dist(2, folder, *options, "--set", "network.blocks=1", "--set", "iterations=1")
    grown = run_dist(2, folder, *options, "--set", "network.blocks=3", "--set", "iterations=3")
    assert "the tower grows from 1 to 3 blocks" in grown.stdout and "the tower grows" not in before.stdout
    assert "damaged" not in grown.stdout + grown.stderr
    evaluations = records(folder, "evaluation")
    assert [bool(record["matches"]) for record in evaluations] == [False, True, True]
    state = state_after(folder, 3)
    assert state.progress.iteration == 3 and state.model["tower.2.second.weight"].any()
    first, _, last = (record["num_steps"] for record in records(folder, "iteration"))
    assert state.optimizer["stem.weight.step"] - state.optimizer["tower.2.first.weight.step"] == first > 0 < last
