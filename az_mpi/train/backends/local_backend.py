"""Training on one rank alone."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import torch

from az_mpi.mpi.world import World


class LocalBackend:
    """The `Backend` of a single trainer, whose gradients are the sums already. So no library is needed, and none of its
    threads takes part of the trainer's core."""

    def __init__(self, world: World):
        self.world = world
        self.remark = ""
        self.problem: str | None = None  # it can always be used

    def session(self) -> AbstractContextManager[None]:
        """Do nothing around the block: its steps wait for no other rank."""
        return nullcontext()

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> Callable[[], None]:
        return lambda: None

    def close(self) -> None:
        """Do nothing: a session leaves nothing open."""

    @staticmethod
    def describe() -> str:
        return "one rank trains"
