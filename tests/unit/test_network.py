"""The network, and evaluators without one."""

import copy
import math

import numpy as np
import pytest
import torch
from helpers import after, board, float_planes, positions, trained, untrained

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network import resnet
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import NetworkEvaluator, RolloutEvaluator, UniformEvaluator

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")


# resnet


def test_parameters_of_a_small_network_by_hand():
    """Connect Four, 1 block of 8 filters. Stem 2*8*9+8 = 152; block 2*(8*8*9+8) = 1168; two head convolutions
    2*(8*32+32) = 576; policy 32*42*7+7 = 9415; value 32*42*64+64 = 86080 and 64+1 = 65."""
    network = untrained(settings=models.Network(blocks=1, channels=8))
    assert sum(p.numel() for p in network.parameters()) == 152 + 1168 + 576 + 9415 + 86080 + 65
    deeper = untrained(settings=models.Network(blocks=4, channels=8))
    assert sum(p.numel() for p in deeper.parameters()) == 97456 + 3 * 1168


def test_a_network_has_no_tensors_but_weights_and_biases():
    """There are no running statistics, which would differ between ranks."""
    network = untrained()
    assert set(network.state_dict()) == {name for name, _ in network.named_parameters()}


def test_untrained_network_knows_nothing():
    """Its priors are equal and its value is exactly 0 in every position."""
    logits, value = untrained()(float_planes(positions(20))).values()
    assert logits.shape == (20, 7) and value.shape == (20,) and not logits.any() and not value.any()


def test_blocks_begin_as_the_identity():
    x = torch.rand(3, 16, 6, 7)
    for block in untrained().tower:
        assert torch.equal(block(x), x)


@pytest.mark.parametrize("blocks", [1, 4, 16])
def test_the_first_convolutions_are_scaled_down_by_the_root_of_the_depth(blocks):
    """He's standard deviation sqrt(2 / (9 channels)), times blocks^(-1/2); the stem's is not scaled."""
    network = untrained(settings=models.Network(blocks=blocks, channels=32))
    for block in network.tower:
        assert block.first.weight.std().item() == pytest.approx(math.sqrt(2 / 288 / blocks), rel=0.05)
    assert network.stem.weight.std().item() == pytest.approx(math.sqrt(2 / 18), rel=0.15)


def test_every_parameter_learns():
    """After three steps, when the layers that begin at zero have moved, all get a gradient."""
    network, planes = untrained(), float_planes(positions(32))
    target = torch.linspace(-1, 1, 32)
    for _ in range(4):
        network.zero_grad()
        logits, value = network(planes).values()
        (((value - target) ** 2).sum() - logits.log_softmax(1)[:, 3].sum()).backward()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter -= 1e-4 * parameter.grad
    assert [name for name, p in network.named_parameters() if not p.grad.abs().sum() > 0] == []


def test_a_position_is_worth_the_same_alone_and_in_a_batch():
    """The values agree to 1e-5, since the order of additions may differ."""
    network, planes = trained().eval(), float_planes(positions(33))
    with torch.inference_mode():
        logits, value = network(planes).values()
        assert logits.std() > 0.1 and value.std() > 0.01 and value.abs().max() < 1
        for k in (0, 1, 17, 32):
            one_logits, one_value = network(planes[k : k + 1]).values()
            assert torch.allclose(one_logits[0], logits[k], atol=1e-5) and abs(one_value[0] - value[k]) < 1e-5


def test_training_and_evaluation_mode_are_the_same():
    network, planes = trained(), float_planes(positions(5))
    assert torch.equal(network.train()(planes)["policy"], network.eval()(planes)["policy"])


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(5)
    one = resnet.weights_hash(untrained(seed=3))
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.rand(1) == drawn  # making a network leaves the program's own random numbers alone
    assert resnet.weights_hash(untrained(seed=3)) == one != resnet.weights_hash(untrained(seed=4))


def test_hash_changes_with_the_last_bit_of_one_weight_and_not_with_the_layout():
    network = trained()
    before = resnet.weights_hash(network)
    assert resnet.weights_hash(copy.deepcopy(network).to(memory_format=torch.channels_last)) == before
    weight = network.tower[1].second.weight.data
    weight.view(torch.int32)[3, 2, 1, 0] ^= 1
    assert resnet.weights_hash(network) != before


# evaluators


