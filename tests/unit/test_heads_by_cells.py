"""Heads of large boards: policies by cells and values from global pooling, in place of layers over all cells."""

import numpy as np
import pytest
import torch
from helpers import float_planes, make_config, positions, trained, untrained
from marks import needs_int8
from torch import nn

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import Refusal
from az_mpi.network.engines import int8
from az_mpi.network.engines.openvino_engine import Int8Engine, OpenVinoEngine
from az_mpi.network.engines.torch_engine import TorchEngine
from az_mpi.network.heads.head import pooled
from az_mpi.network.heads.policy import Policy
from az_mpi.network.heads.value import Value
from az_mpi.network.heads.wdl import WinDrawLoss

SETTINGS = models.Network(blocks=1, channels=16)
LARGE = [
    "go",
    "go(size=19)",
    "hex",
    "hex(size=11,swap=True)",
    "gomoku",
    "othello",
    "breakthrough",
    "breakthrough(rows=6,columns=7)",
    "mnk(m=13,n=9,k=5)",
]
# Their heads, and so their checkpoints, are those of earlier versions.
FLAT = ["connect4", "tictactoe", "othello(size=6)", "hex(size=7)", "go(size=7)", "breakthrough(rows=5,columns=5)"]


def drawn(head, seed=0):
    """Draw all weights of a head."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0, 0.15, generator=generator)
    return head


def turned(x, game, k):
    """Return x, [B, C, H, W], turned by symmetry k of the game."""
    return x.flatten(2)[..., torch.from_numpy(game.symmetry_cells[k])].reshape(x.shape)


@pytest.mark.parametrize("name", LARGE + FLAT)
def test_outputs_of_all_games(name):
    """An untrained network prefers nothing; no head has a layer of more than 100,000 weights."""
    game = games.make(name)
    network = untrained(settings=SETTINGS, game=game)
    outputs = network(float_planes(positions(3, game), game))
    assert outputs["policy"].shape == (3, game.num_actions) and outputs["value"].shape == (3,)
    assert not outputs["policy"].any() and not outputs["value"].any()
    by_cells = not isinstance(network.heads["policy"].out, nn.Linear)
    assert by_cells == (name in LARGE)
    for layer in network.heads.modules():
        assert not isinstance(layer, nn.Linear) or layer.weight.numel() <= 100_000


def test_weights_of_the_heads_by_hand():
    """Go 19 x 19, 64 channels. Policy: 64*32+32 and 32*1+1, pass 64*1+1. Value: 64*32+32, 64*64+64, 64+1."""
    heads = untrained(settings=make_config().network, game=games.make("go(size=19)")).heads
    found = {name: sum(p.numel() for p in head.parameters()) for name, head in heads.items()}
    assert found == {"policy": 2080 + 33 + 65, "value": 2080 + 4160 + 65}


def copying(layer, sources):
    """Make a layer's output k a copy of input sources[k]."""
    with torch.no_grad():
        nn.init.zeros_(layer.weight), nn.init.zeros_(layer.bias)
        for k, source in enumerate(sources):
            layer.weight[k, source] = 1


def test_actions_of_cells_are_in_the_order_of_the_game():
    """Breakthrough: channel d of the tower holds, on each cell, the number of the action that moves from there in
    direction d: 3 x cell + d."""
    game, tower = games.make("breakthrough"), torch.zeros(1, 64, 8, 8)
    policy = Policy(game, 64)
    copying(policy.conv, range(32)), copying(policy.out, range(3))
    for row in range(8):
        for column in range(8):
            for direction in range(3):
                tower[0, direction, row, column] = 3 * (8 * row + column) + direction
    assert policy(tower)[0].tolist() == list(range(192))
    # From b2 straight on to b3: row 6 from the top, column 1.
    assert game.action_to_text(game.initial(1)[0], 3 * (8 * 6 + 1) + 1) == "b2b3"


def test_further_actions_come_last_and_from_the_whole_board():
    """To pass is worth the mean of channel 0 plus the maximum of channel 1, which stand on one cell each."""
    game, tower = games.make("go(size=9)"), torch.zeros(2, 32, 9, 9)
    policy = Policy(game, 32)
    copying(policy.conv, range(32)), copying(policy.out, [2]), copying(policy.further, [0])
    with torch.no_grad():
        policy.further.weight[0, 32 + 1] = 1
    tower[0, 0, 3, 5], tower[0, 1, 8, 0], tower[1, 2, 0, 4] = 81 * 7, 30, 5
    logits = policy(tower)
    assert logits.shape == (2, 82) and logits[:, 81].tolist() == pytest.approx([37, 0])
    assert logits[1].nonzero().tolist() == [[4]] and logits[1, 4] == 5  # row 0, column 4


