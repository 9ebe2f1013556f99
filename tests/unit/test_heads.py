"""Heads: outputs, targets and losses by name, a head of a user's own, and weights of runs that knew no heads."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import Hashed, float_planes, make_config, play_games, positions, trained
from marks import needs_int8
from safetensors.torch import load_file
from torch.nn import functional as F

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import Refusal
from az_mpi.network import engines, resnet
from az_mpi.network.engines import int8
from az_mpi.network.engines.openvino_engine import Int8Engine, OpenVinoEngine
from az_mpi.network.engines.torch_engine import TorchEngine
from az_mpi.network.evaluators import NetworkEvaluator
from az_mpi.network.heads.head import pooled, rows
from az_mpi.selfplay.player import Player
from az_mpi.storage import checkpoint, run_folder
from az_mpi.storage.checkpoint import Progress
from az_mpi.train import backends
from az_mpi.train.learner import Learner
from az_mpi.train.loss import losses
from az_mpi.train.replay import Replay, to_samples

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "data" / "run_of_0823929"
TICTACTOE = games.make("tictactoe")

# Who owns each cell at the end of the game, for the player to move: a target that turns with the board.
OWNERS = """
import numpy as np
from torch import nn
from torch.nn import functional as F
from az_mpi.network.heads.head import Head

class Owners(Head):
    name, target_dtype, is_board = "owners", np.dtype(("<f4", (3, 3))), True

    def __init__(self, channels, factor=1.0):
        super().__init__()
        self.conv, self.factor = nn.Conv2d(channels, 1, 1), factor

    def forward(self, tower):
        return self.conv(tower).squeeze(1)

    def target(self, record, game, settings):
        last = np.cumsum(record.games["length"]) - 1
        ends = game.play(record.positions["state"][last], record.positions["action"][last])
        planes = game.planes(ends).astype(np.float32)
        first = (planes[:, 0] - planes[:, 1]) * (1 - 2 * game.to_play(ends)[:, None, None])
        sign = 1 - 2 * record.positions["to_play"]
        return np.repeat(first, record.games["length"], axis=0) * sign[:, None, None]

    def loss(self, output, target):
        return ((output.float() - target) ** 2).mean(dim=(1, 2))

    def weight(self, settings):
        return self.factor
"""


@pytest.fixture
def configured(tmp_path):
    """A configuration of tic-tac-toe with a third head, in a file of the user's own."""
    (tmp_path / "own.py").write_text(OWNERS)
    heads = ("policy", "value", f"{tmp_path}/own.py:Owners(factor=3.0)")
    return make_config(
        network={"blocks": 1, "channels": 8, "heads": heads},
        search={"simulations": 20},
        selfplay={"parallel_games": 8},
        train={"batch_size": 16, "mixed_precision": False},
        report={"summary_frequency": 1},
    )


def played(config, num=24):
    return play_games(Player(config, TICTACTOE, Hashed(TICTACTOE), 0), range(num))


def test_the_heads_are_the_outputs_in_their_order(configured):
    network = resnet.build(TICTACTOE, configured.network, 1)
    outputs = network(float_planes(positions(5, TICTACTOE), TICTACTOE))
    assert {name: tuple(output.shape) for name, output in outputs.items()} == {
        "policy": (5, 9),
        "value": (5,),
        "owners": (5, 3, 3),
    }
    names = [name for name, _ in network.named_parameters()]
    assert names[-2:] == ["heads.owners.conv.weight", "heads.owners.conv.bias"]


def test_a_head_without_a_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bare.py").write_text(
        "from az_mpi.network.heads.head import Head\nclass Bare(Head):\n"
        "    def __init__(self, game, channels):\n        super().__init__()\n"
    )
    config = make_config(network={"heads": ("policy", "value", "bare.py:Bare")})
    with pytest.raises(Refusal, match="bare.py:Bare has no name"):
        resnet.build(TICTACTOE, config.network, 1)


