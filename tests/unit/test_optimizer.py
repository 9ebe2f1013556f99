"""The optimisers: two steps by numpy, orthogonal matrices, one's own classes, and what is refused before play."""

import numpy as np
import pytest
import torch
from helpers import make_config
from torch import nn

from az_mpi.core.problems import Refusal
from az_mpi.train import optimizer

RATES, DECAY = (0.01, 0.03), 0.1
SHAPES = {"tower.0.weight": (3, 2, 2, 2), "tower.0.bias": (3,), "head.weight": (4, 3), "head.bias": (4,)}


def settings(name, **more):
    return make_config(train={"optimizer": name, "weight_decay": DECAY, **more}).train


def network():
    torch.manual_seed(1)
    return nn.ModuleDict({"tower": nn.ModuleList([nn.Conv2d(2, 3, 2)]), "head": nn.Linear(3, 4)})


def gradients(step):
    rng = np.random.default_rng(step)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def adamw(w, g, state, rate, decay):
    """Loshchilov and Hutter 2019, algorithm 2."""
    state["t"] = t = state.get("t", 0) + 1
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
    state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
    mean, square = state["m"] / (1 - 0.9**t), state["v"] / (1 - 0.999**t)
    return w - rate * decay * w - rate * mean / (np.sqrt(square) + 1e-8)


def nesterov(w, g, state, rate, decay):
    g = g + decay * w
    state["m"] = 0.9 * state.get("m", 0) + g
    return w - rate * (g + 0.9 * state["m"])


def muon(w, g, state, rate, decay):
    """The polynomial 3.4445 s - 4.775 s^3 + 2.0315 s^5, five times, of each singular value."""
    state["m"] = 0.95 * state.get("m", 0) + g
    u, s, v = np.linalg.svd((g + 0.95 * state["m"]).reshape(len(w), -1), full_matrices=False)
    s = s / np.sqrt((s**2).sum())
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    matrix = (u * s) @ v
    return w - rate * decay * w - rate * 0.2 * max(matrix.shape) ** 0.5 * matrix.reshape(w.shape)


@pytest.mark.parametrize(
    "name, hidden, other", [("adamw", adamw, adamw), ("sgd", nesterov, nesterov), ("muon", muon, adamw)]
)
def test_the_first_two_steps_by_numpy(name, hidden, other):
    """The weights of the tower, those of the head, and biases, which do not decay."""
    net = network()
    made, states = optimizer.make(settings(name), net), {key: {} for key in SHAPES}
    expected = {key: p.detach().double().numpy() for key, p in net.named_parameters()}
    for step, rate in enumerate(RATES):
        for group in made.param_groups:
            group["lr"] = rate
        for key, parameter in net.named_parameters():
            g, decay = gradients(step)[key], 0.0 if key.endswith("bias") else DECAY
            parameter.grad = torch.from_numpy(g).float()
            rule = hidden if key == "tower.0.weight" else other
            expected[key] = rule(expected[key], g, states[key], rate, decay)
        made.step()
        for key, parameter in net.named_parameters():
            assert np.abs(parameter.detach().numpy() - expected[key]).max() < 2e-6, (key, step)


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (1, 9), (5, 5)])
def test_orthogonalised_keeps_singular_vectors_and_levels_singular_values(shape):
    rng = np.random.default_rng(3)
    rank = min(shape)
    u, v = (np.linalg.qr(rng.normal(size=(n, rank)))[0] for n in shape)
    s = np.geomspace(0.01, 1, rank)
    for scale in (1e-6, 1.0, 1e6):
        found = optimizer.orthogonalised(torch.from_numpy((u * s) @ v.T * scale).float()).double().numpy()
        turned = u.T @ found @ v
        values = np.diag(turned)
        assert found.shape == shape and np.abs(turned - np.diag(values)).max() < 1e-3
        assert values.min() > 0.68 and values.max() < 1.21


@pytest.mark.parametrize("scale", [1e-9, 1e-18, 1e-22, 1e-30, 1e-40])
def test_a_matrix_that_has_faded_is_moved_less_than_others(scale):
    """At most 485 times as much as it is at 1e-7: five steps of 3.4445 at 0."""
    moved = optimizer.orthogonalised(torch.full((3, 4), scale))
    assert moved.isfinite().all() and moved.abs().max() <= 490 * scale / 1e-7


def test_weights_that_get_no_gradient_any_more_stay_finite():
    """Their momentum fades by 0.95 a step: below 1e-22 after a thousand, to 0 after two thousand."""
    weight = nn.Parameter(torch.ones(3, 4))
    muon = optimizer.Muon([{"params": [weight], "hidden": True}], lr=0.01)
    weight.grad = torch.full((3, 4), 0.01)
    muon.step()
    weight.grad.zero_()
    for _ in range(2500):
        muon.step()
    assert weight.isfinite().all() and (weight - 1).abs().max() < 1


def test_a_matrix_of_zeros_is_not_moved():
    assert not optimizer.orthogonalised(torch.zeros(3, 4)).any()


def test_muon_takes_the_steps_of_torchs_within_bf16():
    first, second = (nn.Parameter(torch.randn(8, 30, generator=torch.Generator().manual_seed(4))) for _ in range(2))
    ours = optimizer.Muon([{"params": [first], "hidden": True}], lr=0.02, weight_decay=0.1)
    theirs = torch.optim.Muon([second], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    before = first.detach().clone()
    for step in range(3):
        first.grad = torch.randn(8, 30, generator=torch.Generator().manual_seed(10 + step))
        second.grad = first.grad.clone()
        ours.step()
        theirs.step()
    assert (first - second).norm() < 0.02 * (first - before).norm()


OWN = """
import torch

class Signs(torch.optim.Optimizer):
    def __init__(self, params, lr=1.0, scale=1.0):
        super().__init__(params, {"lr": lr, "scale": scale})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad.sign(), alpha=-group["lr"] * group["scale"])

class Wide(Signs):
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["rows"] = torch.zeros(7)
"""


def test_users_optimizers_and_those_of_torch_train(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    chosen = settings(f"{tmp_path}/own.py:Signs(scale=3.0)", learning_rate=0.5)
    optimizer.check(chosen)
    net = network()
    made = optimizer.make(chosen, net)
    before = net["head"].bias.detach().clone()
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, -2.0)
    made.step()
    assert torch.equal(net["head"].bias, before + 1.5)
    optimizer.check(settings("torch.optim:RAdam(betas=(0.8, 0.99))"))


@pytest.mark.parametrize(
    "name, said",
    [
        ("own.py:Wide", "its state rows is neither of its parameter's shape nor a tensor of one number"),
        ("torch.optim:Adafactor", "so no checkpoint can hold it"),
        ("torch.optim:LBFGS", "LBFGS doesn't support"),
        ("torch.optim:Optimizer", "is no subclass"),
        ("adamw(betas=(2.0, 0.9))", "Invalid beta"),
        ("adamw(weight_decay=1.0)", "takes no argument weight_decay"),
        ("sgd(momentun=0.5)", "did you mean momentum?"),
    ],
)
def test_an_optimizer_that_cannot_train_is_refused(tmp_path, name, said):
    (tmp_path / "own.py").write_text(OWN)
    name = name.replace("own.py", f"{tmp_path}/own.py")
    with pytest.raises(Refusal) as caught:
        optimizer.check(settings(name))
    assert said in str(caught.value) and f'train.optimizer = "{name}"' in str(caught.value)
