"""Training on one rank alone."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from az_mpi.mpi.world import World


class LocalBackend:
    """The backend of a single trainer, whose gradients are the sums already. So no library is needed, and none of its
    threads takes part of the trainer's core.

    problem: why it cannot be used; None, since it always can.
    """

    remark = ""  # a note for the start-up table; "" for none

    def __init__(self, world: World):
        self.world, self.problem = world, None

    def session(self) -> AbstractContextManager[None]:
        """Do nothing around the block: its steps wait for no other rank."""
        return nullcontext()

    def wrap(self, optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> Any:
        """Return the optimiser, with what the others add to it."""
        optimizer.synchronize = lambda: None
        optimizer.skip_synchronize = nullcontext
        return optimizer

    def close(self) -> None:
        """Do nothing: a session leaves nothing open."""

    @staticmethod
    def describe() -> str:
        """Return what carries the sums over ranks, one line."""
        return "one rank trains"
