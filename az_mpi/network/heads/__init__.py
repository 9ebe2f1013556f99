"""The heads of the network: its outputs by name. A new head is a file here and a line in core/registry.py."""

from torch import nn

from az_mpi.core.problems import Refusal, escape
from az_mpi.core.registry import HEADS
from az_mpi.games.base import Game

SEARCHED = ("policy", "value")  # the outputs that a search uses
TAKEN = ("planes", "weight", "index", "ply", "state", "policy_count", "policy_first")  # what else a sample has


def make(names: tuple[str, ...], game: Game, channels: int) -> nn.ModuleDict:
    """Return {name of an output: its `Head`} for `names`, `network.heads`, in that order. Raises Refusal."""
    made = [HEADS.make(name, game=game, channels=channels) for name in names]
    for text, head in zip(names, made):
        if lacks := [need for need in ("name", "target_dtype") if not hasattr(head, need)]:
            raise Refusal(f"network.heads: {text} has no {lacks[0]}\n  examples/own_head.py shows what a head needs")
    outputs = [head.name for head in made]
    if len(set(outputs)) < len(outputs) or not set(SEARCHED) <= set(outputs):
        raise Refusal(
            f"network.heads = {list(names)}\n  their outputs are {', '.join(outputs) or 'none'}; needed are "
            f"{' and '.join(SEARCHED)}, and no output twice"
        )
    if wrong := [name for name in outputs if name in TAKEN or not name.isidentifier()]:
        raise Refusal(
            f"network.heads = {list(names)}\n  an output cannot be called {escape(wrong[0])}; allowed: "
            f"letters, digits and _, except {', '.join(TAKEN)}"
        )
    return nn.ModuleDict(dict(zip(outputs, made)))
