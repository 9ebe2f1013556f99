"""Networks whose convolutions also take the skip connection and the ReLU. cuDNN's operations need a GPU, where
test_blocks.py has them; here they are what cuDNN's documentation says they are."""

import pytest
import torch
from helpers import float_planes, positions, trained
from torch.nn import functional as F

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network.engines.fused import fused

# In a tower of 4 blocks of each kind, with the first layer: ReLUs right behind a convolution, or behind the sum of one
# and an array of the same shape. `global_pooling` adds a bias for each channel before one, in every second block.
FUSED = {"residual": 1 + 4 * 2, "bottleneck": 1 + 4 * 6, "squeeze_excitation": 1 + 4 * 2, "global_pooling": 1 + 4 * 2}


@pytest.fixture
def calls(monkeypatch):
    """The skip connection, or None, of each of cuDNN's operations that was called, in order."""
    called = []

    def convolution_relu(x, weight, bias, stride, padding, dilation, groups):
        called.append(None)
        return F.relu(F.conv2d(x, weight, bias, stride, padding, dilation, groups))

    def convolution_add_relu(x, weight, z, alpha, bias, stride, padding, dilation, groups):
        called.append(z)
        made = F.conv2d(x, weight, bias, stride, padding, dilation, groups)
        assert z.shape == made.shape  # cuDNN does not broadcast
        return F.relu(made + alpha * z)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", convolution_relu)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", convolution_add_relu)
    return called


@pytest.mark.parametrize("name, in_heads", [("connect4", 0), ("go(size=9)", 2)])  # policy and value by cells in Go
@pytest.mark.parametrize("kind", FUSED)
def test_the_outputs_are_those_of_the_network(calls, kind, name, in_heads):
    game = games.make(name)
    network = trained(settings=models.Network(blocks=4, channels=16, block=kind), game=game).eval()
    planes = float_planes(positions(20, game), game)
    with torch.inference_mode():
        made, expected = fused(network, planes), network(planes)
        calls.clear()
        found = made(planes)
    assert len(calls) == FUSED[kind] + in_heads
    assert found.keys() == expected.keys() == {"policy", "value"}
    for head in found:
        assert expected[head].std() > 0.01 and (found[head] - expected[head]).abs().max() < 1e-5


def test_the_weights_are_those_of_the_network(calls):
    network, planes = trained().eval(), float_planes(positions(8))
    with torch.inference_mode():
        made = fused(network, planes)
        network.load_state_dict(trained(2).state_dict())
        assert torch.allclose(made(planes)["value"], network(planes)["value"], atol=1e-6)


class Odd(torch.nn.Module):
    """Sums and ReLUs that look like a skip connection, and are none."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.Conv2d(4, 4, 3, padding=1)
        self.position = torch.nn.Parameter(torch.rand(1, 4, 3, 3))

    def forward(self, x):
        a = F.relu(self.first(x) + self.position)  # broadcast over positions
        b = F.relu(torch.add(a, self.second(a), alpha=2))
        c = self.second(b)
        F.relu(c, inplace=True)
        return {"value": F.relu(c + a.mean((2, 3), keepdim=True)).mean((1, 2, 3))}


def test_a_sum_that_is_no_skip_connection_stays_unfused(calls):
    torch.manual_seed(1)
    network, planes = Odd(), torch.rand(5, 2, 3, 3)
    with torch.inference_mode():
        made = fused(network, planes[:2])
        assert made is not network and torch.equal(made(planes)["value"], network(planes)["value"])


class Branching(torch.nn.Module):
    def forward(self, x):
        return {"value": x.mean((1, 2, 3)) if x.sum() > 0 else x.amax((1, 2, 3))}


def test_a_network_that_cannot_be_traced_stays_unfused(calls):
    network = Branching()
    assert fused(network, torch.ones(1, 2, 3, 3)) is network
