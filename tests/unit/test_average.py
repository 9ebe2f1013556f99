"""train.ema_decay: an average of the weights plays, and the weights themselves are trained."""

import pytest
import torch
from helpers import CONNECT4, make_config
from learners import BATCH, HEADS, filled, resume, saved, train, weights

from az_mpi.network import resnet
from az_mpi.storage.checkpoint import Progress
from az_mpi.train import backends
from az_mpi.train.learner import Learner
from az_mpi.train.replay import Replay


@pytest.fixture(scope="module")
def replay():
    return filled(Replay(CONNECT4, HEADS))


@pytest.fixture
def make_learner(world):
    def make(decay):
        config = make_config(
            "connect4",
            seed=3,
            network={"blocks": 1, "channels": 8},
            train={"batch_size": BATCH, "replay_ratio": 1.0, "mixed_precision": False, "ema_decay": decay},
        )
        network = resnet.build(CONNECT4, config.network, 3)
        learner = Learner(config, CONNECT4, network, backends.make("ddp", world, world, "cpu"), "cpu")
        learner.progress = Progress()  # of the test
        return learner

    return make


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_average_is_the_sum_over_all_steps(make_learner, replay):
    """After n steps: d^n w_0 + (1 - d) sum over k of d^(n - k) w_k; the weights are those without an average."""
    averaging, plain, decay = make_learner(0.75), make_learner(0.0), 0.75
    seen = [weights(plain.network)]
    for _ in range(4):
        train(averaging, replay, 1)
        train(plain, replay, 1)
        seen.append(weights(plain.network))
    assert same(weights(averaging.network), seen[-1])
    for name, mean in averaging.average.state_dict().items():
        expected = decay**4 * seen[0][name].double()
        expected += sum((1 - decay) * decay ** (4 - k) * seen[k][name].double() for k in (1, 2, 3, 4))
        torch.testing.assert_close(mean.double(), expected, rtol=1e-5, atol=1e-7)
        assert not torch.equal(mean, seen[-1][name])


def test_without_an_average_the_trained_network_plays(make_learner, replay):
    learner = make_learner(0.0)
    train(learner, replay, 2)
    assert learner.average is learner.network
    assert {key.rpartition(".")[2] for key in learner.optimizer_tensors()} == {"step", "exp_avg", "exp_avg_sq"}


def test_a_step_that_is_skipped_leaves_the_average_alone(make_learner):
    learner = make_learner(0.5)
    before = weights(learner.average)
    train(learner, filled(Replay(CONNECT4, HEADS), float("nan"), 1.0), 1)
    assert learner.progress.bad_steps == 1 and same(weights(learner.average), before)


def test_training_continues_from_a_checkpoint_to_the_same_bits(make_learner, replay, tmp_path):
    unbroken, broken, resumed = (make_learner(0.9) for _ in range(3))
    train(unbroken, replay, 5)
    train(broken, replay, 2)
    resume(resumed, saved(broken, tmp_path))
    train(resumed, replay, 3)
    assert same(weights(resumed.network), weights(unbroken.network))
    assert same(weights(resumed.average), weights(unbroken.average))
    assert same(resumed.optimizer_tensors(), unbroken.optimizer_tensors())


def test_the_average_of_a_run_without_one_begins_at_its_weights(make_learner, replay, tmp_path):
    old, new = make_learner(0.0), make_learner(0.9)
    train(old, replay, 2)
    resume(new, saved(old, tmp_path))
    assert same(weights(new.network), weights(old.network)) and same(weights(new.average), weights(old.network))
    train(old, replay, 2)
    train(new, replay, 2)
    assert same(weights(new.network), weights(old.network)) and not same(weights(new.average), weights(old.network))


def test_a_run_that_stops_averaging_continues_with_the_trained_weights(make_learner, replay, tmp_path):
    averaging, plain = make_learner(0.9), make_learner(0.0)
    train(averaging, replay, 3)
    resume(plain, saved(averaging, tmp_path))
    assert same(weights(plain.average), weights(averaging.network))
    train(averaging, replay, 1)
    train(plain, replay, 1)
    assert same(weights(plain.network), weights(averaging.network))