@pytest.mark.parametrize("name", ["othello(size=6)", "go(size=5)", "breakthrough(rows=5,columns=5)"])
def test_heads_for_any_size_have_the_same_weights_on_each_board(name):
    larger = {"othello(size=6)": "othello", "go(size=5)": "go(size=9)"}.get(name, "breakthrough")
    for head in (Policy, Value):
        small, large = (head(games.make(game), 16, any_size=True).state_dict() for game in (name, larger))
        assert {key: x.shape for key, x in small.items()} == {key: x.shape for key, x in large.items()}
    wdl = WinDrawLoss(games.make(name), 16, any_size=True)
    assert wdl.is_pooled and wdl.out.out_features == 3


def test_a_policy_of_columns_is_for_one_size():
    with pytest.raises(Refusal, match="actions of connect4 are not those of cells"):
        Policy(games.make("connect4"), 16, any_size=True)


def test_pooling_by_hand():
    x = torch.tensor([[[[1.0, 2], [3, 6]], [[-1, -5], [-2, 0]]]])
    assert pooled(x).tolist() == [[3, -2, 6, 0]]


@pytest.mark.parametrize("name", LARGE)
def test_a_turned_board_has_turned_logits_and_the_same_value(name):
    """Exactly, but for the order of additions, where the tower is left out. Of breakthrough, whose mirror image
    exchanges left and right, the cells turn alone. The value of a board of 6 x 7 is still made from all cells."""
    game = games.make(name)
    tower = torch.randn(4, 16, *game.planes_shape[1:], generator=torch.Generator().manual_seed(1))
    policy, value = drawn(Policy(game, 16)), drawn(Value(game, 16))
    kinds, logits = game.action_kinds, policy(tower)
    assert logits.std() > 0.1 and value(tower).std() > 0.001 and len(game.symmetry_cells) > 1
    for k, cells in enumerate(game.symmetry_cells):
        actions = game.symmetry_actions[k]
        if kinds > 1:
            actions = (kinds * cells[:, None] + np.arange(kinds)).reshape(-1)
        image = turned(tower, game, k)
        torch.testing.assert_close(policy(image), logits[:, actions], atol=1e-5, rtol=1e-5)
        if value.is_pooled:
            torch.testing.assert_close(value(image), value(tower), atol=1e-5, rtol=1e-5)
    assert value.is_pooled == (tower[0, 0].numel() > 48)
    assert not torch.allclose(logits, logits[:, np.roll(np.arange(game.num_actions), 1)], atol=0.1)


def calibration(game):
    return game.planes(int8.random_states(game))


ENGINES = {
    "torch": TorchEngine,
    "openvino": lambda network, game, precision: OpenVinoEngine(network, game, 1, precision),
    "int8": lambda network, game, precision: Int8Engine(network, game, 1, precision, calibration(game)),
}


@pytest.mark.parametrize("engine", ["torch", "openvino", pytest.param("int8", marks=needs_int8)])
@pytest.mark.parametrize("name", ["go", "breakthrough", "gomoku"])
def test_engines_agree(name, engine):
    """They agree in fp32, and with a tower in int8 to the bounds of its errors."""
    if engine == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    game = games.make(name)
    network, states = trained(settings=SETTINGS, game=game), positions(40, game)
    with torch.inference_mode():
        exact = {name: output.numpy() for name, output in network(float_planes(states, game)).items()}
    found = ENGINES[engine](network, game, "fp32").evaluate(game.planes(states))
    assert exact["policy"].std() > 0.05 and exact["value"].std() > 0.001
    for output, values in exact.items():
        bound = (0.03 if engine == "int8" else 1e-5) * max(1, np.abs(values).max())
        assert found[output].shape == values.shape and np.abs(found[output] - values).max() < bound
    assert int8.problem(int8.errors(found, exact, game.legal(states))) == ""


def test_every_parameter_learns():
    """After some steps, when the layers that begin at zero have moved, all get a gradient; that of Go's pass, too."""
    game = games.make("go")
    network, planes = untrained(settings=SETTINGS, game=game), float_planes(positions(32, game), game)
    for _ in range(4):
        network.zero_grad()
        logits, value = network(planes).values()
        log_p = logits.log_softmax(1)
        (((value - torch.linspace(-1, 1, 32)) ** 2).sum() - log_p[:, 3].sum() - log_p[:, 81].sum()).backward()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter -= 1e-4 * parameter.grad
    assert [name for name, p in network.named_parameters() if not p.grad.abs().sum() > 0] == []
