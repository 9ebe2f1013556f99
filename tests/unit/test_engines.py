"""Inference engines against the fp32 network."""

import sys

import numpy as np
import psutil
import pytest
import torch
from helpers import CONNECT4, float_planes, positions, trained, untrained
from marks import needs_gpu, needs_int8

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import Refusal
from az_mpi.network import engines
from az_mpi.network.engines import int8, torch_engine
from az_mpi.network.engines.cuda_engine import CudaEngine
from az_mpi.network.engines.engine import pieces
from az_mpi.network.engines.openvino_engine import Int8Engine, OpenVinoEngine
from az_mpi.network.engines.torch_engine import TorchEngine

POSITIONS = {game.name: game.planes(int8.random_states(game)) for game in (CONNECT4, games.make("tictactoe"))}
MAKE = {
    "torch": TorchEngine,
    "openvino": lambda network, game, precision: OpenVinoEngine(network, game, 1, precision),
    "openvino8": lambda network, game, precision: Int8Engine(network, game, 1, "fp32", POSITIONS[game.name]),
    "cuda": lambda network, game, precision: CudaEngine(network, game, "cuda:0", precision),
}


KINDS = [(name, precision) for name in ("torch", "openvino") for precision in ("fp32", "bf16")]
ON_GPUS = [pytest.param(("cuda", precision), marks=needs_gpu) for precision in ("fp32", "bf16")]


@pytest.fixture(params=[*KINDS, *ON_GPUS, pytest.param(("openvino8", "int8"), marks=needs_int8)], ids="-".join)
def engine_of(request):
    """A function from a network to an engine, of each library in each precision, and whether it rounds."""
    name, precision = request.param
    bf16 = precision != "fp32"
    if name == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    if bf16 and not torch_engine.has_bf16(torch.device("cpu")) and name == "openvino":
        pytest.skip("OpenVINO takes f32 without bf16 instructions")
    return lambda network, game=CONNECT4: MAKE[name](network, game, precision), bf16


@pytest.mark.parametrize("n", [1, 4, 63, 64, 65, 150])
def test_engine_agrees_with_the_fp32_network(engine_of, n):
    """fp32: to the order of additions. bf16 and int8 have 8 bits, an error of 2^-9 a number: 0.03 of the largest
    output is the bound after the 8 layers here."""
    make, bf16 = engine_of
    network, states = trained(), positions(n)
    engine = make(network)
    assert engine.describe.endswith(("bf16", "int8") if bf16 else "fp32")
    with torch.inference_mode():
        expected = {name: part.numpy() for name, part in network(float_planes(states)).items()}
    outputs = engine.evaluate(CONNECT4.planes(states))
    assert outputs.keys() == expected.keys() == {"policy", "value"}
    for found, exact in zip(outputs.values(), expected.values()):
        assert found.dtype == np.float32 and found.shape == exact.shape
        assert np.abs(found - exact).max() < (0.03 if bf16 else 1e-5) * max(1, np.abs(exact).max())
        assert n < 63 or np.corrcoef(found.ravel(), exact.ravel())[0, 1] > 0.999


@pytest.mark.parametrize("sizes", [(3, 64, 1), (129, 70, 300, 128)])
def test_planes_in_the_engines_own_array_are_worth_the_same(engine_of, sizes):
    """The array is filled again while the results of the batches before it are kept, and holds batches of all sizes."""
    engine, states = engine_of[0](trained()), positions(300)
    planes = CONNECT4.planes(states)
    if (given := engine.room(3)) is None:
        assert type(engine) is TorchEngine  # it turns planes to other numbers anyway
        return
    assert given.dtype == planes.dtype
    found = []
    for n in sizes:
        room = engine.room(n)
        assert room.shape == (n, *CONNECT4.planes_shape)
        room[:] = planes[-n:]
        found.append(engine.begin(room)())
    for n, outputs in zip(sizes, found):
        expected = engine.evaluate(planes[-n:])
        assert all((outputs[name] == expected[name]).all() for name in expected)


