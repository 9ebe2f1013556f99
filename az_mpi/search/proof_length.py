"""How many moves a proven result takes: the shortest win and the longest defence that a tree has proven."""

import numpy as np
from numba import njit

from az_mpi.search import tree

UNKNOWN = -1


def proof_lengths(trees: tree.Trees, b: int) -> np.ndarray:
    """Return, for each node of tree b, the number of moves to the end of the game along its proof, int32 [nodes used]:
    the shortest way to a win for the player to move there, else the longest way to the proven result. UNKNOWN for nodes
    without a known result, and where only an expectation over chance moves is known. Moves that were not searched may
    win sooner."""
    return _proof_lengths(tree.in_bytes(trees), b)


@njit(cache=True, nogil=True)
def _proof_lengths(trees, b):
    used = trees.tree[b].nodes_used
    lengths = np.full(used, UNKNOWN, np.int32)
    for n in range(used - 1, -1, -1):  # children come after their parents
        node = trees.node[b, n]
        if not node.exact:
            continue
        if node.ended:
            lengths[n] = 0
            continue
        for e in range(node.first_edge, node.first_edge + node.edge_count):
            known, value = tree.exact_edge(trees, b, np.int64(n), np.int64(e))
            below = lengths[trees.edge[b, e].edge_child] if known else UNKNOWN
            if below != UNKNOWN and value == node.exact_value:
                length = below + 1
                is_better = length < lengths[n] if node.exact_value > 0 else length > lengths[n]
                if lengths[n] == UNKNOWN or is_better:
                    lengths[n] = length
    return lengths