@pytest.mark.parametrize("heads", [("policy",), ("value",), ("policy", "value", "own.py:Twice"), ()])
def test_a_network_that_the_search_cannot_use_is_refused(heads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("from az_mpi.network.heads.value import Value\nclass Twice(Value): pass\n")
    config = make_config(network={"heads": heads})
    with pytest.raises(Refusal, match="network.heads.*\n.*policy and value"):
        resnet.build(TICTACTOE, config.network, 1)


def test_each_target_follows_its_head_and_turns_with_the_board(configured):
    """Drawn through any symmetry, a finished game's last position shows its own stones among those of the end."""
    record, network = played(configured), resnet.build(TICTACTOE, configured.network, 1)
    replay = Replay(TICTACTOE, network.heads)
    replay.add(to_samples(record, TICTACTOE, network.heads, configured.train, 0))
    batch = replay.sample(np.random.default_rng(1), 500)
    assert set(batch) == {"planes", "policy", "value", "owners", "weight"}
    assert batch["owners"].shape == (500, 3, 3) and np.isin(batch["owners"], (-1, 0, 1)).all()
    planes = batch["planes"].astype(int)
    # Stones stay where they are: those of the player to move, and of the other one, are owned at the end.
    assert (batch["owners"][planes[:, 0] > 0] == 1).all() and (batch["owners"][planes[:, 1] > 0] == -1).all()
    assert 0 < (planes.sum(axis=1) == 0)[batch["owners"] != 0].mean() < 1  # and more are to come


def test_losses_are_added_with_the_weights_of_their_heads(configured, world):
    record, network = played(configured), resnet.build(TICTACTOE, configured.network, 1)
    learner = Learner(configured, TICTACTOE, network, backends.make("ddp", world, world, "cpu"), "cpu")
    replay = Replay(TICTACTOE, network.heads)
    replay.add(to_samples(record, TICTACTOE, network.heads, configured.train, 0))
    batch = learner.tensors(replay.sample(np.random.default_rng(1), 16))
    by_head = losses(network, batch)
    (sum(weight * by_head[name] for name, weight in (("policy", 1), ("value", 1), ("owners", 3))) / 16).backward()
    expected = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    with learner.backend.session():
        sums = learner.gradients(batch, 16)
    assert sums.tolist() == pytest.approx([loss.item() for loss in by_head.values()])
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])
    summaries = []
    assert learner.train(replay, Progress(samples_due=16), lambda step, values: summaries.append(values)) == 1
    assert list(summaries[0]) == ["policy_loss", "value_loss", "owners_loss", "gradient_norm", "learning_rate"]
    assert list(learner.iteration_losses()) == ["policy_loss", "value_loss", "owners_loss"]


ENGINES = {"torch": TorchEngine, "openvino": lambda *what: OpenVinoEngine(*what[:2], 1, what[2])}


@pytest.mark.parametrize("name", ENGINES)
def test_engines_answer_by_name(configured, name):
    """The head has other layers, methods and functions than the built-in ones."""
    if name == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    heads = (*configured.network.heads, f"{ROOT}/examples/own_head.py:MovesLeft")
    settings = configured.network.model_copy(update={"heads": heads})
    network, states = trained(settings=settings, game=TICTACTOE), positions(9, TICTACTOE)
    found = ENGINES[name](network, TICTACTOE, "fp32").evaluate(TICTACTOE.planes(states))
    with torch.inference_mode():
        exact = network(float_planes(states, TICTACTOE))
    assert list(found) == ["policy", "value", "owners", "moves_left"]
    for name, output in exact.items():
        assert found[name].shape == output.shape and np.abs(found[name] - output.numpy()).max() < 1e-5