def test_engines_agree_with_the_network_on_another_board_and_depth(engine_of):
    """Tic-tac-toe, 3 blocks of 24 filters, zero weights in it as at the start of training."""
    make, _ = engine_of
    game = games.make("tictactoe")
    network, states = untrained(3, models.Network(blocks=3, channels=24), game), positions(20, game)
    with torch.no_grad():
        network.heads["value"].out.bias.fill_(0.25)
    outputs = make(network, game).evaluate(game.planes(states))
    assert not outputs["policy"].any() and outputs["value"] == pytest.approx(np.tanh(0.25), abs=2e-3)


def test_engine_uses_the_weights_it_was_given_last(engine_of):
    make, _ = engine_of
    planes = CONNECT4.planes(positions(8))
    first, second = trained(1), trained(2)
    engine = make(first)
    before = engine.evaluate(planes)
    expected = make(second).evaluate(planes)
    with torch.no_grad():
        first.heads["policy"].out.bias += 1  # the network it was made from continues to learn
    assert (engine.evaluate(planes)["policy"] == before["policy"]).all()
    engine.load(second)
    for found, exact in zip(engine.evaluate(planes).values(), expected.values()):
        assert (found == exact).all()
    assert all(p.dtype == torch.float32 for p in second.parameters())


def test_new_weights_again_and_again_take_no_more_memory(engine_of):
    """30 times, and an evaluation each, after 5 that fill what is kept for good."""
    engine, planes = engine_of[0](trained()), CONNECT4.planes(positions(8))
    process, networks = psutil.Process(), (trained(1), trained(2))
    for k in range(35):
        if k == 5:
            before = process.memory_info().rss
        engine.load(networks[k % 2])
        engine.evaluate(planes)
    assert process.memory_info().rss - before < 10 * 2**20


def test_results_of_a_batch_stay_when_the_engine_evaluates_another(engine_of):
    """A result is not a view of the engine's buffers, and the engine does not change its input."""
    engine = engine_of[0](trained())
    planes = CONNECT4.planes(positions(70))
    before, first = planes.copy(), engine.evaluate(planes[:9])
    kept = {name: part.copy() for name, part in first.items()}
    engine.evaluate(planes)
    assert (planes == before).all() and all((first[name] == kept[name]).all() for name in kept)


def test_a_position_is_worth_the_same_in_any_batch(engine_of):
    """Batches are padded or cut to pieces. The values agree to the rounding of the precision."""
    make, bf16 = engine_of
    engine, planes = make(trained()), CONNECT4.planes(positions(133))
    whole = engine.evaluate(planes)
    for start, end in ((0, 1), (5, 18), (64, 133)):
        for a, b in zip(engine.evaluate(planes[start:end]).values(), whole.values()):
            assert np.abs(a - b[start:end]).max() < (0.03 if bf16 else 1e-5)


def test_two_batches_under_way_are_completed_in_order(engine_of):
    make, bf16 = engine_of
    engine, planes = make(trained()), CONNECT4.planes(positions(200))
    expected = engine.evaluate(planes)
    first, second = engine.begin(planes[:90]), engine.begin(planes[90:])
    for found, whole in zip(first().values(), expected.values()):
        assert np.abs(found - whole[:90]).max() < (0.03 if bf16 else 1e-5)
    for found, whole in zip(second().values(), expected.values()):
        assert np.abs(found - whole[90:]).max() < (0.03 if bf16 else 1e-5)


def test_sizes_are_few_and_hold_their_pieces():
    """There are 16 sizes for all batches, and no piece is padded by a whole step."""
    sizes = set()
    for n in range(1, 400):
        cut = list(pieces(n, 64, 4))
        assert [piece[0] for piece in cut] == list(range(0, n, 64)) and cut[-1][1] == n
        assert all(end - start <= size < end - start + 4 for start, end, size in cut)
        sizes |= {size for _, _, size in cut}
    assert sizes == set(range(4, 65, 4))


# choice


def choice(wanted, precision="auto"):
    return engines.make(wanted, trained(), CONNECT4, "cpu", 1, precision)


