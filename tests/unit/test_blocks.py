"""The kinds of the tower's blocks: by their definitions, at the start, in every engine and in exported files."""

import io

import numpy as np
import pytest
import torch
from helpers import CONNECT4, float_planes, make_config, positions, trained, untrained
from marks import needs_gpu, needs_int8

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import ConfigError, Refusal
from az_mpi.core.registry import BLOCKS
from az_mpi.export import export_command
from az_mpi.network import engines, resnet
from az_mpi.network.engines import int8
from az_mpi.network.engines.openvino_engine import Int8Engine
from az_mpi.player import trained_network

KINDS = BLOCKS.names
each_kind = pytest.mark.parametrize("kind", KINDS)


def settings(kind, blocks=4, channels=16):
    return models.Network(blocks=blocks, channels=channels, block=kind)


def exact(network, states):
    with torch.inference_mode():
        return {name: part.numpy() for name, part in network(float_planes(states)).items()}


@each_kind
def test_a_tower_begins_as_the_identity(kind):
    x = torch.rand(3, 16, 6, 7)
    for block in untrained(settings=settings(kind)).tower:
        assert torch.equal(block(x), x)


@each_kind
def test_every_parameter_learns(kind):
    """After a few steps, when the layers that begin at zero have moved, all get a gradient."""
    network, planes = untrained(settings=settings(kind)), float_planes(positions(32))
    optimizer, target = torch.optim.Adam(network.parameters(), 0.003), torch.linspace(-1, 1, 32)
    begun = [parameter.clone() for parameter in network.parameters()]
    for _ in range(8):
        optimizer.zero_grad()
        logits, value = network(planes).values()
        (((value - target) ** 2).sum() - logits.log_softmax(1)[:, 3].sum()).backward()
        optimizer.step()
    for (name, parameter), before in zip(network.named_parameters(), begun):
        assert parameter.grad.abs().sum() > 0 and not torch.equal(parameter, before), name


@each_kind
@pytest.mark.parametrize(
    "name, device", [("torch", "cpu"), ("openvino", "cpu"), pytest.param("torch", "cuda:0", marks=needs_gpu)]
)
def test_engines_agree_with_the_fp32_network(kind, name, device):
    if name == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    network, states = trained(settings=settings(kind)), positions(70)
    torch.full((2**26,), torch.nan, device=device)  # memory that the engine may get: it must not read it
    engine, _ = engines.make(name, network, CONNECT4, device, 1, "fp32")
    expected, found = exact(network, states), engine.evaluate(CONNECT4.planes(states))
    for name in expected:
        assert expected[name].std() > 0.01
        assert np.abs(found[name] - expected[name]).max() < 1e-5 * max(1, np.abs(expected[name]).max())


@each_kind
@needs_int8
def test_int8_is_nearly_the_fp32_network(kind):
    network, states = trained(3, settings(kind)), positions(512, seed=9)
    engine = Int8Engine(network, CONNECT4, 1, "fp32", CONNECT4.planes(int8.random_states(CONNECT4)))
    assert engine.remark == ""
    figures = int8.errors(engine.evaluate(CONNECT4.planes(states)), exact(network, states), CONNECT4.legal(states))
    assert 1e-7 < figures["int8_kl"] < 1e-3 and figures["int8_value_error"] < 0.02


@each_kind
def test_int8_is_for_layers_of_the_board_alone(kind):
    """Layers that work on means over the board are not in int8."""
    network = trained(settings=settings(kind))
    graph = torch.fx.Tracer().trace(network)
    found = {node.target.split(".", 2)[2] for node in int8.convolutions(graph, network)}
    inner = {f"inner.{k}.{name}" for k in (0, 1) for name in ("first", "second")}
    assert (
        found
        == {
            "residual": {"first", "second"},
            "squeeze_excitation": {"first", "second"},
            "global_pooling": {"first", "second", "pool"},
            "bottleneck": {"reduce", "expand"} | inner,
        }[kind]
    )