def test_a_checkpoint_of_an_earlier_version_has_the_same_weights_under_other_names():
    """What its network says, computed here from the tensors under their old names."""
    path = OLD / "checkpoints" / "000002"
    old, found = load_file(path / "model.safetensors"), checkpoint.read(path)
    assert "policy_conv.weight" in old and "heads.policy.conv.weight" in found.model
    network = resnet.build(TICTACTOE, run_folder.recorded_config(OLD).network, 1)
    checkpoint.check_fits(path, found, network.state_dict())
    network.load_state_dict(found.model)
    planes = float_planes(positions(20, TICTACTOE), TICTACTOE)

    def layer(name, x):
        weight, bias = old[f"{name}.weight"], old[f"{name}.bias"]
        if weight.dim() == 2:
            return F.linear(x, weight, bias)
        return F.conv2d(x, weight, bias, padding=weight.shape[2] // 2)

    with torch.inference_mode():
        x = F.relu(layer("stem", planes))
        x = F.relu(x + layer("tower.0.second", F.relu(layer("tower.0.first", x))))
        logits = layer("policy_out", F.relu(layer("policy_conv", x)).flatten(1))
        hidden = F.relu(layer("value_hidden", F.relu(layer("value_conv", x)).flatten(1)))
        value = torch.tanh(layer("value_out", hidden)).squeeze(1)
        outputs = network(planes)
    assert torch.equal(outputs["policy"], logits) and torch.equal(outputs["value"], value) and logits.std() > 0
    # The optimiser's moments go with the weights.
    moments = {key.rpartition(".")[0] for key in found.optimizer}
    assert moments == {name for name, _ in network.named_parameters()}


STRANGE = """
from torch import nn
from az_mpi.network.heads.head import Head

class Strange(Head):
    name, target_dtype = "strange", None

    def __init__(self, channels):
        super().__init__()
        self.layer = %s

    def forward(self, tower):
        return %s
"""


AGAIN = """
import torch
from torch import nn
from az_mpi.network.heads.policy import Policy

class Again(Policy):
    name = "again"

    def __init__(self, game, channels):
        super().__init__(game, channels)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, tower):
        return super().forward(tower) * self.scale
"""


def test_a_head_of_any_name_may_learn_the_policy_and_have_single_numbers(tmp_path, world):
    (tmp_path / "own.py").write_text(AGAIN)
    heads = ("policy", "value", f"{tmp_path}/own.py:Again")
    config = make_config(
        network={"blocks": 1, "channels": 8, "heads": heads},
        selfplay={"parallel_games": 8},
        search={"simulations": 20},
        train={"batch_size": 16, "warmup_steps": 0},
    )
    record, network = played(config), resnet.build(TICTACTOE, config.network, 1)
    with torch.no_grad():
        network.heads["again"].out.weight.fill_(0.1)
    learner = Learner(config, TICTACTOE, network, backends.make("ddp", world, world, "cpu"), "cpu")
    replay = Replay(TICTACTOE, network.heads)
    replay.add(to_samples(record, TICTACTOE, network.heads, config.train, 0))
    learner.train(replay, Progress(samples_due=16), lambda step, values: None)
    assert network.heads["again"].scale.item() != 2.0 and learner.iteration_losses()["again_loss"] > 0


@pytest.mark.parametrize("name", ["planes", "weight", "state", "policy_count", "a.b", ""])
def test_heads_may_not_be_named_as_other_parts_of_a_sample(tmp_path, name):
    text = f"from az_mpi.network.heads.value import Value\nclass Own(Value): name = {name!r}\n"
    (tmp_path / "own.py").write_text(text)
    config = make_config(network={"heads": ("policy", "value", f"{tmp_path}/own.py:Own")})
    with pytest.raises(Refusal, match="cannot be called"):
        resnet.build(TICTACTOE, config.network, 1)


@pytest.mark.parametrize(
    "layer, forward, why",
    [
        ("None", "tower.cumsum(dim=1)", "cumsum is not among Conv2d"),
        (
            "nn.Conv2d(channels, 1, 3, padding=1, padding_mode='circular')",
            "self.layer(tower)",
            "other padding than zeros",
        ),
    ],
)
def test_a_head_that_openvino_cannot_run_is_run_by_torch_and_the_choice_says_why(tmp_path, layer, forward, why):
    pytest.importorskip("openvino", reason="optional; it could not be installed here")
    (tmp_path / "own.py").write_text(STRANGE % (layer, forward))
    settings = make_config(network={"heads": ("policy", "value", f"{tmp_path}/own.py:Strange")}).network
    network = resnet.build(TICTACTOE, settings, 1)
    engine, choice = engines.make("auto", network, TICTACTOE, "cpu", 1)
    assert isinstance(engine, TorchEngine) and why in choice
    with pytest.raises(Refusal, match="network.engine"):
        engines.make("openvino", network, TICTACTOE, "cpu", 1)


def wdl_network(seed=1):
    settings = make_config(network={"blocks": 1, "channels": 8, "heads": ("policy", "wdl")}).network
    return trained(seed, settings=settings, game=TICTACTOE)


def test_targets_of_win_draw_and_loss():
    """The targets are half of the outcome and half of the search's value, by hand."""
    head = wdl_network().heads["value"]
    columns = {
        "value": np.array([1, -1, 0, 0, 1], np.float32),
        "root_value": np.array([0.5, -1, 0, -0.5, -1], np.float32),
    }
    record = SimpleNamespace(positions=columns)
    target = head.target(record, TICTACTOE, models.Train(root_value_share=0.5))
    assert target.tolist() == [[0.875, 0, 0.125], [0, 0, 1], [0, 1, 0], [0, 0.75, 0.25], [0.5, 0, 0.5]]
    exact = head.target(record, TICTACTOE, models.Train(root_value_share=0.0))
    assert exact.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_the_searched_part_of_the_value_target_may_be_the_mean_of_later_root_values():
    """With horizon 1 each value counts half as much as the one before; the result follows the last. Player 1 moved at
    the second position, so its values are turned."""
    games = np.zeros(2, [("length", "i4"), ("outcome", "f4")])
    games["length"], games["outcome"] = [3, 1], [1, -1]
    columns = {
        "value": np.array([1, -1, 1, -1], np.float32),
        "root_value": np.array([0, 0.5, 0.25, -0.5], np.float32),
        "to_play": np.array([0, 1, 0, 0], np.int8),
    }
    record = SimpleNamespace(games=games, positions=columns)
    head = resnet.ResNet(TICTACTOE, make_config().network).heads["value"]
    last = 0.25 / 2 + 1 / 2
    wanted = [0 / 2 + (-0.5 / 2 + last / 2) / 2, 0.5 / 2 - last / 2, last, -0.5 / 2 - 1 / 2]
    settings = models.Train(root_value_share=1.0, root_value_horizon=1)
    assert head.target(record, TICTACTOE, settings) == pytest.approx(wanted)
    settings = models.Train(root_value_share=0.5, root_value_horizon=1)
    assert head.target(record, TICTACTOE, settings) == pytest.approx((np.array(wanted) + columns["value"]) / 2)


def test_the_loss_of_win_draw_and_loss_is_the_cross_entropy():
    output, target = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]), torch.tensor([[1.0, 0, 0], [0, 0.5, 0.5]])
    loss = wdl_network().heads["value"].loss(output, target)
    assert loss[0].item() == pytest.approx(np.log(2)) and np.isfinite(loss[1].item())


