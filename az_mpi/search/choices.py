"""How a search chooses, as the kernels that all searches share ask for it.

`prepare_root` and `choose_edge` are only names here. PUCT and Gumbel search (puct_rule.py, gumbel.py) each add a
body with Numba's `overload`, and the type of `rule` says which of them is compiled.
"""

from __future__ import annotations

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
    that time will do."""
    raise NotImplementedError


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
