"""The optimiser: those built in, how one is made from its name, and its state by name.

An optimiser of your own is a class of torch or derives from `torch.optim.Optimizer`.
"""

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from az_mpi.core.problems import Refusal
from az_mpi.core.registry import OPTIMIZERS

if TYPE_CHECKING:
    from az_mpi.config import schema

# The quintic of Newton and Schulz that Jordan et al. chose: steep at 0, and all of [0, 1] ends near 1.
QUINTIC, QUINTIC_STEPS = (3.4445, -4.7750, 2.0315), 5
# As in the reference implementation. The momentum of weights that get no gradient any more fades to 0, and must not be
# divided by its own norm: the squares of numbers below 1e-19 are 0.
LEAST_NORM = 1e-7
UPDATE_SIZE = 0.2  # the root mean square of an AdamW update, about, in units of the rate


class _Uncompiled(torch.optim.Optimizer):
    """torch wraps these methods for its compiler. The first call imports the compiler, a thousand files, which takes
    each rank more than a second; it is not used here."""

    param_groups: list[dict[str, Any]]
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(_Uncompiled, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019): torch's, fused and uncompiled."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        fused: bool = True,
    ):
        super().__init__(params, lr, betas, eps, weight_decay, fused=fused)


class SGD(_Uncompiled, torch.optim.SGD):
    """Gradient descent with Nesterov's momentum (Sutskever et al. 2013): torch's, fused and uncompiled. The weight
    decay is part of the gradient, as in AlphaGo Zero, whose momentum was the plain one."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.SGD.step))

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.0, momentum: float = 0.9):
        super().__init__(params, lr, momentum, weight_decay=weight_decay, nesterov=True, fused=True)

    def _init_group(self, group, params, grads, momentum_buffer_list):
        sparse = super()._init_group(group, params, grads, momentum_buffer_list)
        # torch wants all or none, and new blocks have none yet.
        if any(momentum is not None for momentum in momentum_buffer_list):
            momentum_buffer_list[:] = [
                torch.zeros_like(grad) if momentum is None else momentum
                for momentum, grad in zip(momentum_buffer_list, grads)
            ]
        return sparse


class Muon(AdamW):
    """Muon (Jordan et al. 2024) for hidden weights, AdamW for all others.

    A step moves a matrix by U V^T, where U S V^T is the singular value decomposition of its momentum: all directions
    get equally large steps. A convolution's kernel counts as a matrix [out, in * height * width]. Steps are scaled to
    AdamW's size (Liu et al. 2025, "Muon is scalable for LLM training", equation 4), so both take the same rate. It is
    computed in fp32; torch.optim.Muon has matrices only, and bf16. Between ranks of different processors the results
    may differ in their last bits, as those of the gradient's norm do.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        super().__init__(params, lr, weight_decay, betas, eps)
        for group in self.param_groups:
            group.setdefault("momentum", momentum)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Take one step."""
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get("hidden")]
        try:
            super().step()
        finally:
            self.param_groups = groups
        for group in groups:
            for parameter in group["params"] if group.get("hidden") else ():
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter, group):
        """Take a step with one matrix or kernel."""
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = state["momentum_buffer"].mul_(group["momentum"]).add_(parameter.grad)
        ahead = parameter.grad.add(momentum, alpha=group["momentum"]).flatten(1)  # Nesterov's
        rate = group["lr"] * UPDATE_SIZE * max(ahead.shape) ** 0.5
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(orthogonalised(ahead).view_as(parameter), alpha=-rate)


def orthogonalised(matrix: torch.Tensor) -> torch.Tensor:
    """Return about U V^T of a matrix U S V^T, float32 [m, n]. Its singular values are between 0.68 and 1.21 where those
    of the matrix were at least 0.2 % of its norm, and less where they were smaller or the norm is below LEAST_NORM."""
    a, b, c = QUINTIC
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / x.norm().clamp(min=LEAST_NORM)
    for _ in range(QUINTIC_STEPS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def make(settings: "schema.Train", network: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser of a network's parameters. settings: `config.train`. Raises Refusal.

    Its parameter groups: the hidden weights, which are those of the tower and are marked `hidden`; the other weights;
    biases and single numbers, which do not decay.
    """
    groups: list[dict] = [{"params": [], "hidden": True}, {"params": []}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in network.named_parameters():
        kind = 2 if parameter.dim() <= 1 else 0 if name.startswith("tower.") else 1
        groups[kind]["params"].append(parameter)
    return OPTIMIZERS.make(
        settings.optimizer,
        params=[group for group in groups if group["params"]],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
    )


def check(settings: "schema.Train") -> None:
    """Take a step with a small network. Raises Refusal if the optimiser cannot do that, or if its state could not be
    stored: it must be tensors, each of the parameter's shape or a single number."""
    network = nn.ModuleDict({"tower": nn.Conv2d(2, 3, 3), "head": nn.Linear(2, 3)})
    made, text = make(settings, network), f'train.optimizer = "{settings.optimizer}"'
    try:
        for parameter in network.parameters():
            parameter.grad = torch.ones_like(parameter)
        made.step()
        state = state_by_name(made, network)
    except Exception as error:
        raise Refusal(f"{text}\n  a step with it fails: {type(error).__name__}: {error}") from error
    shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
    for name, tensor in state.items():
        if not torch.is_tensor(tensor) or tensor.shape not in ((), shapes[name.rpartition(".")[0]]):
            raise Refusal(
                f"{text}\n  its state {name.rpartition('.')[2]} is neither of its parameter's shape nor a "
                "tensor of one number, so no checkpoint can hold it"
            )


def state_by_name(optimizer: torch.optim.Optimizer, network: nn.Module) -> dict[str, torch.Tensor]:
    """Return the optimiser's own tensors by the name of the parameter and their own; the next step changes them."""
    state = optimizer.state
    return {
        f"{name}.{key}": tensor
        for name, parameter in network.named_parameters()
        for key, tensor in state.get(parameter, {}).items()
    }


def load_state(optimizer: torch.optim.Optimizer, network: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Give the optimiser copies of what `state_by_name` returned."""
    optimizer.state.clear()
    for name, parameter in network.named_parameters():
        mine = {key.rpartition(".")[2]: t for key, t in tensors.items() if key.rpartition(".")[0] == name}
        if mine:
            optimizer.state[parameter] = {key: t.to(parameter.device, copy=True) for key, t in mine.items()}