def test_auto_is_openvino_where_openvino_is_installed():
    pytest.importorskip("openvino", reason="optional; it could not be installed here")
    engine, text = choice("auto")
    assert isinstance(engine, OpenVinoEngine)
    assert text.startswith("openvino cpu") and text.endswith("(auto: the fastest on processors)")


def test_auto_is_torch_with_the_reason_where_openvino_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    engine, text = choice("auto")
    assert isinstance(engine, TorchEngine) and "torch cpu" in text and "(auto: OpenVINO cannot be imported: " in text


@pytest.mark.parametrize("wanted, kind", [("torch", TorchEngine), ("openvino", OpenVinoEngine)])
def test_the_configured_engine_is_taken(wanted, kind):
    if kind is OpenVinoEngine:
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    engine, text = choice(wanted)
    assert type(engine) is kind and text.endswith("(as configured)")


@pytest.mark.parametrize("has_bf16", [False, True])
def test_the_precision_is_the_one_configured_and_the_choice_says_which(monkeypatch, has_bf16):
    """fp32 is obeyed where there is bf16; the engine's answers, not its words, tell what it computes in."""
    monkeypatch.setattr(engines, "has_bf16", lambda device: has_bf16)
    network, states = trained(), positions(64)
    with torch.inference_mode():
        exact = network(float_planes(states))["policy"].numpy()
    expected = {"auto": "bf16", "fp32": "fp32", "bf16": "bf16"} if has_bf16 else {"auto": "fp32", "fp32": "fp32"}
    for wanted, used in expected.items():
        engine, text = choice("torch", wanted)
        error = np.abs(engine.evaluate(CONNECT4.planes(states))["policy"] - exact).max() / np.abs(exact).max()
        assert error < 1e-5 if used == "fp32" else 1e-4 < error < 0.03
        assert text.startswith(f"torch cpu {used}")
        assert ("no bf16 instructions here" in text) == (wanted == "auto" and not has_bf16)


@pytest.mark.parametrize("has_bf16", [False, True])
def test_bf16_is_lacking_only_where_it_is_asked_for_and_not_there(monkeypatch, has_bf16):
    monkeypatch.setattr(engines, "has_bf16", lambda device: has_bf16 and device.type == "cpu")
    choice("torch", "auto"), choice("torch", "fp32")

    def lacking(wanted, device):
        with pytest.raises(Refusal) as caught:
            engines.make(wanted, trained(), CONNECT4, device, 1, "bf16")
        return str(caught.value)

    if has_bf16:
        choice("torch", "bf16")
    else:
        assert 'network.precision = "bf16"\n  no bf16 instructions on this processor' in lacking("torch", "cpu")
    for wanted in ("auto", "torch"):
        assert "no bf16 instructions on this GPU" in lacking(wanted, "cuda:0")
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert "--set network.engine=auto" in lacking("openvino", "cpu")


def test_openvino_evaluates_on_the_processor_also_where_there_is_a_gpu():
    pytest.importorskip("openvino", reason="optional; it could not be installed here")
    engine, _ = engines.make("openvino", trained(), CONNECT4, "cuda:0", 1, "fp32")
    assert isinstance(engine, OpenVinoEngine) and len(engine.evaluate(CONNECT4.planes(positions(3)))["value"]) == 3


OWN = """
import numpy as np
from az_mpi.network.engines.engine import Engine

class Half(Engine):
    describe = "half"

    def __init__(self, network, game, by=2.0):
        self.network, self.by, self.shape = network, by, game.planes_shape

    def load(self, network):
        self.network = network

    def evaluate(self, planes):
        n = len(planes)
        return {"policy": np.zeros((n, 7), np.float32), "value": np.full(n, 1 / self.by, np.float32)}
"""


def test_an_engine_of_ones_own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    engine, text = engines.make(f"{tmp_path}/own.py:Half(by=4.0)", trained(), CONNECT4, "cpu", 1)
    assert text == "half (as configured)" and engine.shape == (2, 6, 7)
    assert engine.evaluate(CONNECT4.planes(positions(3)))["value"].tolist() == [0.25] * 3