def test_network_evaluator_shows_the_engine_the_board_of_the_player_to_move():
    class Asked(Engine):
        def evaluate(self, planes):
            self.planes = planes
            return {"value": its_value, "another": "not asked for", "policy": "its logits"}

    engine, its_value = Asked(), np.array([0.5], np.float32)
    state = board(
        TICTACTOE,
        """
        X . .
        . O .
        . . X""",
    )
    logits, value = NetworkEvaluator(TICTACTOE, engine)(state)
    assert logits == "its logits" and value is its_value
    assert engine.planes[0].tolist() == [[[0, 0, 0], [0, 1, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0], [0, 0, 1]]]


def test_uniform_evaluator_prefers_nothing():
    logits, value = UniformEvaluator(CONNECT4)(positions(5))
    assert logits.shape == (5, 7) and np.ptp(logits) == 0 and value.tolist() == [0] * 5


def expectation(game, state):
    """Return the mean result of random play for the player to move, exactly."""
    ended, value = game.terminal(state)
    if ended[0]:
        return float(value[0])
    return -np.mean([expectation(game, game.play(state, np.array([a]))) for a in np.flatnonzero(game.legal(state)[0])])


DRAWN = """
    X O X
    O O X
    . X O"""
# X: c3 wins; c2 wins or draws as O plays a1 or c3; a1 loses or draws as O plays c2 or c3: (1 + 1/2 - 1/2) / 3.
THIRD = """
    X X .
    O O .
    . X O"""
EARLY = """
    X . .
    . O .
    . . X"""


@pytest.mark.parametrize("drawing, by_hand", [(DRAWN, 0), (THIRD, 1 / 3), (EARLY, None)])
def test_rollouts_have_the_mean_of_random_play(drawing, by_hand):
    """4000 play-outs: within 5 standard errors of the exact mean over all of them."""
    state = board(TICTACTOE, drawing)
    exact = expectation(TICTACTOE, state)
    assert by_hand is None or exact == pytest.approx(by_hand)
    logits, value = RolloutEvaluator(TICTACTOE, 3)(np.repeat(state, 4000, axis=0))
    assert np.isin(value, (-1, 0, 1)).all() and np.ptp(logits) == 0 and logits.shape == (4000, 9)
    assert abs(value.mean() - exact) <= 5 * value.std() / math.sqrt(4000)


def test_rollout_with_one_move_left_is_certain():
    """X's last cell makes the diagonal."""
    state = board(
        TICTACTOE,
        """
        X O X
        O O X
        O X .""",
    )
    assert RolloutEvaluator(TICTACTOE, 1)(np.repeat(state, 50, axis=0))[1].tolist() == [1.0] * 50


def test_rollouts_of_a_mixed_batch_stay_with_their_positions():
    """Each player one move from the end, in one batch: certain wins, and a certain draw."""
    win = after(TICTACTOE, [0, 1, 2, 3, 5, 4, 7, 6])  # X to move, cell 8 wins
    draw = after(TICTACTOE, [0, 1, 2, 4, 3, 5, 7, 6])  # X to move, cell 8 is left
    states = np.concatenate([win, draw, win, draw, draw])
    assert not TICTACTOE.terminal(states)[0].any()
    assert RolloutEvaluator(TICTACTOE, 2)(states)[1].tolist() == [1, 0, 1, 0, 0]


@pytest.mark.parametrize("number", [0.0, 1 - 2**-24])
def test_rollouts_play_legal_moves_whatever_numbers_are_drawn(number):
    """Column 1 is full: a game in which it is never played again ends all the same."""

    class Constant:
        def random(self, size, dtype):
            return np.full(size, number, dtype)

    class Watched(type(CONNECT4)):
        def play(self, states, actions):
            assert self.legal(states)[np.arange(len(states)), actions].all(), "an illegal move"
            return super().play(states, actions)

    evaluate = RolloutEvaluator(Watched(), 1)
    evaluate.rng = Constant()
    evaluate(after(CONNECT4, [0] * 6))


def test_rollouts_leave_the_positions_alone_and_depend_on_the_seed():
    states = positions(200)
    before = states.copy()
    one, same, other = (RolloutEvaluator(CONNECT4, seed)(states)[1] for seed in ([1, 2], [1, 2], [1, 3]))
    assert (states == before).all() and (one == same).all() and (one != other).any()
