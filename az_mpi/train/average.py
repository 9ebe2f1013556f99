"""The exponential average of the weights over the steps, which plays in place of the newest weights (Polyak and
Juditsky 1992; as the stochastic weight averaging of Leela Chess Zero and KataGo: Izmailov et al. 2018).

A learner has two networks, `average` and the `network` that it trains. Without `train.ema_decay` both are the same one,
and everything here does nothing.
"""

import copy

import torch
from torch import nn

RAW = "raw"  # the name of a tensor's own weights among its optimiser's state, where the model is their average


def trained(average: nn.Module, decay: float) -> nn.Module:
    """Return the network to train: a copy of what will be the average, or the same if there is no decay."""
    return copy.deepcopy(average) if decay else average


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, decay: float) -> None:
    """Make the average decay average + (1 - decay) weights, after a step."""
    if average is not network:
        for mean, parameter in zip(average.parameters(), network.parameters(), strict=True):
            mean.lerp_(parameter, 1 - decay)


def raw_weights(average: nn.Module, network: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights that are trained, by name, to be kept beside their average; {} if there is none."""
    if average is network:
        return {}
    return {f"{name}.{RAW}": parameter for name, parameter in network.named_parameters()}


@torch.no_grad()
def restore(average: nn.Module, network: nn.Module, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give the network the weights that `raw_weights` returned, or if `tensors` has none those of the average; return
    the rest of `tensors`."""
    model = dict(average.named_parameters())
    for name, parameter in network.named_parameters():
        parameter.copy_(tensors.get(f"{name}.{RAW}", model[name]))
    return {key: tensor for key, tensor in tensors.items() if key.rpartition(".")[2] != RAW}
