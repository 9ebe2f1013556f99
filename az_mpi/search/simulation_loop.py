"""The compiled loop: simulations of many games without Python, for games whose rules are compiled functions.

For each game one call completes the simulation whose evaluation has come, and begins others: it descends, applies the
rules, and looks the leaf up. What is known at once, such as an ended game or a cached evaluation, is backed up at once,
until a leaf needs the network or the search is complete. In self-play a move is played then, see
selfplay/moves.py, and the next search begins.

GROUP trees are worked on together, see loop_memory.py.
Shapes: B trees, A actions, K symmetries, T threads, n games, m evaluations, S bytes of a state.
"""

from __future__ import annotations

import numpy as np

from az_mpi.core import evaluation_table
from az_mpi.core.evaluation_table import Known
from az_mpi.core.intrinsics import call2, inlined, inner, prefetch, shared_call, uncounted
from az_mpi.search import choices, loop_memory, new_leaves, root, simulation, tree, values
from az_mpi.search.loop_memory import (
    BROKEN,
    GROUP,
    NEEDED,
    NEEDED_NODES,
    NUM_TOLD,
    POSITIONS,
    SIMULATIONS,
    Compiled,
    Evaluated,
    Mine,
    Scratch,
)
from az_mpi.search.simulation import EVALUATE, KNOWN
from az_mpi.search.tree import IDLE, LEAF, NO_CHILD, UNDECIDED, WAITS


@uncounted()
def simulate(
    trees: tree.Trees,
    slots: np.ndarray,
    target: np.ndarray,
    rule: tuple,
    noise: root.Noise,
    game: Compiled,
    known: Known,
    evaluated: Evaluated,
    descends: bool,
    room: Scratch,
    play: int,
    play_at: int,
) -> int:
    """Run simulations in the trees of `slots`, int64 [n], all different, until each waits for an evaluation or has
    `target` simulations, int32 [B], or a known result. trees: see `tree.in_bytes`.

    descends: begin simulations; else complete only those that are under way. Where a tree lacks room for edges, or the
    rules fail, it stays as it is, and `room.told` says so; the caller may call again.
    play, play_at: a function of `shared_call` and its arguments, or 0, 0: it is called with T b + t for each tree b
    whose search is complete, and may play a move and begin the next search there, which then continues at once.

    With several threads, T > 1, return the function that does so: see `finish_shared`."""
    at = np.int64(room.shared.ctypes.data)
    given = trees, slots, target, rule, noise, game, known, evaluated, descends, room, play, play_at
    entry = shared_call(at, _simulate_part, given)
    return entry if len(room.told) > 1 else call2(entry, at, 0)


@inner()
def _simulate_part(trees, slots, target, rule, noise, game, known, evaluated, descends, room, play, play_at, t):
    """Do what `simulate` does for the slots of thread t."""
    num_threads = len(room.told)
    first, last = t * len(slots) // num_threads, (t + 1) * len(slots) // num_threads
    told = room.told[t]
    told[:NUM_TOLD] = 0
    logits = room.logits[t, : game.actions.shape[1]]
    value = room.value[t, : evaluated.value.shape[1]]
    mine = Mine(
        room.keys,
        room.legal[t, : game.actions.shape[1]],
        logits,
        logits.view(np.uint32),
        room.chances[t, : game.num_outcomes],
        value,
        value.view(np.uint32),
        room.gains[t, : game.num_players],
        room.key[t],
        room.nodes[t],
        room.edges[t],
        room.depths[t],
        told,
        known.parts[t],
        evaluated.logits.view(np.uint32),
    )
    work = slots
    begin, end = first, last
    for again in range(2):  # secondly the trees in which a move was played
        for i in range(begin, end, GROUP):
            group = work[i : min(i + GROUP, end)]
            _advance(trees, group, target, rule, noise, game, known, evaluated, descends, room.trees[t], mine)
        if again or play == 0 or not _well(mine):
            break
        work, end = room.again, begin + _play(trees, slots[begin:end], target, play, play_at, room, begin, t)
        if not descends:
            break
    for i in range(first, last):
        room.completed[i] = complete(trees, slots[i], target)


@inlined()
def _advance(trees, group, target, rule, noise, game, known, evaluated, descends, active, mine):
    """Do what `simulate` does for GROUP trees at most. active int64 [GROUP]: room for it."""
    loop_memory.prefetch_paths(trees, group, known, mine.keys)
    num = 0
    for b in group:
        this = trees.tree[b]
        if this.stage == WAITS and this.row >= 0:
            _complete(trees, b, rule, noise, game, known, evaluated, mine)
        if descends and (this.stage == LEAF or (this.stage == IDLE and not complete(trees, b, target))):
            active[num] = b
            num += 1
    while num > 0 and _well(mine):
        _descend_together(trees, active[:num], rule, noise, mine)
        _reach_leaves(trees, active[:num], rule, noise, game, known, mine)
        num = _look_up(trees, active[:num], target, rule, noise, game, known, mine)


