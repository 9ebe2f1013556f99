"""Evaluation in 8-bit integers: by hand, against fp32, its errors, and who chooses it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import CONNECT4, float_planes, models, positions, trained
from marks import needs_int8
from torch import nn
from torch.nn import functional as F

from az_mpi.core.problems import Refusal
from az_mpi.core.registry import GAMES
from az_mpi.network import engines
from az_mpi.network.engines import int8
from az_mpi.network.engines.engine import NUM_CALIBRATION
from az_mpi.network.engines.openvino_engine import Int8Engine, OpenVinoEngine

PLANES = CONNECT4.planes(int8.random_states(CONNECT4))


class Tiny(nn.Module):
    """One plane of one cell; a first layer of weight 1, and one convolution in its tower, from one channel to two."""

    def __init__(self, weights, bias):
        super().__init__()
        self.stem, self.tower = nn.Conv2d(1, 2, 1, bias=False), nn.ModuleList([nn.Conv2d(2, 2, 1)])
        self.value, self.heads = nn.Linear(2, 1), nn.ModuleDict()
        with torch.no_grad():
            self.stem.weight.copy_(torch.tensor([1.0, 0.5]).reshape(2, 1, 1, 1))
            self.tower[0].weight.copy_(torch.tensor(weights).reshape(2, 2, 1, 1))
            self.tower[0].bias.copy_(torch.tensor(bias))
            self.value.weight.zero_()

    def forward(self, x):
        policy = self.tower[0](F.relu(self.stem(x))).flatten(1)
        return {"policy": policy, "value": torch.tanh(self.value(policy)).squeeze(1)}


def counted(*cells):
    """Return planes of one cell with these values."""
    return np.array(cells, np.uint8).reshape(-1, 1, 1, 1)


@needs_int8
def test_a_quantised_convolution_is_what_one_computes_by_hand():
    """The range is [0, 4], a step 4/255: 1 is 63.75 steps, hence 64, 0.5 is 32, 3 is 191, 1.5 is 96, 9 becomes 4.
    The first output's scale is 0.5/127: 0.3 is 76.2 of it, hence 76; the second's is 0.04/127: 0.01 is 31.75, hence 32.
    In 64 steps of weights, 0.3 is 38.4 of 0.5/64, hence 38, and 0.01 is 16 of 0.04/64.
    """
    engine = one_cell_engine([[0.5, 0.3], [-0.04, 0.01]], [0.25, -1.0])
    most, third, fourth = {127: (127, 76, 32), 64: (64, 38, 16)}[int8.weight_steps()]
    step, first, second = 4 / 255, 0.5 / most, 0.04 / most
    expected = [
        [0.25 + step * first * (most * a + third * b), -1 + step * second * (-most * a + fourth * b)]
        for a, b in ((0, 0), (64, 32), (191, 96), (255, 255))
    ]
    found = engine.evaluate(counted(0, 1, 3, 9))["policy"]
    assert found == pytest.approx(np.array(expected), abs=1e-6)


def one_cell_engine(weights, bias):
    """Return an engine of Tiny, calibrated with planes whose maximum is 4."""
    calibration = counted(*[4, 1, 0, 2] * (NUM_CALIBRATION // 4))
    one_cell = SimpleNamespace(planes_shape=(1, 1, 1), planes_dtype=np.dtype(np.uint8), num_players=2)
    return Int8Engine(Tiny(weights, bias), one_cell, 1, "fp32", calibration)


@needs_int8
def test_the_largest_products_are_not_cut_off():
    """Two activations at the end of the range, 4, with two weights of the largest absolute value: 4 + 4 and -4 - 4."""
    found = one_cell_engine([[1.0, 1.0], [-1.0, -1.0]], [0.25, -1.0]).evaluate(counted(9))["policy"]
    assert found == pytest.approx(np.array([[8.25, -9.0]]), abs=1e-5)


@pytest.mark.parametrize(
    "has, steps", [(("avx2", "vnni"), 127), (("vnni",), 127), (("amx_tile",), 127), (("avx2",), 64), ((), 0)]
)
def test_processors_without_vnni_and_amx_have_smaller_weights(monkeypatch, has, steps):
    for part in ("amx_tile", "vnni", "avx2"):
        monkeypatch.setattr(torch.cpu, f"_is_{part}_supported", lambda part=part: part in has)
    assert int8.has_int8() == bool(steps) and (not steps or int8.weight_steps() == steps)


def test_weights_are_rounded_by_channel_and_a_channel_of_zeros_stays_zero():
    weight = torch.tensor([[1.0, -127.0], [0.0, 0.0], [0.5, -0.25]]).reshape(3, 2, 1, 1)
    rounded, scale = int8.quantised(weight, 127)
    assert rounded.dtype == np.int8 and rounded.reshape(3, 2).tolist() == [[1, -127], [0, 0], [127, -64]]
    assert scale.ravel() == pytest.approx([1, 1, 0.5 / 127])
    rounded, scale = int8.quantised(weight, 64)
    assert rounded.reshape(3, 2).tolist() == [[1, -64], [0, 0], [64, -32]]
    assert scale.ravel() == pytest.approx([127 / 64, 1, 0.5 / 64])


def exact(network, states):
    with torch.inference_mode():
        return {name: part.numpy() for name, part in network(float_planes(states)).items()}


@needs_int8
@pytest.mark.parametrize("blocks, channels", [(2, 16), (5, 64)])
def test_errors_are_small_on_positions_that_were_not_measured(blocks, channels):
    network = trained(3, models.Network(blocks=blocks, channels=channels))
    engine, states = Int8Engine(network, CONNECT4, 1, "fp32", PLANES), positions(512, seed=9)
    assert engine.describe.endswith("int8") and engine.remark == ""
    figures = int8.errors(engine.evaluate(CONNECT4.planes(states)), exact(network, states), CONNECT4.legal(states))
    assert 1e-7 < figures["int8_kl"] < 2e-4 and 1e-4 < figures["int8_value_error"] < 0.01
    assert engine.figures["int8_kl"] < 2e-4 and 1e-4 < engine.figures["int8_value_error"] < 0.01


def test_errors_are_means_of_the_divergence_and_of_the_difference():
    """KL of (1/2, 1/2) from (1/4, 3/4): ln(4/3) / 2 = 0.1438; of equal ones 0. The third action is not legal."""
    true = {"policy": np.zeros((2, 3), np.float32), "value": np.array([0.5, -0.5], np.float32)}
    other = {
        "policy": np.array([[0, np.log(3), 99], [7, 7, 0]], np.float32),
        "value": np.array([0.4, -0.5], np.float32),
    }
    legal = np.array([[True, True, False]] * 2)
    assert int8.errors(other, true, legal) == pytest.approx({"int8_kl": 0.1438 / 2, "int8_value_error": 0.05}, abs=1e-4)


def test_the_value_error_of_several_players_is_of_each_of_them():
    """Three players' values, of which only the second is off, by 0.3."""
    policy = np.zeros((1, 2), np.float32)
    true = {"policy": policy, "value": np.array([[0.5, -0.2, -0.3]], np.float32)}
    other = {"policy": policy, "value": np.array([[0.5, 0.1, -0.3]], np.float32)}
    figures = int8.errors(other, true, np.ones((1, 2), bool), num_players=3)
    assert figures == pytest.approx({"int8_kl": 0.0, "int8_value_error": 0.1})


