"""For several tests: boards from drawings, a game small enough for hand computation, a walk over search trees."""

import json
import math
import signal
import subprocess
from pathlib import Path

import numpy as np
import torch
from numba import njit

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.config.load import validate
from az_mpi.games.base import Game
from az_mpi.network import resnet
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import Evaluator
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.search import make_search
from az_mpi.storage import checkpoint, run_folder

CONNECT4 = games.make("connect4")


def callable_by_python(function):
    """Return a function that only compiled code can call as one that Python can call."""
    return njit(lambda *given: function(*given))


def make_config(game="tictactoe", **sections):
    """Return a configuration with the given keys, the others at their defaults."""
    return validate({"game": game, **sections}, "test")


def stones(drawing):
    """Return a drawing as lists of its rows from the top, a character a cell: X began, O is the other, . is empty."""
    return [line.split() for line in drawing.strip().splitlines()]


def moves_of(game, drawing):
    """Return moves that lead from the empty board to a drawing, X and O alternately, X first."""
    rows = stones(drawing)
    if game.name == "tictactoe":
        cells = sum(rows, [])
        first, second = ([k for k, cell in enumerate(cells) if cell == who] for who in "XO")
        assert len(first) - len(second) in (0, 1), "no game leads here"
        return [(second if ply % 2 else first)[ply // 2] for ply in range(len(first) + len(second))]
    columns = [[row[c] for row in reversed(rows) if row[c] != "."] for c in range(7)]
    moves = _order(columns, "X", set())
    assert moves is not None, "no game leads here"
    return moves


def _order(columns, player, dead):
    """Return columns in an order that drops these stones (bottom first) alternately, or None. Searched depth first."""
    heights = tuple(map(len, columns))
    if not any(heights):
        return []
    for c in range(7):
        if columns[c][:1] == [player] and heights not in dead:
            rest = _order(columns[:c] + [columns[c][1:]] + columns[c + 1 :], "O" if player == "X" else "X", dead)
            if rest is not None:
                return [c, *rest]
    dead.add(heights)
    return None


def after(game, moves):
    """Return the state after these moves from the start, [1, S]."""
    states = game.initial(1)
    for move in moves:
        states = game.play(states, np.array([move]))
    return states


def board(game, drawing):
    """Return the state that a drawing shows, [1, S]; whose turn it is follows from the number of stones."""
    return after(game, moves_of(game, drawing))


class Ways(Game):
    """A game for hand computation: `plies` times left (0) or right (1); the way, read as binary digits, is its end.

    A state is (ply, number). The number of the end, minus half the largest, scaled to [-1, 1], is the result for the
    player who began. With `twice`, each player moves two times in a row.
    """

    name, num_actions, planes_shape, state_size, state_dtype = "ways", 2, (1, 1, 2), 2, np.dtype(np.int32)
    symmetry_cells = symmetry_actions = np.array([[0, 1]], np.int32)

    def __init__(self, plies, twice=False):
        self.max_plies, self.twice = plies, twice

    def initial(self, n):
        return np.zeros((n, 2), np.int32)

    def play(self, states, actions):
        return np.stack([states[:, 0] + 1, 2 * states[:, 1] + actions], axis=1).astype(np.int32)

    def legal(self, states):
        return np.ones((len(states), 2), bool)

    def terminal(self, states):
        ended = states[:, 0] == self.max_plies
        first = states[:, 1] / (2**self.max_plies - 1) * 2 - 1
        value = np.where(self.to_play(states) == 0, first, -first)
        return ended, np.where(ended, value, 0).astype(np.float32)

    def to_play(self, states):
        return (states[:, 0] // (2 if self.twice else 1) % 2).astype(np.int8)

    def planes(self, states):
        return np.zeros((len(states), 1, 1, 2), np.uint8)

    def show(self, state):
        return str(state)


class Corridor(Game):
    """A token in the middle of `length` cells. The player who moves it onto an end loses, so that good games never end.

    A state is (the token's cell, who is to move): it does not say how many moves were made."""

    name, num_actions, state_size, state_dtype, max_plies = "corridor", 2, 2, np.dtype(np.uint64), 6
    symmetry_actions = np.arange(2, dtype=np.int32)[None]

    def __init__(self, length=5):
        self.length, self.planes_shape = length, (1, 1, length)
        self.symmetry_cells = np.arange(length, dtype=np.int32)[None]

    def initial(self, n):
        return np.tile(np.array([self.length // 2, 0], np.uint64), (n, 1))

    def play(self, states, actions):
        cells = states[:, 0].astype(np.int64) + np.where(actions == 0, -1, 1)
        return np.stack([cells, 1 - self.to_play(states)], axis=1).astype(np.uint64)

    def legal(self, states):
        return np.ones((len(states), 2), bool)

    def terminal(self, states):
        ended = (states[:, 0] <= 0) | (states[:, 0] >= self.length - 1)
        return ended, ended.astype(np.float32)

    def to_play(self, states):
        return states[:, 1].astype(np.int8)

    def planes(self, states):
        return (states[:, :1, None, None] == np.arange(self.length)).astype(np.uint8)

    def show(self, state):
        return "".join("T" if cell == state[0] else "." for cell in range(self.length))


class Table(Evaluator):
    """An evaluator from a table: the state as a tuple -> (priors, value for the player to move); else equal, 0."""

    def __init__(self, game, table):
        self.game, self.table, self.seen = game, table, []

    def __call__(self, states):
        self.seen += [tuple(map(int, state)) for state in states]
        equal = [1.0] * self.game.num_actions, 0.0
        rows = [self.table.get(tuple(map(int, state)), equal) for state in states]
        priors = np.array([row[0] for row in rows], np.float32).reshape(len(states), self.game.num_actions)
        with np.errstate(divide="ignore"):
            return np.log(priors), np.array([row[1] for row in rows], np.float32)


class Hashed(Evaluator):
    """Logits and a value in (-1, 1) that look random and depend on the state alone."""

    def __init__(self, game):
        self.game = game

    def __call__(self, states):
        keys = self.game.key(states)
        words = keys[:, None] * (np.arange(self.game.num_actions + 1, dtype=np.uint64) * np.uint64(2) + np.uint64(3))
        numbers = ((words >> np.uint64(40)).astype(np.float64) / 2**24).astype(np.float32)
        return 3 * numbers[:, :-1], 2 * numbers[:, -1] - 1


def tree_as_dict(trees, b, node=0):
    """Return tree b below `node`: what it holds, without the indices at which it lies."""
    first = trees.first_edge[b, node]
    edges = range(first, first + trees.edge_count[b, node])
    children = [int(trees.edge_child[b, e]) for e in edges]
    return {
        "state": tuple(trees.state[b, node].tolist()),
        "player": int(trees.player[b, node]),
        "ended": bool(trees.ended[b, node]),
        "exact": float(trees.exact_value[b, node]) if trees.exact[b, node] else None,
        "visits": int(trees.visits[b, node]),
        "value_sum": float(trees.value_sum[b, node]),
        "edges": {
            int(trees.edge_action[b, e]): (
                float(trees.edge_prior[b, e]),
                int(trees.edge_visits[b, e]),
                float(trees.edge_value_sum[b, e]),
                None if child < 0 else tree_as_dict(trees, b, child),
            )
            for e, child in zip(edges, children)
        },
    }


def check_tree(game, trees, b, root_state):
    """Assert what must hold in tree b at all times; return its number of nodes."""
    seen, edges_seen = {0}, 0
    assert (trees.state[b, 0] == root_state).all() and trees.parent[b, 0] == -1
    for node in range(trees.nodes_used[b]):
        assert node in seen, "a node that no edge leads to"
        state = trees.state[b, node][None]
        ended, value = game.terminal(state)
        assert trees.ended[b, node] == ended[0] and trees.player[b, node] == game.to_play(state)[0]
        edges = np.arange(trees.first_edge[b, node], trees.first_edge[b, node] + trees.edge_count[b, node])
        visits, value_sum = trees.visits[b, node], trees.value_sum[b, node]
        exact, exact_value = trees.exact[b, node], trees.exact_value[b, node]
        if ended[0]:
            assert len(edges) == 0 and value_sum == visits * value[0] and exact and exact_value == value[0]
            continue
        if visits == 0:  # a root that is not expanded yet
            assert node == 0 and len(edges) == 0
            continue
        edges_seen += len(edges)
        actions, priors = trees.edge_action[b, edges], trees.edge_prior[b, edges].astype(float)
        assert sorted(actions.tolist()) == np.flatnonzero(game.legal(state)[0]).tolist()
        num = 0 if node == 0 else int((trees.edge_visits[b, edges] > 0).sum())
        assert node == 0 or not trees.edge_visits[b, edges[num:]].any()  # those that were visited come first
        likeliest = node > 0 and num < len(edges)
        assert not likeliest or np.lexsort((actions[num:], -priors[num:]))[0] == 0
        assert (np.diff(actions[num + likeliest :]) > 0).all()
        assert abs(priors.sum() - 1) < 1e-6 and (priors >= 0).all()
        ended_here = visits - 1 - trees.edge_visits[b, edges].sum()  # simulations, since the node was proven
        assert ended_here == 0 or ended_here > 0 and exact
        own = value_sum - trees.edge_value_sum[b, edges].sum()  # the node's own evaluation
        assert abs(own - ended_here * exact_value if exact else own) <= 1 + 1e-9
        known = {}
        for e in edges:
            child = trees.edge_child[b, e]
            assert (child < 0) == (trees.edge_visits[b, e] == 0)
            if child < 0:
                assert trees.edge_value_sum[b, e] == 0
                continue
            assert node < child < trees.nodes_used[b] and child not in seen and trees.parent[b, child] == node
            seen.add(int(child))
            assert (trees.state[b, child] == game.play(state, trees.edge_action[b, [e]])[0]).all()
            assert trees.visits[b, child] == trees.edge_visits[b, e]
            sign = 1 if trees.player[b, child] == trees.player[b, node] else -1
            if trees.exact[b, child]:
                known[e] = sign * trees.exact_value[b, child]
            assert abs(trees.edge_value_sum[b, e] - sign * trees.value_sum[b, child]) < 1e-9
        assert exact == (len(known) == len(edges) or 1 in known.values())
        assert not exact or exact_value == max(known.values())
    assert edges_seen == trees.edges_used[b], "edges that belong to no node"
    return len(seen)


def play_games(player, ids, iteration=0):
    """Play the games with these ids to their ends, begun in this order as slots get free; return the record."""
    ids, begun = np.asarray(ids, np.uint64), 0
    while begun < len(ids) or player.live.any():
        slots = player.free()[: len(ids) - begun]
        if len(slots):
            player.start(slots, ids[begun : begun + len(slots)], iteration)
            begun += len(slots)
        player.step()
    return player.take()


def by_id(record):
    """Return {game id: all there is of the game but who played it}, comparable by ==."""
    games, positions, entries = {}, 0, 0
    for game in record.games:
        rows = record.positions[positions : positions + game["length"]]
        policy = record.policy[entries : entries + rows["policy_count"].sum()]
        assert (rows["game"] == game["id"]).all() and (rows["ply"] == rows["ply"][0] + np.arange(len(rows))).all()
        positions, entries = positions + len(rows), entries + len(policy)
        content = [game[name].item() for name in game.dtype.names if name != "rank"]
        assert int(game["id"]) not in games, "a game is there twice"
        games[int(game["id"])] = (content, rows.tobytes(), policy.tobytes())
    assert positions == len(record.positions) and entries == len(record.policy)
    return games


def searching(game, evaluate, states, noise=False, words=None, **settings):
    """Return a search with one tree for each of `states`, nothing simulated yet, and its slots."""
    search = make_search(game, evaluate, models.Search(**settings), len(states), noise)
    slots = np.arange(len(states))
    search.reset(slots, states, slots.astype(np.uint64) if words is None else words)
    return search, slots


def steps(search, slots, n):
    for _ in range(n):
        search.step(slots)


def edges_of_root(search, b=0):
    """Return the priors, visits and value sums of the root's edges."""
    trees = search.trees
    at = slice(trees.first_edge[b, 0], trees.first_edge[b, 0] + trees.edge_count[b, 0])
    return trees.edge_prior[b, at], trees.edge_visits[b, at], trees.edge_value_sum[b, at]


def visits_of(search, slots):
    """Return N(root, a), int64 [n, A]; 0 for illegal actions."""
    visits = np.zeros((len(slots), search.game.num_actions), np.int64)
    for row, b in zip(visits, slots):
        at = slice(search.trees.first_edge[b, 0], search.trees.first_edge[b, 0] + search.trees.edge_count[b, 0])
        row[search.trees.edge_action[b, at]] = search.trees.edge_visits[b, at]
    return visits


def policy_of(search, slots):
    """Return what moves are trained towards, float32 [n, A]."""
    nums, actions, probabilities = search.policy(slots)
    policy = np.zeros((len(slots), search.game.num_actions), np.float32)
    policy[np.repeat(np.arange(len(slots)), nums), actions] = probabilities
    return policy


SMALL = models.Network(blocks=2, channels=16)


def untrained(seed=1, settings=SMALL, game=CONNECT4):
    return resnet.build(game, settings, seed)


def trained(seed=1, settings=SMALL, game=CONNECT4):
    """Return a network whose weights are all random, as if it had learnt something."""
    network = untrained(seed, settings, game)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 100
            parameter.normal_(0, 1 / math.sqrt(fan_in), generator=generator)
    return network


def positions(n, game=CONNECT4, seed=0):
    """Return n positions some random moves into games, not ended."""
    rng, states = np.random.default_rng(seed), game.initial(n)
    for ply in range(6):
        further = game.play(states, np.argmax(rng.random((n, game.num_actions)) * game.legal(states), axis=1))
        going = ~game.terminal(further)[0] & (np.arange(n) % 7 >= ply)
        states[going] = further[going]
    return states


def float_planes(states, game=CONNECT4):
    return torch.from_numpy(game.planes(states)).float()


class UniformEngine(Engine):
    """An engine without a network: equal logits, value 0. on_batch is called for each batch."""

    def __init__(self, game, on_batch=lambda: None):
        self.game, self.on_batch = game, on_batch

    def begin(self, planes):
        self.on_batch()
        n = len(planes)
        outputs = {"policy": np.zeros((n, self.game.num_actions), np.float32), "value": np.zeros(n, np.float32)}
        return lambda: outputs


def loaded_player(game, on_batch=lambda: None, **settings):
    """Return a player of a game, or of one by its name, that thinks all moves alike. settings: of its search."""
    game = games.make(game) if isinstance(game, str) else game
    return LoadedPlayer(game, UniformEngine(game, on_batch), models.Search(**{"simulations": 50} | settings))


def make_run(folder, game="tictactoe", checkpoints=(1,), best=(), **network):
    """Make a run's folder with untrained networks, `config.network`, that differ, at these iterations and as best."""
    config = make_config(game, network={"blocks": 1, "channels": 8, **network}, search={"simulations": 20})
    folder.mkdir()
    for name in ("best", "checkpoints"):
        (folder / name).mkdir()
    (folder / "config.json").write_text(json.dumps(run_folder.describe(config, ["here"])))
    for iteration in sorted({*checkpoints, *best}):
        weights = resnet.build(games.make(config.game), config.network, iteration).state_dict()
        if iteration in checkpoints:
            state = checkpoint.Checkpoint(checkpoint.Progress(iteration), weights, {})
            checkpoint.save(folder / "checkpoints", state, keep=9)
        if iteration in best:
            (folder / "best" / f"{iteration:06d}.safetensors").write_bytes(checkpoint.to_bytes(weights))
    return folder


def engine_process(*command):
    """Return a process with pipes that a test talks to.

    A job in the background of a shell, as tests may be, ignores SIGINT, and so would what it starts."""
    return subprocess.Popen(
        [str(word) for word in command],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
