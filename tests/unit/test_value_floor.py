"""Values of games whose score only grows: between what a plane shows and 1, in every engine."""

import numpy as np
import pytest
import torch
from helpers import make_config, positions, trained

from az_mpi import games
from az_mpi.network import engines, resnet


def test_a_value_is_between_the_floor_that_a_plane_shows_and_1():
    """2048 after one move of 8 points, and before any. A new network gives half of what is left to reach."""
    game = games.make("2048")
    states = game.initial(2)
    states[0, -2:] = 8, 0
    floors = game.planes(states)[:, 17, 0, 0]
    assert floors[0] == pytest.approx(2 * np.log(1 + 8 / 500) / np.log(1001) - 1) and floors[1] == -1
    network = resnet.build(game, make_config("2048").network, 1)
    planes = torch.from_numpy(game.planes(states))
    np.testing.assert_allclose(network(planes)["value"].detach(), (1 + floors) / 2, atol=1e-6)
    value = network.heads["value"]
    for bias, shares in (([3.0, 0.0], np.e**3 / (1 + np.e**3)), ([-60.0, 0.0], 0)):
        value.out.bias.data = torch.tensor(bias)
        found = network(planes)["value"].detach()
        np.testing.assert_allclose(found, floors + shares * (1 - floors), atol=1e-6)
    wdl = resnet.build(game, make_config("2048", network={"heads": ["policy", "wdl"]}).network, 1)
    assert wdl(planes)["value"].shape == (2, 3)  # probabilities, which have no floor


@pytest.mark.parametrize("name", ["torch", "openvino"])
def test_engines_compute_values_above_a_floor(name):
    if name == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    game = games.make("2048")
    network = trained(3, make_config("2048", network={"blocks": 2, "channels": 16}).network, game)
    planes = game.planes(positions(30, game))
    with torch.inference_mode():
        expected = network(torch.from_numpy(planes))["value"].numpy()
    assert expected.std() > 0.01
    engine, _ = engines.make(name, network, game, "cpu", 1, "fp32")
    found = engine.evaluate(planes)["value"]
    np.testing.assert_allclose(found, expected, atol=1e-4)
