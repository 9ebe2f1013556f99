"""The loss: numbers by hand, and parts of a batch that add up to the whole."""

import math

import numpy as np
import pytest
import torch

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network import resnet
from az_mpi.train.loss import losses

GAME = games.make("tictactoe")


class Fixed:
    """A network that says what it was told to."""

    heads = resnet.build(GAME, models.Network(blocks=1, channels=8), 1).heads

    def __init__(self, logits, value):
        self.answer = {"policy": torch.tensor(logits), "value": torch.tensor(value)}

    def __call__(self, planes):
        return self.answer


def batch(policy, value, weight):
    parts = {"planes": [0] * len(value), "policy": policy, "value": value, "weight": weight}
    return {name: torch.tensor(part, dtype=torch.float32) for name, part in parts.items()}


# The logarithms of 1, 2, 5 give probabilities 1/8, 2/8, 5/8.
LOGITS = [[math.log(1), math.log(2), math.log(5)], [0.0, 0.0, 0.0]]
POLICY, VALUE = [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [1.0, -0.5]
CROSS_ENTROPY = [0.5 * math.log(8) + 0.5 * math.log(4), math.log(3)]
SQUARED_ERROR = [0.25**2, 0.75**2]  # against 0.75 and 0.25


@pytest.mark.parametrize("weight", [[1, 1], [2, 0.5], [0, 3]])
def test_two_positions_by_hand(weight):
    found = losses(Fixed(LOGITS, [0.75, 0.25]), batch(POLICY, VALUE, weight))
    assert list(found) == ["policy", "value"]
    assert found["policy"].item() == pytest.approx(np.dot(weight, CROSS_ENTROPY), rel=1e-6)
    assert found["value"].item() == pytest.approx(np.dot(weight, SQUARED_ERROR), rel=1e-6)


def test_actions_that_are_not_legal_are_left_out():
    """Without the third action the probabilities are 1/3 and 2/3; its logit gets no gradient."""
    network = Fixed(LOGITS[:1], [0.0])
    network.answer["policy"].requires_grad_()
    found = losses(network, batch([[0.5, 0.5, -1.0]], [0.0], [1]))["policy"]
    assert found.item() == pytest.approx(0.5 * math.log(3) + 0.5 * math.log(1.5), rel=1e-6)
    found.backward()
    assert network.answer["policy"].grad.tolist()[0] == pytest.approx([1 / 3 - 1 / 2, 2 / 3 - 1 / 2, 0], abs=1e-6)


def test_value_loss_is_about_the_sign():
    """A sure win called a sure loss costs 4."""
    found = losses(Fixed([[0.0, 0.0]], [-1.0]), batch([[1, 0]], [1.0], [1]))
    assert found["value"].item() == 4


def test_a_perfect_policy_costs_its_entropy():
    entropy = -sum(p * math.log(p) for p in (1 / 8, 2 / 8, 5 / 8))
    found = losses(Fixed(LOGITS[:1], [0.0]), batch([[1 / 8, 2 / 8, 5 / 8]], [0.0], [1]))
    assert found["policy"].item() == pytest.approx(entropy, rel=1e-6)


def test_illegal_actions_with_tiny_probability_cost_nothing():
    """The target is 0 where the logit is very low, and the loss is not 0 times infinity."""
    found = losses(Fixed([[0.0, -1e30]], [0.0]), batch([[1, 0]], [0.0], [1]))
    assert found["policy"].item() == 0


@pytest.fixture(scope="module")
def network_and_batch():
    game, rng = games.make("tictactoe"), np.random.default_rng(0)
    network = resnet.build(game, models.Network(blocks=1, channels=8), 1)
    with torch.no_grad():
        for head in network.heads.values():
            head.out.weight.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))
    planes = torch.from_numpy(rng.integers(0, 2, (10, 2, 3, 3))).float()
    policy = torch.from_numpy(rng.dirichlet(np.ones(9), 10)).float()
    value, weight = (torch.from_numpy(rng.uniform(low, 1, 10)).float() for low in (-1, 0))
    return network, {"planes": planes, "policy": policy, "value": value, "weight": weight}


def test_an_empty_batch_costs_nothing_and_has_zero_gradients(network_and_batch):
    """A trainer whose shard is empty takes part in the same step."""
    network, whole = network_and_batch
    network.zero_grad()
    parts = losses(network, {name: part[:0] for name, part in whole.items()}).values()
    assert [part.item() for part in parts] == [0, 0]
    sum(parts).backward()
    assert all(p.grad is not None and not p.grad.any() for p in network.parameters())


@pytest.mark.parametrize("cut", [0, 1, 5, 9])
def test_losses_and_gradients_of_parts_add_up_to_those_of_the_whole(network_and_batch, cut):
    network, whole = network_and_batch

    def run(rows):
        network.zero_grad()
        parts = losses(network, {name: part[rows] for name, part in whole.items()}).values()
        sum(parts).backward()
        return [part.item() for part in parts], torch.cat([p.grad.flatten() for p in network.parameters()])

    one, two, all_rows = run(slice(0, cut)), run(slice(cut, None)), run(slice(None))
    assert np.add(one[0], two[0]) == pytest.approx(all_rows[0], rel=1e-5)
    assert torch.allclose(one[1] + two[1], all_rows[1], rtol=1e-4, atol=1e-5)
