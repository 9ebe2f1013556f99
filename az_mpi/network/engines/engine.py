"""The base class of inference engines, and how a batch is cut to the few sizes that engines prepare kernels for."""

import copy
from collections.abc import Callable, Iterator

import numpy as np
import torch

NUM_CALIBRATION = 96  # positions for `Engine.calibrate`


class Engine:
    """A network on a device, ready to evaluate. A subclass defines `load`, and `evaluate`, or `begin` if its device
    works in the background. Its constructor is given those of these arguments that it has: network (a `ResNet`), game,
    device (of torch), threads (of a CPU), precision ("auto", "fp32", "bf16", "int8"), timed (whether "auto" may measure
    which precision is the fastest).

    describe: library, device and precision in words. choice: the same with the reason, for the start-up table.
    precision: what "auto" chose; None if the engine does not say. figures: numbers about the newest weights, for
    metrics. remark: what is to be logged about the newest weights; "" for nothing.
    """

    describe: str = ""
    choice = ""
    precision: str | None = None
    figures: dict[str, float] = {}
    remark = ""
    calibrates = False  # whether it uses `calibrate`
    tells_moves_left = False  # whether `evaluate` has the output of the head "moves_left"
    in_background = False  # whether `begin` returns before the device has finished

    def calibrate(self, planes: np.ndarray, legal: np.ndarray) -> None:
        """Take planes of new games, [NUM_CALIBRATION, C, H, W], and their legal actions, bool [NUM_CALIBRATION, A], the
        same ones on every rank. Called before `load`, for engines that measure the ranges of numbers."""

    def prepare(self, largest: int) -> None:
        """Make ready whatever batches of up to `largest` positions need, so that play does not wait for it."""

    def load(self, network: torch.nn.Module) -> None:
        """Use the weights of `network`, which may be on another device."""
        raise NotImplementedError

    def room(self, num: int) -> np.ndarray | None:
        """Return the array, [num, C, H, W], from which the next `begin` reads planes without a copy: it is to be filled
        and given to it. No batch under way uses it. None: the engine has no such array."""
        return None

    def evaluate(self, planes: np.ndarray) -> dict[str, np.ndarray]:
        """Return the network's outputs, {name: float32 [B, …]}, for planes [B, C, H, W], of the game's planes_dtype."""
        return self.begin(planes)()

    def begin(self, planes: np.ndarray) -> Callable[[], dict[str, np.ndarray]]:
        """Begin to evaluate planes; return a function that waits for the result and returns it, to be called once.
        Batches are completed in the order in which they were begun; several may be under way."""
        result = self.evaluate(planes)
        return lambda: result


def played(network: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a `ResNet` without the heads that only train."""
    network = copy.deepcopy(network)
    for name in [name for name, head in network.heads.items() if not head.in_play]:
        del network.heads[name]
    return network


def load_weights(into: torch.nn.Module, network: torch.nn.Module) -> None:
    """Give a network that `played` returned the weights of `network`."""
    weights = network.state_dict()
    into.load_state_dict({name: weights[name] for name in into.state_dict()})


def pieces(n: int, largest: int, step: int) -> Iterator[tuple[int, int, int]]:
    """Cut a batch of n positions into pieces of at most `largest`; yield (start, end, size) of each.

    size: the number of positions to pad the piece to, a multiple of `step`. There are largest / step different sizes.
    """
    for start in range(0, n, largest):
        end = min(start + largest, n)
        yield start, end, -(-(end - start) // step) * step