@pytest.mark.parametrize("name", ENGINES)
def test_a_search_gets_the_difference_of_win_and_loss(name):
    if name == "openvino":
        pytest.importorskip("openvino", reason="optional; it could not be installed here")
    network, states = wdl_network(), positions(30, TICTACTOE)
    engine = ENGINES[name](network, TICTACTOE, "fp32")
    probabilities = engine.evaluate(TICTACTOE.planes(states))["value"]
    assert probabilities.shape == (30, 3) and probabilities.sum(axis=1) == pytest.approx(1)
    logits, value = NetworkEvaluator(TICTACTOE, engine)(states)
    assert logits.shape == (30, 9) and value == pytest.approx(probabilities[:, 0] - probabilities[:, 2])
    assert value.std() > 0.01


@needs_int8
def test_win_draw_and_loss_in_int8():
    network, planes = wdl_network(), TICTACTOE.planes(int8.random_states(TICTACTOE))
    engine = Int8Engine(network, TICTACTOE, 1, "fp32", planes)
    engine.calibrate(planes, np.ones((len(planes), 9), np.bool_))
    engine.load(network)
    assert 0 < engine.figures["int8_value_error"] < 0.03


@pytest.mark.parametrize("mode", ["default", "error"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_and_rows_by_hand_with_their_gradients(mode, layout):
    """This holds in deterministic and other runs, whatever the order in memory."""
    cells = torch.tensor([[[[1.0, -5.0], [2.0, 6.0]], [[-1.0, -2.0], [-3.0, -6.0]]]])
    torch.set_deterministic_debug_mode(mode)
    try:
        x = cells.contiguous(memory_format=layout).requires_grad_()
        assert pooled(x).tolist() == [[1, -3, 6, -1]]  # the means of both channels, then the maxima
        pooled(x).backward(torch.tensor([[4.0, 8.0, 1.0, 10.0]]))
        assert x.grad.tolist() == [[[[1, 1], [1, 2]], [[12, 2], [2, 2]]]]
        x.grad = None
        assert rows(x).tolist() == [[1, 0, 2, 6, 0, 0, 0, 0]]
        rows(x).backward(torch.arange(1.0, 9.0)[None])
        assert x.grad.tolist() == [[[[1, 0], [3, 4]], [[0, 0], [0, 0]]]]
    finally:
        torch.set_deterministic_debug_mode("default")


@pytest.mark.parametrize(
    "heads, bias, wanted",
    [
        (("policy", "value"), [5.0], [-1.0]),  # tanh(5) is 1 in bf16, where its gradient is 0
        (("policy", "value", "short_term_value"), [5.0], [-1.0]),
        (("policy", "wdl"), [60.0, 0.0, 0.0], [[0.0, 0.0, 1.0]]),
    ],
)
@pytest.mark.parametrize("bf16", [True, False])
def test_a_sure_but_wrong_value_learns(heads, bias, wanted, bf16):
    network = trained(3, make_config(network={"blocks": 1, "channels": 8, "heads": heads}).network, TICTACTOE)
    *_, head = network.heads.values()
    with torch.no_grad():
        head.out.weight.zero_()
        head.out.bias.copy_(torch.tensor(bias))
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        output = network(torch.zeros(1, *TICTACTOE.planes_shape))[head.name]
    head.loss(output, torch.tensor(wanted)).sum().backward()
    assert head.out.bias.grad.abs().max() > 1e-5