@needs_int8
def test_an_engine_measures_the_values_of_all_players():
    game = GAMES.make("mnk(m=5,n=5,k=3,players=3)")
    states = int8.random_states(game)
    network = trained(3, game=game)
    engine = Int8Engine(network, game, 1, "fp32", game.planes(states))
    states = states[int8.NUM_RANGES :]
    with torch.inference_mode():
        true = network(float_planes(states, game))["value"].numpy()
    error = np.abs(engine.evaluate(game.planes(states))["value"] - true).mean()
    assert engine.figures["int8_value_error"] == pytest.approx(error, rel=1e-3)


def uneven(network, factor):
    """Make the first channel of the tower `factor` times as large, which changes no output."""
    with torch.no_grad():
        writing = [network.stem, *(block.second for block in network.tower)]
        reading = [*(block.first for block in network.tower), *(head.conv for head in network.heads.values())]
        for layer in writing:
            layer.weight[0] *= factor
            layer.bias[0] *= factor
        for layer in reading:
            layer.weight[:, 0] /= factor
    return network


@needs_int8
def test_weights_beyond_int8_are_evaluated_without_int8():
    """A channel 4,096 times as large as the others leaves them without a step of the common range."""
    good, bad, states = trained(3), uneven(trained(3), 4096.0), positions(64)
    planes, plain = CONNECT4.planes(states), OpenVinoEngine(bad, CONNECT4, 1, "fp32")
    engine = Int8Engine(good, CONNECT4, 1, "fp32", PLANES)
    before = engine.evaluate(planes)
    engine.load(bad)
    assert engine.remark.startswith("plays with these weights in fp32: ") and int8.problem(engine.figures)
    assert engine.figures["int8_value_error"] > int8.VALUE_ERROR_MAX or engine.figures["int8_kl"] > int8.KL_MAX
    for name, found in engine.evaluate(planes).items():
        assert (found == plain.evaluate(planes)[name]).all()
    engine.load(good)
    assert engine.remark == "" and all((engine.evaluate(planes)[name] == before[name]).all() for name in before)


