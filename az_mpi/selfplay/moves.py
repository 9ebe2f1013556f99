"""The moves of games under way: how they are played, and what a record needs of them once a game has ended.

Shapes: T threads, B games at once, L longest game, S bytes of a state, E policy entries, n games that move, M policy
entries of their positions together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from az_mpi.core.intrinsics import SHARED_BYTES, call2, finish_shared, floats_on_stack, inner, shared_call, uncounted
from az_mpi.core.problems import OwnCodeError
from az_mpi.games.base import all_legal
from az_mpi.search import batches, choices, reroot, root, streams, tree
from az_mpi.search.tree import MOVED
from az_mpi.selfplay.record import POLICY

if TYPE_CHECKING:
    from az_mpi.config import schema
    from az_mpi.games.base import Game
    from az_mpi.search.puct import Search

# Of a position, before its move; `record.POSITIONS` says what the fields are. surprise: see `Search.surprise`.
MOVE = np.dtype(
    [
        ("action", np.int32),
        ("root_value", np.float32),
        ("surprise", np.float32),
        ("policy_count", np.int32),
        ("to_play", np.int8),
    ],
    align=True,
)


class Moves(NamedTuple):
    """move MOVE [B, L] and states [B, L, S], by the plies. policy POLICY [B, E]: the entries of a game's positions, one
    after the other; num_entries int64 [B]: how many they are."""

    move: np.ndarray
    states: np.ndarray
    policy: np.ndarray
    num_entries: np.ndarray


class Found(NamedTuple):
    """What searches have found. actions int64 [n]: that are played; values, surprises float32 [n]; nums int32 [n],
    entries int32 [M], probabilities float32 [M]: as `puct.Search.policy` returns them."""

    actions: np.ndarray
    values: np.ndarray
    surprises: np.ndarray
    nums: np.ndarray
    entries: np.ndarray
    probabilities: np.ndarray


class Manner(NamedTuple):
    """How moves are played: the temperature of the first plies of a game, how many these are, and the temperature
    after them; the value below which a player resigns; whether subtrees are kept, and whether surprises are.

    How the next search begins: simulations of a full search and of a fast one, the share of full ones, and the plies
    after which a game ends."""

    temperature: float
    temperature_plies: int
    temperature_final: float
    resigns_below: float
    reuses: bool
    keeps_surprises: bool
    simulations: int
    fast_simulations: int
    full_share: float
    max_plies: int


def manner(config: schema.Config, max_plies: int) -> Manner:
    """Return how a configuration plays moves, in games that end after `max_plies`."""
    search, of_games = config.search, config.selfplay
    return Manner(
        search.temperature,
        search.temperature_plies,
        search.temperature_final,
        -of_games.resign_threshold,
        search.reuse_tree,
        of_games.surprise_share > 0,
        search.simulations,
        min(search.fast_simulations, search.simulations),
        search.full_share,
        max_plies,
    )


def empty(game: Game, num_games: int, num_moves: int) -> Moves:
    """Return room for so many moves in each of the games."""
    states = np.empty((num_games, num_moves, game.state_size), game.state_dtype)
    policy, num_entries = np.empty((num_games, num_moves), POLICY), np.zeros(num_games, np.int64)
    return Moves(np.zeros((num_games, num_moves), MOVE), states, policy, num_entries)


def added(
    moves: Moves, search: Search, slots: np.ndarray, plies: np.ndarray, found: Found, keeps_surprises: bool
) -> Moves:
    """Return the same moves and those that the games `slots`, int64 [n], play now from the roots of their trees.
    plies: int32 [n], the moves before them. keeps_surprises: ask the search for them, in place of those in `found`.
    Raises OwnCodeError if the parts of `found` do not fit together, or are no legal actions."""
    _check_counts(slots, found)
    _check_actions(search, slots, found)
    if keeps_surprises:  # not before: compiled code reads the policy
        surprises = search.surprise(slots, (found.nums, found.entries, found.probabilities))
        found = found._replace(surprises=surprises)
        _check_counts(slots, found)
    moves = with_room(moves, slots, found.nums)
    _keep(_in_bytes(moves), tree.in_bytes(search.trees), slots, plies, found)
    return moves


class Made(NamedTuple):
    """What compiled code writes about the newest moves: actions int64 [B], that were played; resigns bool [B], the
    player to move does, and has moved nevertheless; kept bool [B], the position after the action is the root. The loop
    also writes moved bool [B], it has played a move since this was cleared, and over bool [B], the game is over then.
    nodes int32 [T, N]: room for the new numbers of nodes; shared uint8: of `shared_call`."""

    actions: np.ndarray
    resigns: np.ndarray
    kept: np.ndarray
    moved: np.ndarray
    over: np.ndarray
    nodes: np.ndarray
    shared: np.ndarray


def made(num_trees: int, threads: int, num_nodes: int) -> Made:
    """Return room for what is written about the newest moves."""
    resigns, kept, moved, over = np.zeros((4, num_trees), np.bool_)
    nodes, shared = np.empty((threads, num_nodes), np.int32), np.empty(SHARED_BYTES, np.uint8)
    return Made(np.zeros(num_trees, np.int64), resigns, kept, moved, over, nodes, shared)


def in_loop(search: Search, batch: batches.Batch) -> bool:
    """Return whether the compiled loop plays the moves, see `player_in_loop`; not where moves of chance are drawn."""
    compiled = isinstance(batch, batches.CompiledBatch) and not search.game.num_outcomes
    return compiled and type(search) in choices.DECIDED


def played(
    moves: Moves, search: Search, slots: np.ndarray, plies: np.ndarray, plays_on: np.ndarray, how: Manner, made: Made
) -> None:
    """Play the moves that the searches in `slots`, int64 [n], have decided, for a search in `choices.DECIDED`.

    moves: with room for them, see `with_room`. plies: int32 [B], the moves so far, which are increased. plays_on: bool
    [B], the games in which nobody resigns."""
    made = _with_nodes(made, search.trees)
    if len(slots) < root.SHARED_FROM:
        made = made._replace(nodes=made.nodes[:1])
    of_trees = tree.in_bytes(search.trees), slots, plies, plays_on
    found = _play(*of_trees, _in_bytes(moves), search.rule, search.root_noise, how, made)
    finish_shared(found, made.shared, len(made.nodes))
    search.begin_moved(slots, made.actions[slots], made.kept[slots])


def player_in_loop(
    trees: tree.Trees, moves: Moves, search: Search, plies: np.ndarray, plays_on: np.ndarray, how: Manner, made: Made
) -> tuple[int, int]:
    """Return what `simulation_loop.simulate` takes as `play`: the addresses of a function and of its arguments. Called
    with T b + t, it plays a move in tree b, unless `made.moved` is set, and sets that; t: the thread, of T. If the game
    continues from a position in the tree, the next search begins; else the tree's stage is MOVED, and after
    `begin_moved`, or in another game, IDLE again. The arguments are those of `played`; trees: `search.trees` in
    bytes."""
    of_search = search.target, search.rule, search.root_noise
    return _prepare(trees, plies, plays_on, _in_bytes(moves), *of_search, how, made), made.shared.ctypes.data


def _with_nodes(made, trees):
    """Return `made` for trees that may have grown: those of games with chance do."""
    num_nodes = trees.node.shape[1]
    if made.nodes.shape[1] >= num_nodes:
        return made
    return made._replace(nodes=np.empty((len(made.nodes), num_nodes), np.int32))


def with_room(moves: Moves, slots: np.ndarray, nums: np.ndarray | int) -> Moves:
    """Return the same moves with room for so many more policy entries, int [n] or for each, in these games."""
    old = moves.policy
    needed = int((moves.num_entries[slots] + nums).max())
    if needed <= old.shape[1]:
        return moves
    room = np.empty((len(old), max(needed, 2 * old.shape[1])), POLICY)
    used = moves.num_entries.max()
    room[:, :used] = old[:, :used]
    return moves._replace(policy=room)


def _in_bytes(moves):
    return Moves(moves.move, moves.states.view(np.uint8), moves.policy, moves.num_entries)


@uncounted()
def _prepare(trees, plies, plays_on, moves, target, rule, noise, how, made):
    given = trees, plies, plays_on, moves, target, rule, noise, how, made
    return shared_call(np.int64(made.shared.ctypes.data), _play_in_loop, given)


@inner()
def _play_in_loop(trees, plies, plays_on, moves, target, rule, noise, how, made, number):
    """Do what `player_in_loop` says. number: T b + t."""
    b, t = number // len(made.nodes), number % len(made.nodes)
    if made.moved[b]:
        return
    made.moved[b] = True
    _play_one(trees, b, plies, plays_on, moves, rule, noise, how, made, t)
    made.over[b] = made.resigns[b] or plies[b] >= how.max_plies or (made.kept[b] and trees.node[b, 0].ended)
    if made.over[b] or not made.kept[b]:
        trees.tree[b].stage = MOVED
        return
    explores = how.full_share >= 1 or streams.uniform(noise.streams, b) < how.full_share
    target[b] = how.simulations if explores else how.fast_simulations
    rule.explores[b] = explores
    choices.begin_search(b, explores, noise, rule)


@uncounted()
def _play(trees, slots, plies, plays_on, moves, rule, noise, how, made):
    at = np.int64(made.shared.ctypes.data)
    entry = shared_call(at, _play_part, (trees, slots, plies, plays_on, moves, rule, noise, how, made))
    return entry if len(made.nodes) > 1 else call2(entry, at, 0)


@inner()
def _play_part(trees, slots, plies, plays_on, moves, rule, noise, how, made, t):
    """Play the moves of the slots of thread t."""
    num_threads = len(made.nodes)
    for i in range(t * len(slots) // num_threads, (t + 1) * len(slots) // num_threads):
        _play_one(trees, slots[i], plies, plays_on, moves, rule, noise, how, made, t)


@inner()
def _play_one(trees, b, plies, plays_on, moves, rule, noise, how, made, t):
    """Play the move of tree b."""
    weights = floats_on_stack()
    early = plies[b] < how.temperature_plies
    temperature = how.temperature if early else how.temperature_final
    edge = trees.edge[b, choices.move_edge(trees, b, temperature, noise.streams, rule)]
    move = moves.move[b, plies[b]]
    move.action = edge.edge_action
    move.root_value = choices.root_value(trees, b, rule)
    move.surprise = 0
    move.policy_count = 0
    move.to_play = trees.node[b, 0].player
    for k in range(moves.states.shape[2]):
        moves.states[b, plies[b], k] = trees.state[b, 0, k]
    if rule.explores[b]:  # else it is a fast search, which makes no target
        choices.weigh(trees, b, rule, weights)
        _keep_policy(trees, b, moves, move, weights, noise, how)
    made.actions[b] = move.action
    made.resigns[b] = move.root_value < how.resigns_below and not plays_on[b]
    plies[b] += 1
    trees.tree[b].root_ply += 1
    made.kept[b] = how.reuses and edge.edge_child != tree.NO_CHILD
    if made.kept[b]:
        reroot.reroot(trees, b, np.int64(edge.edge_child), made.nodes[t])


@inner()
def _keep_policy(trees, b, moves, move, weights, noise, how):
    """Add the policy target of these weights to those of game b, and the surprise to its move."""
    entries = moves.policy[b, moves.num_entries[b] :]
    move.policy_count = root.write_policy(trees, b, weights, entries.action, entries.probability)
    moves.num_entries[b] += move.policy_count
    if how.keeps_surprises:
        entries = entries[: move.policy_count]
        move.surprise = root.surprise_of(trees, b, entries.action, entries.probability, noise)


def _check_counts(slots, found):
    num, rows, total = len(slots), [len(part) for part in found], found.nums.sum()
    if rows != [num] * 4 + [total] * 2 or (found.nums < 0).any():
        raise OwnCodeError(
            f"a search returned arrays of {rows} rows, and counts whose sum is {total}, for {num} games\n"
            "  expected: an action, a value, a surprise and a count for each game, and as many entries of policies, "
            "each with its probability, as the counts add up to"
        )


def _check_actions(search, slots, found):
    legal, games = search.game.legal(search.trees.state[slots, 0]), np.arange(len(slots))
    for name, actions, rows in (
        ("choose", found.actions, games),
        ("policy", found.entries, np.repeat(games, found.nums)),
    ):
        if not all_legal(actions, legal, rows):
            raise OwnCodeError(
                f"{type(search).__name__}.{name} returned an action that is not legal: {actions!r:.200}\n"
                "  expected: whole numbers, each a legal action of the position at the root of its game's tree"
            )


@njit(cache=True, nogil=True)
def _keep(moves, trees, slots, plies, found):
    m = 0
    for i in range(len(slots)):
        b = slots[i]
        move = moves.move[b, plies[i]]
        move.action = found.actions[i]
        move.root_value = found.values[i]
        move.surprise = found.surprises[i]
        move.policy_count = found.nums[i]
        move.to_play = trees.node[b, 0].player
        for k in range(moves.states.shape[2]):
            moves.states[b, plies[i], k] = trees.state[b, 0, k]
        for e in range(moves.num_entries[b], moves.num_entries[b] + found.nums[i]):
            moves.policy[b, e].action = found.entries[m]
            moves.policy[b, e].probability = found.probabilities[m]
            m += 1
        moves.num_entries[b] += found.nums[i]