@inlined()
def _well(mine):
    """Return whether no tree lacks room, and the rules did not fail."""
    return mine.told[BROKEN] == 0 and mine.told[NEEDED] == 0 and mine.told[NEEDED_NODES] == 0


@inlined()
def _play(trees, slots, target, play, play_at, room, begin, t):
    """Call `play` for each tree whose search is complete. Return how many have another search then: those from `begin`
    in `room.again`."""
    num = 0
    for b in slots:
        this = trees.tree[b]
        if this.stage == IDLE and complete(trees, b, target):
            if call2(play, play_at, b * len(room.told) + t) != 0:
                raise RuntimeError("a move could not be played")
            if this.stage == IDLE and not complete(trees, b, target):
                room.again[begin + num] = b
                num += 1
    return num


@inlined()
def complete(trees: tree.Trees, b: int, target: np.ndarray) -> bool:
    """Return whether the search of tree b is complete: it has run `target` simulations, or the root's result is known.
    The first visit is the root's own evaluation; each simulation after it descends one edge."""
    return trees.node[b, 0].exact or trees.node[b, 0].visits > target[b]


@inlined()
def _legal(trees, b, n, game, mine):
    """Write which actions are legal at node n; return how many. If the rules fail, or none is, say that they are
    broken and return 0."""
    num = call2(game.legal_actions, loop_memory.state_at(trees, b, n), np.int64(mine.legal.ctypes.data))
    if num <= 0:
        mine.told[BROKEN] = b + 1
        return np.int64(0)
    if trees.tree[b].edges_used + num > trees.edge.shape[1]:
        mine.told[NEEDED] = max(mine.told[NEEDED], trees.tree[b].edges_used + num)
        return np.int64(0)
    return num


@inlined()
def _complete(trees, b, rule, noise, game, known, evaluated, mine):
    """Complete the simulation of tree b by the evaluation that it waits for, unless `_legal` says otherwise."""
    this = trees.tree[b]
    leaf = np.int64(this.leaf)
    row = np.int64(this.row)
    num_actions = game.actions.shape[1]
    if _legal(trees, b, leaf, game, mine) == 0:
        return
    legal = mine.legal
    logits = mine.logits
    for a in range(num_actions):
        logits[game.actions[this.symmetry, a]] = evaluated.logits[row, a]
    for k in range(len(mine.value)):
        mine.value[k] = evaluated.value[row, k]
    if this.stores:
        evaluation_table.store(
            known,
            mine.part,
            mine.keys[b],
            legal,
            game.actions,
            this.symmetry,
            mine.evaluated_bits,
            row,
            mine.value_bits,
        )
    values.of_evaluation(mine.value, np.int64(trees.node[b, leaf].player), mine.gains)
    _expand(trees, b, leaf, logits, legal, rule, noise)
    simulation.backup(trees, b, leaf, mine.gains, rule)
    this.stage = IDLE
    this.row = -1


@inlined()
def _expand(trees, b, leaf, logits, legal, rule, noise):
    simulation.expand(trees, b, leaf, logits, legal, rule)
    if leaf == 0 and noise.due[b]:
        root.mix_noise(trees, b, noise)


@inlined()
def _descend_together(trees, active, rule, noise, mine):
    """Descend the trees `active`, unless they have a leaf already, a level of all trees at a time. edges[i] is then the
    edge that leads out of tree i, from its `leaf`, or EVALUATE or KNOWN."""
    under_way = _begin_descents(trees, active, rule, noise, mine)
    while under_way > 0:
        for i in range(len(active)):
            if mine.nodes[i] >= 0:
                under_way -= _descend_a_level(trees, active[i], i, rule, mine)
        for i in range(len(active)):
            if mine.nodes[i] >= 0:
                loop_memory.prefetch_edges(trees, active[i], mine.nodes[i])
    for i in range(len(active)):
        if trees.tree[active[i]].stage == IDLE:
            trees.tree[active[i]].path_length = mine.depths[i]


@inlined()
def _begin_descents(trees, active, rule, noise, mine):
    """Put each tree that has no leaf at its root; return how many these are."""
    under_way = 0
    for i in range(len(active)):
        b = active[i]
        mine.nodes[i] = -1
        mine.depths[i] = 0
        mine.edges[i] = EVALUATE
        if trees.tree[b].stage == IDLE:
            choices.prepare_root(trees, b, rule)
            if noise.due[b] and trees.node[b, 0].edge_count > 0:  # searched before it became the root
                root.mix_noise(trees, b, noise)
            mine.nodes[i] = 0
            under_way += 1
    return under_way