@pytest.mark.parametrize(
    "kl, value_error, bad",
    [(0, 0, ""), (0.0049, 0.029, ""), (0.006, 0, "0.006 "), (0, 0.04, "0.04 "), (float("nan"), 0, "nan")],
)
def test_either_error_above_its_bound_is_a_problem(kl, value_error, bad):
    text = int8.problem({"int8_kl": kl, "int8_value_error": value_error})
    assert bad in text and bool(text) == bool(bad)


@needs_int8
def test_calibration_uses_the_positions_given_last():
    """Ranges measured on empty boards do not fit positions with stones."""
    network, empty = trained(3), PLANES.copy()
    empty[: int8.NUM_RANGES] = CONNECT4.planes(CONNECT4.initial(1))
    engine = Int8Engine(network, CONNECT4, 1, "fp32", PLANES)
    before = engine.figures
    engine.calibrate(empty, np.ones((len(empty), 7), np.bool_))
    engine.load(network)
    assert engine.figures["int8_value_error"] > 2 * before["int8_value_error"]


def test_layers_of_heads_and_the_first_one_are_not_in_int8():
    network = trained(1)
    graph = torch.fx.Tracer().trace(network)
    assert [node.target for node in int8.convolutions(graph, network)] == [
        f"tower.{block}.{layer}" for block in (0, 1) for layer in ("first", "second")
    ]


# choice


def choice(name, precision, timed=False):
    return engines.make(name, trained(), CONNECT4, "cpu", 1, precision, timed=timed)


def test_int8_is_refused_where_the_processor_or_the_network_lacks_it(monkeypatch):
    def lacking(name, device="cpu"):
        with pytest.raises(Refusal) as caught:
            engines.make(name, trained(), CONNECT4, device, 1, "int8")
        text = str(caught.value)
        assert text.startswith('network.precision = "int8"\n  ') and "--set network.precision=auto" in text
        return text

    assert "only OpenVINO on a processor has it" in lacking("torch")
    assert "there is a GPU" in lacking("auto", "cuda:0")
    pytest.importorskip("openvino", reason="optional; it could not be installed here")
    monkeypatch.setattr(int8, "has_int8", lambda: False)
    assert "no 8-bit multiplications on this processor" in lacking("auto") == lacking("openvino")


@needs_int8
@pytest.mark.parametrize(
    "gain, timed, expected", [(2.0, True, "int8 (2.0 times as fast as "), (2.0, False, None), (1.0, True, None)]
)
def test_auto_is_int8_only_where_it_may_measure_and_int8_is_faster(monkeypatch, gain, timed, expected):
    monkeypatch.setattr(engines, "_gain", lambda *what: gain)
    for name in ("auto", "openvino"):
        engine, text = choice(name, "auto", timed)
        assert isinstance(engine, Int8Engine) == (engine.precision == "int8") == bool(expected)
        assert (expected or "int8 is no faster here" * timed) in text
    monkeypatch.setattr(int8, "has_int8", lambda: False)
    assert choice("auto", "auto", timed)[0].precision in ("bf16", "fp32")


@needs_int8
def test_a_timing_tells_which_engine_is_faster():
    """The slower engine is the same one with twice the work."""
    engine, _ = choice("openvino", "int8")

    class Twice:
        def evaluate(self, planes):
            engine.evaluate(planes), engine.evaluate(planes)

    assert 1.3 < engines._gain(engine, Twice(), PLANES[: engines.NUM_TIMED]) < 3
