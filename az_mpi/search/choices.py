"""How a search chooses, as the kernels that all searches share ask for it.

The functions are only names here. PUCT and Gumbel search (puct_rule.py, gumbel.py) each add a body with Numba's
`overload`, and the type of `rule` says which of them is compiled.
"""

from __future__ import annotations

import numpy as np
from numba.extending import overload

from az_mpi.core.intrinsics import UNCOUNTED
from az_mpi.search import tree


def prepare_root(trees: tree.Trees, b: int, rule: tuple) -> None:
    """Get the root of tree b ready for descents that begin together. For compiled code: a search adds an `overload` for
    the type of its rule."""
    raise NotImplementedError


def choose_edge(trees: tree.Trees, b: int, n: int, rule: tuple) -> int:
    """Return the edge of node n, int64, that the next simulation that comes there descends. For compiled code: a search
    adds an `overload` for the type of its rule.

    Below the root it may depend on what is in the node, its edges and their children alone: it is called when one of
    these changes, and its answer is kept in the node. That is much less work than at each visit. The tree's `width` at
    that time will do. A rule that takes unvisited edges in another order than that of tree.py must not call
    the functions of PUCT or Gumbel search there, which read the first edges alone."""
    raise NotImplementedError


def begin_search(b: int, explores: bool, noise: tuple, rule: tuple) -> None:
    """Prepare for the first simulation from a new root of tree b: set `noise.due[b]`, and what the rule keeps of a
    search. explores: it is a full search of self-play; `rule.explores[b]` and the target say so already. noise:
    `root.Noise`. For compiled code: a search adds an `overload`, if its class is in DECIDED."""
    raise NotImplementedError


def move_edge(trees: tree.Trees, b: int, temperature: float, random: np.ndarray, rule: tuple) -> int:
    """Return the edge of the root, int64, whose action is played. random: uint64 [B], streams. See
    `puct.Search.choose`. For compiled code: a search adds an `overload`, if its class is in DECIDED."""
    raise NotImplementedError


def weigh(trees: tree.Trees, b: int, rule: tuple, weights: np.ndarray) -> None:
    """Write a weight for each edge of the root, float32 [edges]: the policy target is their shares of the sum. For
    compiled code: a search adds an `overload`, if its class is in DECIDED."""
    raise NotImplementedError


def root_value(trees: tree.Trees, b: int, rule: tuple) -> float:
    """Return the value of the root for the player to move, float32. For compiled code: a search adds an `overload`, if
    its class is in DECIDED."""
    raise NotImplementedError


# Classes of searches whose moves compiled code decides, by `move_edge`, `weigh`, `root_value` and `begin_search`. The
# methods of a class that is not in it, such as a user's own, are called.
DECIDED: set[type] = set()

# Classes of rules that take the edge with the largest prior, the first of equals, at each node below the root of which
# no edge was visited. A rule of another class is asked there, too.
BEGIN_WITH_PRIOR: set[type] = set()


def begins_with_prior(rule: tuple) -> bool:
    """Return whether the class of a rule is in BEGIN_WITH_PRIOR. For compiled code."""
    raise NotImplementedError


@overload(begins_with_prior, jit_options=UNCOUNTED)
def _begins_with_prior(rule):
    found = rule.instance_class in BEGIN_WITH_PRIOR
    return lambda rule: found