@inlined()
def _descend_a_level(trees, b, i, rule, mine):
    """Descend from node nodes[i] of tree b to its child, and return whether the descent ends: nodes[i] is then -1."""
    n = mine.nodes[i]
    node = trees.node[b, n]
    if node.edge_count == 0 or node.exact:
        mine.edges[i] = KNOWN if node.exact else EVALUATE
        trees.tree[b].leaf = n
        mine.nodes[i] = -1
        return True
    if node.choice == UNDECIDED:
        node.choice = simulation.next_edge(trees, b, n, rule) - node.first_edge
    e = np.int64(node.first_edge) + node.choice
    trees.path[b, mine.depths[i]] = e
    mine.depths[i] += 1
    child = np.int64(trees.edge[b, e].edge_child)
    if child != NO_CHILD:
        mine.nodes[i] = child
        prefetch(loop_memory.node_at(trees, b, child))
        return False
    mine.edges[i] = e
    trees.tree[b].leaf = n
    mine.nodes[i] = -1
    new = np.int64(trees.tree[b].nodes_used)
    prefetch(loop_memory.state_at(trees, b, n))
    prefetch(loop_memory.state_at(trees, b, new))
    prefetch(loop_memory.node_at(trees, b, new))
    return True


@inlined()
def _reach_leaves(trees, active, rule, noise, game, known, mine):
    """Add the leaves that the descents have found, and look at each: stage LEAF has a key to look up, IDLE was backed
    up."""
    edges = mine.edges
    for i in range(len(active)):
        b = active[i]
        this = trees.tree[b]
        if this.stage == IDLE:
            mine.told[SIMULATIONS] += 1
            n = np.int64(this.leaf)
            if edges[i] == KNOWN:
                values.exact(trees, b, n, mine.gains)
                simulation.backup(trees, b, n, mine.gains, rule)
                continue
            if edges[i] != EVALUATE and not new_leaves.add_leaf(trees, b, n, edges[i], rule, noise, game, mine):
                continue
            this.stage = LEAF
            this.row = -1
            this.symmetry = 0
            mine.told[POSITIONS] += 1
            if len(known.keys) > 0:
                _find_key(trees, b, game, known, mine)


@inlined()
def _find_key(trees, b, game, known, mine):
    """Find the key of the leaf of tree b, and ask for the table's entry."""
    this = trees.tree[b]
    at = loop_memory.state_at(trees, b, np.int64(this.leaf))
    symmetry = call2(game.canonical, at, np.int64(mine.key.ctypes.data))
    if not 0 <= symmetry < len(game.actions):
        mine.told[BROKEN] = b + 1
        symmetry = 0
    this.symmetry = symmetry
    key = max(mine.key[0] ^ known.weights, np.uint64(1))  # 0 marks an empty entry
    mine.keys[b] = key
    evaluation_table.ask_for_set(known, key)


@inlined()
def _find_entries(trees, active, known, keys, found):
    """Find the entries of the leaves of these trees, -1 if there is none, and ask for what is read next."""
    for i in range(len(active)):
        found[i] = -1
        if trees.tree[active[i]].stage == LEAF and len(known.keys) > 0:
            found[i] = evaluation_table.find(known, keys[active[i]])
            if found[i] >= 0:
                evaluation_table.ask_for_entry(known, found[i])
                loop_memory.prefetch_new_edges(trees, active[i])
    for i in range(len(active)):
        if found[i] >= 0:
            evaluation_table.ask_for_logits(known, found[i])


@inlined()
def _look_up(trees, active, target, rule, noise, game, known, mine):
    """Look up the leaves of these trees and complete those that are found; the others wait for an evaluation. Return
    how many trees need another descent; these are then the first of `active`."""
    num = 0
    found = mine.edges  # numbers of entries
    _find_entries(trees, active, known, mine.keys, found)
    for i in range(len(active)):
        b = active[i]
        this = trees.tree[b]
        if this.stage == LEAF:
            leaf = np.int64(this.leaf)
            logits = mine.logits
            at = found[i]
            if at < 0 or not evaluation_table.read(
                known, mine.keys[b], at, game.actions, this.symmetry, mine.logits_bits, mine.value_bits
            ):
                this.stage = WAITS
            else:
                if _legal(trees, b, leaf, game, mine) > 0:
                    values.of_evaluation(mine.value, np.int64(trees.node[b, leaf].player), mine.gains)
                    _expand(trees, b, leaf, logits, mine.legal, rule, noise)
                    simulation.backup(trees, b, leaf, mine.gains, rule)
                    this.stage = IDLE
        if this.stage == IDLE and not complete(trees, b, target):
            active[num] = b
            num += 1
    return num
