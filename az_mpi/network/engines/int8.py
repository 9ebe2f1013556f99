"""The tower's convolutions in 8-bit integers: which ones, the ranges of what they read, their weights, the errors.

Activations are u8, [0, the maximum over calibration positions] in 255 steps: one range a tensor. A quantile instead of
the maximum made 15 times the error. Weights are i8 with one scale an output channel, symmetric (Jacob et al. 2018), in
127 steps, or 64 on a processor without VNNI. The first convolution, the heads and all sums between layers stay as they
are.
"""

import numpy as np
import torch
from torch import fx

from az_mpi.games.base import Game
from az_mpi.games.random_games import random_games
from az_mpi.network.engines.engine import NUM_CALIBRATION
from az_mpi.network.evaluators import searched

NUM_RANGES = 64  # of the calibration positions give the ranges; the errors are measured on the others
RANDOM_GAMES = 32
# Five times what was seen with weights in 127 steps. 5 x 64 for Connect Four after 1 to 8 iterations: KL 0.00001 to
# 0.0001 and value error 0.002 to 0.006 in the mean over 2,000 positions; over the 32 that are measured at most 0.0009
# and 0.006, since a position beyond the ranges, about 1 of 2,000, has a KL of 0.02.
KL_MAX, VALUE_ERROR_MAX = 0.005, 0.03


def has_int8() -> bool:
    """Return whether the processor multiplies 8-bit integers faster than floats: with AMX, AVX512-VNNI or AVX2."""
    return _has_vnni() or torch.cpu._is_avx2_supported()


def _has_vnni():
    return torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported()


def weight_steps() -> int:
    """Return the largest weight, in steps of its channel's scale. AVX2 adds two products in 16 bits, and what is beyond
    their range is cut off: 2 * 255 * 64 is within (oneDNN's guide, "Nuances of int8 computations")."""
    return 127 if _has_vnni() else 64


def random_bits(game: Game) -> np.ndarray:
    """Return planes of random zeros and ones, [NUM_CALIBRATION, C, H, W], always the same: for an engine that is to be
    calibrated before it plays. They need none of the game's kernels, which are perhaps not compiled yet."""
    bits = np.random.default_rng(0).integers(2, size=(NUM_CALIBRATION, *game.planes_shape))
    return bits.astype(game.planes_dtype)


def random_states(game: Game) -> np.ndarray:
    """Return positions of random games to calibrate with, [NUM_CALIBRATION, S], always the same."""
    rng = np.random.default_rng(0)
    states = np.concatenate([states for states, _ in random_games(game, RANDOM_GAMES, rng)])
    return states[rng.integers(len(states), size=NUM_CALIBRATION)]


def convolutions(graph: fx.Graph, network: torch.nn.Module) -> dict[fx.Node, fx.Node]:
    """Return {a convolution to be done in 8-bit integers: what it reads}: those of the tower that read a ReLU. What is
    computed from means or maxima over the board alone is not: it takes no time, and weighs on every cell."""
    found = {}
    pooled = set()
    for node in graph.nodes:
        if getattr(node.target, "__name__", node.target) in ("mean", "amax", "adaptive_max_pool2d") or (
            node.all_input_nodes and pooled.issuperset(node.all_input_nodes)
        ):
            pooled.add(node)
            continue
        in_tower = node.op == "call_module" and node.target.startswith("tower.")
        if in_tower and isinstance(network.get_submodule(node.target), torch.nn.Conv2d) and _is_relu(node.args[0]):
            found[node] = node.args[0]
    return found


def _is_relu(node):
    return getattr(node.target, "__name__", node.target) == "relu"


class _Maxima(fx.Interpreter):
    """Runs a graph and keeps the maximum of each of `nodes` over the first NUM_RANGES positions."""

    def __init__(self, network: torch.nn.Module, graph: fx.Graph, nodes: set[fx.Node]):
        super().__init__(network, graph=graph)
        self.maxima = dict.fromkeys(nodes)

    def run_node(self, node):
        result = super().run_node(node)
        if node in self.maxima:
            self.maxima[node] = result[:NUM_RANGES].amax()
        return result


@torch.inference_mode()
def measure(
    graph: fx.Graph, network: torch.nn.Module, planes: np.ndarray
) -> tuple[dict[fx.Node, float], dict[str, np.ndarray]]:
    """Return ({node: its maximum in the first NUM_RANGES of planes}, the fp32 network's outputs for the other planes).

    planes: [NUM_CALIBRATION, C, H, W]."""
    example = next(network.parameters())
    interpreter = _Maxima(network, graph, set(convolutions(graph, network).values()))
    x = torch.from_numpy(planes).to(example.device, example.dtype, memory_format=torch.channels_last)
    outputs = interpreter.run(x)
    maxima = {node: maximum.item() or 1.0 for node, maximum in interpreter.maxima.items()}
    return maxima, {name: output[NUM_RANGES:].cpu().numpy() for name, output in outputs.items()}


def quantised(weight: torch.Tensor, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (int8 [O, I, H, W], scale float32 [O, 1, 1, 1]), whose product is nearly weight, float [O, I, H, W].

    steps: the largest absolute value of the first, of each channel whose weights are not all 0."""
    weight = weight.detach().cpu().float()
    largest = weight.abs().amax(dim=(1, 2, 3), keepdim=True)
    scale = torch.where(largest > 0, largest / steps, 1.0)
    return (weight / scale).round().to(torch.int8).numpy(), scale.numpy()


def errors(
    outputs: dict[str, np.ndarray], exact: dict[str, np.ndarray], legal: np.ndarray, num_players: int = 2
) -> dict[str, float]:
    """Return {"int8_kl": KL(exact policy || policy), "int8_value_error": |value - exact value|}, means of positions.

    The policies are those over the legal actions, bool [n, A]: logits of other actions are not trained."""
    policies = (np.where(legal, part["policy"], -1e9) for part in (exact, outputs))
    log_p, log_q = (torch.from_numpy(policy).double().log_softmax(dim=1) for policy in policies)
    kl = (log_p.exp() * (log_p - log_q)).sum(dim=1).mean().item()
    (_, value), (_, exact_value) = (searched(part, num_players) for part in (outputs, exact))
    return {"int8_kl": kl, "int8_value_error": float(np.abs(value - exact_value).mean())}


def problem(figures: dict[str, float]) -> str:
    """Return why weights with these errors are not played in int8; "" if they may be."""
    kl, value_error = figures.values()
    if kl <= KL_MAX and value_error <= VALUE_ERROR_MAX:
        return ""
    return (
        f"in int8 the policy would be off by a KL divergence of {kl:.2g} (allowed {KL_MAX:g}), the value by "
        f"{value_error:.2g} (allowed {VALUE_ERROR_MAX:g})"
    )
