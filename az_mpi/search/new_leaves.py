"""New leaves of the compiled loop: the rules play the action that leads there, and say what is known of the position.

See simulation_loop.py and loop_memory.py.
"""

from __future__ import annotations

import numpy as np

from az_mpi.core.intrinsics import FAILED, call1, call2, inlined
from az_mpi.core.players import CHANCE
from az_mpi.core.ranks import ranked
from az_mpi.search import chance_nodes, loop_memory, root, simulation, tree, values
from az_mpi.search.loop_memory import BROKEN, NEEDED, NEEDED_NODES, SIMULATIONS, Compiled, Mine
from az_mpi.search.tree import NO_CHILD

CHANCES_OFF = 1e-3  # the probabilities of all outcomes may add up to 1 with so large an error


@inlined()
def add_leaf(
    trees: tree.Trees, b: int, n: int, e: int, rule: tuple, noise: root.Noise, game: Compiled, mine: Mine
) -> bool:
    """Add the position that edge e of node n leads to, and where it is chance's move there the one after that, and so
    on. Return whether the last one is to be evaluated; if not, the game is over there and that was backed up, or the
    trees lack room, or the rules are broken: the tree is then as it was."""
    this = trees.tree[b]
    num_nodes, num_edges, depth = this.nodes_used, this.edges_used, this.path_length
    to = e
    while True:
        if game.num_outcomes > 0 and this.nodes_used >= trees.node.shape[1]:
            mine.told[NEEDED_NODES] = this.nodes_used + 1
            break
        leaf = tree.add_node(trees, b, n, trees.state[b, n], np.int8(0), False, mine.gains)
        trees.edge[b, to].edge_child = leaf
        player, ended = _apply(trees, b, leaf, np.int64(trees.edge[b, to].edge_action), game, mine)
        if mine.told[BROKEN] > 0:
            break
        if ended:
            if np.isnan(game.threshold):
                simulation.backup_new_result(trees, b, leaf, mine.gains, rule)
            else:  # ranks prove nothing
                simulation.backup(trees, b, leaf, mine.gains, rule)
            return False
        if player != CHANCE:
            this.leaf = leaf
            return True
        if not _expand_chance(trees, b, leaf, noise, game, mine):
            break
        n = leaf
        to = chance_nodes.outcome_edge(trees, b, n)
        trees.path[b, this.path_length] = to
        this.path_length += 1
    this.nodes_used, this.edges_used, this.path_length = num_nodes, num_edges, depth
    trees.edge[b, e].edge_child = NO_CHILD
    mine.told[SIMULATIONS] -= 1
    return False


@inlined()
def _apply(trees, b, leaf, action, game, mine):
    """Play an action in the state of a new node; return (who is to move there, whether the game is over). If it is, the
    node and mine.gains get the results. If the rules fail, say that they are broken."""
    at = loop_memory.state_at(trees, b, leaf)
    failed = call2(game.apply, at, action) == FAILED
    over = call2(game.result, at, np.int64(mine.value.ctypes.data))
    player = call1(game.current_player, at)
    for k in range(len(mine.value)):
        failed = failed or not -1 <= mine.value[k] <= 1
    is_chance = player == CHANCE and over == 0 and game.num_outcomes > 0
    if failed or over == FAILED or not (is_chance or 0 <= player < game.num_players):
        mine.told[BROKEN] = b + 1
        return player, False
    this = trees.tree[b]
    node = trees.node[b, leaf]
    node.player = max(player, 0)
    node.chance = is_chance
    if over == 0 and this.root_ply + this.path_length < game.max_plies:
        return player, False
    if over == 0 and game.num_players > 1:  # only a game of one player has a value before its end
        for k in range(len(mine.value)):
            mine.value[k] = 0
    if not np.isnan(game.threshold):  # of a game of one player
        mine.value[0] = ranked(mine.value[0], game.threshold)
    values.of_results(mine.value, np.int64(node.player), mine.gains)
    node.ended = True
    node.exact = True
    node.exact_value = mine.gains[node.player]
    for p in range(trees.several.shape[2]):
        trees.several[b, leaf, p] = mine.gains[p]
    return player, True


@inlined()
def _expand_chance(trees, b, n, noise, game, mine):
    """Give chance node n its edges, and return True; say that there is no room for them, or that the rules are broken,
    and return False."""
    failed = call2(game.chances, loop_memory.state_at(trees, b, n), np.int64(mine.chances.ctypes.data)) == FAILED
    total = 0.0
    for o in range(game.num_outcomes):
        total += mine.chances[o]
        failed = failed or not mine.chances[o] >= 0
    if failed or not abs(total - 1) < CHANCES_OFF:
        mine.told[BROKEN] = b + 1
        return False
    needed = trees.tree[b].edges_used + game.num_outcomes
    if needed > trees.edge.shape[1]:
        mine.told[NEEDED] = max(mine.told[NEEDED], needed)
        return False
    chance_nodes.expand(trees, b, n, mine.chances, noise.streams)
    return True
