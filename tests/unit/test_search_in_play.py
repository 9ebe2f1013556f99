"""The search of play and matches: it sees wins at once, looks at more moves in longer searches, lists them in order."""

import hashlib
import re

import numpy as np
import pytest
from gtp_channel import Channel
from helpers import Hashed, after, check_tree, policy_of, tree_as_dict, visits_of

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.evaluate.opponents import SearchPlayer
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import Evaluator
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.session import Session
from az_mpi.search import make_play_search, make_search

TICTACTOE, CONNECT4, WIDE = games.make("tictactoe"), games.make("connect4"), games.make("mnk(m=9,n=9,k=5)")
BOTH = pytest.mark.parametrize("algorithm", ["puct", "gumbel"])


def playing(game, evaluate, states, **settings):
    """Return a search for play with one tree for each of `states`, nothing simulated yet, and its slots."""
    search, slots = make_play_search(game, evaluate, models.Search(**settings), len(states)), np.arange(len(states))
    search.reset(slots, states, np.zeros(len(states), np.uint64))
    return search, slots


# a win at once


class Ranked(Evaluator, Engine):
    """The same logits for every position, by action, and value 0: an evaluator of states and an engine."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, states):
        return np.tile(self.logits, (len(states), 1)), np.zeros(len(states), np.float32)

    def begin(self, planes):
        if planes.ndim == 2:  # an evaluator is given states
            return lambda: self(planes)
        outputs = dict(zip(("policy", "value"), self(planes)))
        return lambda: outputs


def ranked(game, state, best, rank, factor=0.8):
    """Return logits of all actions: each legal prior is `factor` times the next larger; `best` has this rank."""
    legal = np.flatnonzero(game.legal(state[None])[0]).tolist()
    legal.remove(best)
    legal.insert(rank - 1, best)
    logits = np.full(game.num_actions, -30.0, np.float32)
    logits[legal] = np.log(factor) * np.arange(len(legal))
    return logits


@pytest.fixture(name="mate", scope="module")
def make_mate():
    """After 1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 White mates by Qxf7, one of 43 moves. Return the game, the state, the
    actions that led to it, and that move."""
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    game = games.make("openspiel:chess")
    state, actions = game.initial(1)[0], []
    for word in "e4 e5 Qh5 Nc6 Bc4 Nf6".split():
        actions.append(game.text_to_action(state, word))
        state = game.play(state[None], np.array(actions[-1:]))[0]
    assert game.legal(state[None]).sum() == 43
    return game, state, actions, game.text_to_action(state, "Qxf7#")


@BOTH
@pytest.mark.parametrize("simulations", [100, 400, 2000])
def test_a_mate_that_the_network_ranks_34th_of_43_is_played(mate, algorithm, simulations):
    game, state, actions, best = mate
    engine = Ranked(ranked(game, state, best, 34))
    settings = models.Search(algorithm=algorithm, simulations=simulations)
    player = LoadedPlayer(game, engine, settings)
    found = player.search(state)
    assert (found.action, found.move, found.value) == (best, "Qxf7#", 1.0) and found.policy[best] == 1
    session = Session(player)
    for action in actions:
        session.play(action)
    session.think(Limit(simulations=simulations))
    first = session.moves()[0]
    assert (session.best(), first.action, first.value, first.exact, first.visits) == (best, best, 1.0, True, 1)
    assert SearchPlayer(engine, settings).actions(game, np.repeat(state[None], 2, 0)).tolist() == [best] * 2


def wins_at_once(game, state):
    """Return the actions that end the game with a win in a state [1, S]."""
    actions = np.flatnonzero(game.legal(state)[0])
    states = game.play(np.repeat(state, len(actions), axis=0), actions)
    ended, value = game.terminal(states)
    same = game.to_play(states) == game.to_play(state)
    return actions[ended & (np.where(same, value, -value) == 1)].tolist()


@BOTH
@pytest.mark.parametrize("game, simulations", [(TICTACTOE, 300), (CONNECT4, 12)], ids=["tictactoe", "connect4"])
def test_a_win_at_once_is_always_played_whatever_the_tree_has_proven_before(game, simulations, algorithm):
    """Random games, whose trees stay: in tic-tac-toe they prove longer wins, too."""
    rng, seen = np.random.default_rng(3), 0
    states = game.initial(8)
    search, slots = playing(game, Hashed(game), states, simulations=simulations, algorithm=algorithm)
    while len(slots):
        search.run(slots)
        chosen = search.choose(slots, np.zeros(len(slots)))
        for slot, action in zip(slots, chosen):
            check_tree(game, search.trees, slot, states[slot])
            if wins := wins_at_once(game, states[slot : slot + 1]):
                seen += 1
                assert action in wins and search.value(np.array([slot]))[0] == 1
        actions = np.array([rng.choice(np.flatnonzero(game.legal(states[slot : slot + 1])[0])) for slot in slots])
        search.advance(slots, actions)
        states[slots] = game.play(states[slots], actions)
        slots = slots[~game.terminal(states[slots])[0]]
    assert seen > 5


@BOTH
def test_one_simulation_is_enough_for_a_win_at_once(algorithm):
    state = after(CONNECT4, [0, 1, 0, 1, 0, 1])
    evaluate = Ranked(ranked(CONNECT4, state[0], 0, 7))
    search, slots = playing(CONNECT4, evaluate, state, simulations=1, algorithm=algorithm)
    search.run(slots)
    assert search.choose(slots, np.zeros(1)).tolist() == [0] and search.trees.visits[0, 0] == 2


# which search it is


class Hidden(Evaluator):
    """The network ranks the centre 34th, and who has it is as good as won."""

    def __call__(self, states):
        logits = np.tile(ranked(WIDE, WIDE.initial(1)[0], 40, 34, 0.95), (len(states), 1))
        mine, theirs = WIDE.planes(states)[:, :2, 4, 4].astype(np.float32).T
        return logits, 0.9 * (mine - theirs)


@pytest.mark.parametrize("actions", [2, 16, 81])
@pytest.mark.parametrize("simulations", [400, 2000])
def test_gumbel_search_in_play_looks_at_moves_that_it_never_tries_in_self_play(simulations, actions):
    """Whatever `gumbel_actions` is, a tree whose root has many moves is searched by PUCT."""
    settings = {"algorithm": "gumbel", "simulations": simulations, "gumbel_actions": actions}
    search, slots = playing(WIDE, Hidden(), WIDE.initial(1), **settings)
    search.run(slots)
    visits = visits_of(search, slots)[0]
    assert search.choose(slots, np.zeros(1)).tolist() == [np.argmax(visits)] == [40]
    puct, _ = playing(WIDE, Hidden(), WIDE.initial(1), **settings | {"algorithm": "puct"})
    puct.run(slots)
    assert tree_as_dict(search.trees, 0) == tree_as_dict(puct.trees, 0)
    assert (policy_of(search, slots) == policy_of(puct, slots)).all() and search.value(slots) == puct.value(slots)


@pytest.mark.parametrize("actions, is_same", [(16, True), (7, True), (6, False)])
def test_gumbel_search_in_play_is_that_of_the_paper_where_it_looks_at_all_moves(actions, is_same):
    """Connect Four has seven."""
    settings, states = {"algorithm": "gumbel", "simulations": 60, "gumbel_actions": actions}, CONNECT4.initial(1)
    search, slots = playing(CONNECT4, Hashed(CONNECT4), states, **settings)
    other = make_search(CONNECT4, Hashed(CONNECT4), models.Search(**settings), 1, noise=False)
    other.reset(slots, states, np.zeros(1, np.uint64))
    search.run(slots)
    other.run(slots)
    assert (tree_as_dict(search.trees, 0) == tree_as_dict(other.trees, 0)) == is_same


# in which order moves are listed


class Numbers(Engine):
    """Logits and values that look random and depend on the planes alone."""

    def __init__(self, game):
        self.game = game

    def begin(self, planes):
        rows = [np.frombuffer(hashlib.blake2b(plane.tobytes()).digest(), np.uint32) / 2**32 for plane in planes]
        logits = np.array([np.resize(row, self.game.num_actions) for row in rows], np.float32)
        outputs = {"policy": 3 * logits, "value": np.array([2 * row[-1] - 1 for row in rows], np.float32)}
        return lambda: outputs


@BOTH
def test_moves_are_listed_by_visits_and_the_first_is_played_at_any_moment_of_a_game(algorithm):
    """A search by the clock, in a tree that stays."""
    game = games.make("go(size=5,komi=7)")
    session = Session(LoadedPlayer(game, Numbers(game), models.Search(algorithm=algorithm, simulations=60)), 4)
    for ply in range(6):
        for more in (1, 7, 40, 100, 200):
            before = session.simulations
            session.think(
                Limit(seconds=1000), stop=lambda before=before, more=more: session.simulations >= before + more
            )
            moves = session.moves()
            assert moves[0].action == session.best() and sum(move.share for move in moves) == pytest.approx(1)
            assert [move.share for move in moves] == sorted((move.share for move in moves), reverse=True)
            if not any(move.exact for move in moves):
                visits = [move.visits for move in moves]
                assert visits == sorted(visits, reverse=True)
        session.play(moves[ply % 2].action)


@BOTH
@pytest.mark.parametrize("command", ["lz-analyze", "kata-analyze"])
def test_analysis_gives_order_0_and_the_most_visits_to_the_move_that_is_played(clock, algorithm, command):
    channel = Channel(on_batch=clock.batches(0.002, (0.9, lambda: channel.send("name\n"))), algorithm=algorithm)
    lines = channel.good(f"{command} 5").strip().split("\n")
    assert len(lines) > 5
    for line in lines:
        rows = re.findall(r"info move (\S+) visits (\d+) .*?order (\d+)", line)
        assert [int(order) for *_, order in rows] == list(range(len(rows))) and len(rows) > 1
        visits = [int(num) for _, num, _ in rows]
        assert visits == sorted(visits, reverse=True)
    assert channel.session.legal()[rows[0][0]] == channel.session.best()