def found(kind, game="connect4"):
    config = make_config(game, network={"blocks": 2, "channels": 16, "block": kind})
    game = games.make(config.game)
    return trained_network.TrainedNetwork(config, game, trained(3, config.network, game).eval(), 7)


@each_kind
def test_files_for_other_programs_have_the_same_outputs(tmp_path, kind):
    """ONNX in OpenVINO, whose reader of ONNX is none of ours, TorchScript in torch; and the file read back."""
    openvino = pytest.importorskip("openvino", reason="optional; it could not be installed here")
    network, path = found(kind), tmp_path / "network.onnx"
    planes = float_planes(positions(5))
    expected = exact(network.network, positions(5))
    path.write_bytes(export_command.onnx(network))
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(openvino.Core().read_model(path), "CPU", hint)
    in_onnx = {output.any_name: value for output, value in model({"planes": planes.numpy()}).items()}
    module = torch.jit.load(io.BytesIO(export_command.torchscript(network)))
    with torch.inference_mode():
        in_torch = module(planes)
    for name in expected:
        assert np.abs(in_onnx[name] - expected[name]).max() < 1e-4
        assert np.abs(in_torch[name].numpy() - expected[name]).max() < 1e-5
    again = trained_network.read(path)
    assert resnet.weights_hash(again.network) == resnet.weights_hash(network.network)


# what the kinds are


def in_one_cell(layer, x):
    """Return a convolution of one cell of x, [B, I] or [B, I, H, W]."""
    weight, bias = layer.weight.detach()[:, :, 0, 0].double(), layer.bias.detach().double()
    return torch.einsum("oi,bi...->bo...", weight, x) + bias.reshape(1, -1, *[1] * (x.dim() - 2))


def block_of(kind):
    """Return a block with random weights of 16 channels in double precision, and an input for it."""
    block = trained(settings=settings(kind, blocks=1)).tower[0].double()
    return block, torch.rand(2, 16, 6, 7, dtype=torch.double)


@torch.no_grad()
def test_squeeze_excitation_by_its_formula():
    block, x = block_of("squeeze_excitation(ratio=2)")
    y = block.second(torch.relu(block.first(x)))
    s = torch.relu(in_one_cell(block.squeeze, y.reshape(2, 16, 42).sum(2) / 42))
    assert s.shape == (2, 8)
    gate = 1 / (1 + torch.exp(-in_one_cell(block.scale, s)))
    expected = torch.relu(x + gate[:, :, None, None] * y + in_one_cell(block.shift, s)[:, :, None, None])
    assert torch.allclose(block(x), expected, atol=1e-12)


@torch.no_grad()
def test_global_pooling_by_its_formula():
    """4 of 16 channels are pooled to 4 means and 4 maxima, which make a bias of each of the 12 others."""
    block, x = block_of("global_pooling(every=1)")
    cells = torch.relu(block.pool(x)).reshape(2, 4, 42)
    bias = in_one_cell(block.bias, torch.cat([cells.sum(2) / 42, cells.max(2).values], dim=1))
    expected = torch.relu(x + block.second(torch.relu(block.first(x) + bias[:, :, None, None])))
    assert bias.shape == (2, 12) and torch.allclose(block(x), expected, atol=1e-12)


@torch.no_grad()
def test_bottleneck_by_its_formula():
    block, x = block_of("bottleneck")
    hidden = torch.relu(in_one_cell(block.reduce, x))
    for inner in block.inner:
        hidden = torch.relu(hidden + inner.second(torch.relu(inner.first(hidden))))
    assert hidden.shape == (2, 8, 6, 7)
    assert torch.allclose(block(x), torch.relu(x + in_one_cell(block.expand, hidden)), atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize(
    "kind, far",
    [("residual", False), ("bottleneck", False), ("global_pooling(every=1)", True), ("squeeze_excitation", True)],
)
def test_blocks_with_pooling_see_the_other_side_of_a_large_board(kind, far):
    block, x = trained(settings=settings(kind, blocks=1)).tower[0], torch.rand(1, 16, 19, 19)
    other = x.clone()
    other[:, :, 18, 18] += 5
    changed = (block(x) - block(other)).abs().amax(dim=1)[0] > 1e-7
    assert changed[18, 18] and bool(changed[0].any()) == far


@pytest.mark.parametrize(
    "kind, blocks, pooled",
    [("global_pooling", 5, [1, 3]), ("global_pooling(every=3)", 7, [2, 5]), ("global_pooling(every=1)", 2, [0, 1])],
)
def test_blocks_pool_at_the_configured_distance(kind, blocks, pooled):
    tower = untrained(settings=settings(kind, blocks)).tower
    assert [k for k, block in enumerate(tower) if any("pool" in name for name, _ in block.named_parameters())] == pooled


def test_the_number_of_weights_of_each_block_matches_hand_computation():
    """16 channels: residual 2 (16 x 16 x 9 + 16) = 4640. Pooled 4: 9 x 16 x 16 + 16, 9 x 12 x 16 + 16, 8 x 12 + 12.
    Squeezed to 4: 4640, 16 x 4 + 4, 2 (4 x 16 + 16). Bottleneck: 16 x 8 + 8, 4 (8 x 8 x 9 + 8), 8 x 16 + 16."""
    expected = {
        "residual": 4640,
        "global_pooling(every=1)": 2320 + 1744 + 108,
        "squeeze_excitation": 4640 + 68 + 160,
        "bottleneck": 136 + 4 * 584 + 144,
    }
    for kind, num in expected.items():
        assert resnet.num_parameters(untrained(settings=settings(kind, blocks=1)).tower) == num


# names


OWN = """
from torch import nn
from torch.nn import functional as F
from az_mpi.network.blocks.block import Block

class OneCell(Block):
    def __init__(self, channels, index, factor=1.0):
        super().__init__()
        self.conv, self.factor = nn.Conv2d(channels, channels, 1), factor + index
        nn.init.zeros_(self.conv.weight)
        nn.init.zeros_(self.conv.bias)

    def forward(self, x):
        return F.relu(x + self.conv(x))
"""


def test_a_users_block_is_built_and_trained(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    config = make_config(network={"blocks": 3, "channels": 8, "block": f"{tmp_path}/own.py:OneCell(factor=2.0)"})
    network = resnet.build(games.make("tictactoe"), config.network, 1)
    assert [(block.factor, resnet.num_parameters(block)) for block in network.tower] == [(2, 72), (3, 72), (4, 72)]


OF_BUFFERS = """
class Normal(OneCell):
    def __init__(self, channels, index):
        super().__init__(channels, index)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return super().forward(self.norm(x))

class Constant(OneCell):
    def __init__(self, channels, index):
        super().__init__(channels, index)
        self.register_buffer("scale", self.conv.bias.detach() + float("nan"))

class Late(Constant):
    def forward(self, x):
        self.register_buffer("mask", x[:1] * 0)
        return super().forward(x)
"""


def test_blocks_with_statistics_of_batches_are_refused_and_those_with_constants_are_not(tmp_path):
    (tmp_path / "own.py").write_text(OWN + OF_BUFFERS)

    def check(name):
        config = make_config(network={"blocks": 2, "channels": 8, "block": f"{tmp_path}/own.py:{name}"})
        game = games.make("tictactoe")
        network = resnet.build(game, config.network, 1)  # also of a run of before, to play with it
        resnet.refuse_statistics(network, game)

    check("Constant")
    check("Late")
    with pytest.raises(Refusal, match=r"tower.0.norm.running_mean changes in training.*\n.*\n.*GroupNorm"):
        check("Normal")


def test_wrong_names_and_arguments_of_blocks_are_refused_in_one_block():
    with pytest.raises(ConfigError, match="did you mean bottleneck"):
        make_config(network={"block": "botleneck"})
    for kind, text in (
        ("global_pooling(every=0)", "at least 1"),
        ("squeeze_excitation(ratio=99)", "from 1 to 16"),
        ("residual(every=2)", "takes no argument every"),
        ("az_mpi.network.heads.value:Value", "Block"),
    ):
        with pytest.raises(Refusal, match="network.block = .*\n.*" + text):
            untrained(settings=settings(kind))
