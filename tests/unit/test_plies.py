"""A game that is not over after `max_plies` moves is a draw, in the search and everywhere else, also if its rules do
not end it: no array is longer, and nothing waits for its end."""

import sys

import numpy as np
import pytest
from helpers import Corridor, Table, loaded_player, make_config, searching

from az_mpi import games
from az_mpi.core.problems import OwnCodeError
from az_mpi.evaluate import arena, solver
from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import RandomPlayer, SearchPlayer
from az_mpi.evaluate.optimal import optimal_share
from az_mpi.games.random_games import random_games
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import Evaluator, RolloutEvaluator, UniformEvaluator
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session
from az_mpi.search import make_search, puct
from az_mpi.selfplay.player import Player

MAX_PLIES = Corridor.max_plies
SEARCHES = pytest.mark.parametrize("algorithm", ["puct", "gumbel"])


class Avoiding(Evaluator):
    """Priors that avoid the ends, so that a search goes deep at once."""

    def __init__(self, game):
        self.middle = game.length // 2

    def __call__(self, states):
        left = states[:, 0] > self.middle
        logits = np.where(np.stack([left, ~left], axis=1), np.float32(8), np.float32(0))
        return logits, np.full(len(states), 0.25, np.float32)


@SEARCHES
@pytest.mark.parametrize("ply", [0, 1, MAX_PLIES - 1])
def test_no_node_is_deeper_than_max_plies_and_one_there_is_a_draw(algorithm, ply):
    game = Corridor()
    states = game.initial(1)
    for _ in range(ply):
        states = game.play(states, np.array([1 if states[0, 0] == 2 else 0]))
    search, slots = searching(game, UniformEvaluator(game), states, simulations=400, algorithm=algorithm)
    search.reset(slots, states, np.zeros(1, np.uint64), ply)
    search.run(slots)
    trees = search.trees
    depth = np.zeros(trees.nodes_used[0], int)
    for n in range(1, len(depth)):
        depth[n] = depth[trees.parent[0, n]] + 1
    assert depth.max() == MAX_PLIES - ply
    last = depth == MAX_PLIES - ply
    walls = np.isin(trees.state[0, : len(depth), 0], (0, game.length - 1))
    assert trees.ended[0, : len(depth)][last].all() and (last & ~walls).any()
    assert (trees.exact_value[0, : len(depth)][last & ~walls] == 0).all()
    # The players can only lose by their own moves, and the walls are further away than one move: a draw is proven.
    assert trees.exact[0, 0] and search.value(slots)[0] == 0


@SEARCHES
def test_the_limit_moves_on_with_the_root(algorithm):
    game = Corridor(9)
    search, slots = searching(game, Avoiding(game), game.initial(2), simulations=16, algorithm=algorithm)
    for ply in range(MAX_PLIES):
        assert (search.trees.root_ply == ply).all() and not search.trees.ended[:, 0].any()
        search.run(slots)
        search.advance(slots, search.choose(slots, np.zeros(2)))
    assert search.trees.ended[:, 0].all() and (search.value(slots) == 0).all()


def test_several_leaves_of_a_tree_keep_the_limit():
    game = Corridor(9)
    search, slots = searching(game, Avoiding(game), game.initial(1), simulations=64)
    while not search.done(slots)[0] and search.trees.visits[0, 0] < 40:
        search.step_several(0, 8)
    assert search.trees.path_length[0] <= MAX_PLIES < search.trees.path.shape[1]


def test_self_play_ends_games_there_as_truncated_draws():
    config = make_config(search={"simulations": 16}, selfplay={"num_games": 8, "parallel_games": 8})
    player = Player(config, Corridor(), Avoiding(Corridor()), rank=0)
    player.start(np.arange(8), np.arange(8, dtype=np.uint64), 0)
    while player.live.any():
        player.step()
    record = player.take()
    assert (record.games["length"] <= MAX_PLIES).all() and record.games["truncated"].any()
    cut = record.games["truncated"]
    assert (record.games["length"][cut] == MAX_PLIES).all() and (record.games["outcome"][cut] == 0).all()


def test_matches_random_games_and_playouts_end_there():
    game = Corridor(31)  # its ends are out of reach
    config = make_config(search={"simulations": 8})
    players = SearchPlayer(Avoiding(game), config.search), RandomPlayer((1,))
    played = arena.play_games(game, *players, openings(game, 2, 2, 0), np.arange(4))
    assert [len(one.moves) for one in played] == [MAX_PLIES] * 4 and all(one.result == 0 for one in played)
    assert len(list(random_games(game, 3, np.random.default_rng(0)))) == MAX_PLIES
    _, value = RolloutEvaluator(game, [0])(game.initial(4))
    assert value.tolist() == [0] * 4


def test_the_enumeration_solves_the_game_with_its_limit():
    solved = solver.enumerate_all(Corridor(31))
    assert (solved.values == 0).all() and len(solved.states) < 31 * 2


class Counter(Corridor):
    """One player adds 0 or 1, `max_plies` times; the state is the sum, and does not say how often."""

    num_players, score_name, state_size = 1, "units", 1

    def initial(self, n):
        return np.zeros((n, 1), np.uint64)

    def play(self, states, actions):
        return states + np.asarray(actions, np.uint64)[:, None]

    def terminal(self, states):
        return np.zeros(len(states), bool), states[:, 0].astype(np.float32) / 10

    def to_play(self, states):
        return np.zeros(len(states), np.int8)

    def score(self, states):
        return states[:, 0].astype(np.float32)


def test_the_optimum_of_one_player_counts_the_moves_of_the_openings():
    game = Counter()
    starts = openings(game, 4, 2, 0)._replace(moves=[[0, 0], [0, 0], [0, 0], [0]])
    best = solver.Enumeration(game).optimum_from(starts)
    assert best.tolist() == (starts.states[:, 0] + MAX_PLIES - np.array([2, 2, 2, 1])).tolist()


def test_solved_positions_are_searched_with_the_moves_before_them(world):
    solved = solver.enumerate_all(Corridor(31))
    assert solved.part(1, 2).plies.tolist() == solved.plies.tolist()[1::2]
    last = solved.plies == MAX_PLIES - 1
    evaluate = Table(Corridor(31), {})
    player = SearchPlayer(evaluate, make_config(search={"simulations": 8}).search)
    at_last = solver.Solved(solved.states[last], solved.legal[last], solved.action_values[last], solved.plies[last])
    optimal_share(world, Corridor(31), player, at_last)
    assert evaluate.seen and set(evaluate.seen) <= set(map(tuple, at_last.states.tolist()))


def test_a_session_beside_another_one_counts_its_moves():
    session = Session(loaded_player(Corridor(31)))
    for _ in range(MAX_PLIES - 1):
        session.play(0)
    aside = session.beside(actions=[1])
    aside.think(Limit(simulations=8))
    assert aside.simulations == 1 and aside._search.trees.exact[0, 0], "the game ends after this move"
    again = session.beside().beside()
    again.play(0)
    assert again.over and again.result == 0


class Nonsense(RandomPlayer):
    """Chooses moves that there are not."""

    def choose(self, seat, slots):
        return np.full(len(slots), self.seed[0])


@pytest.mark.parametrize("action", [2, -2, 10**6, 0.5])
def test_a_move_that_is_not_legal_ends_a_match_with_the_opponents_name(action):
    game = Corridor()
    with pytest.raises(OwnCodeError, match="the opponent Nonsense has chosen a move that is not legal"):
        arena.play_games(game, Nonsense((action,)), RandomPlayer((1,)), openings(game, 1, 1, 0), np.arange(2))


class Illegal(puct.Search):
    """Chooses a move that there is not."""

    def choose(self, slots, temperature):
        return np.full(len(slots), 10**6)


def test_a_move_of_a_search_of_ones_own_that_is_not_legal_ends_a_match_with_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "own_searches", sys.modules[__name__])
    game, config = Corridor(), make_config(search={"algorithm": "own_searches:Illegal", "simulations": 2})
    player = SearchPlayer(Avoiding(game), config.search)
    with pytest.raises(OwnCodeError, match="the search Illegal has chosen a move that is not legal"):
        arena.play_games(game, player, RandomPlayer((1,)), openings(game, 1, 1, 0), np.arange(2))


class Misshapen(Avoiding):
    """Gives each position one logit too few."""

    def __call__(self, states):
        logits, value = super().__call__(states)
        return logits[:, 1:], value


def test_an_evaluation_of_another_shape_is_refused():
    game = Corridor()
    search, slots = searching(game, Misshapen(game), game.initial(2), simulations=4)
    with pytest.raises(OwnCodeError, match=r"Misshapen returned logits \(2, 1\), value \(2,\)"):
        search.run(slots)


class Broken(UniformEvaluator):
    """Gives one position a number that is none."""

    def __init__(self, game, part, number):
        super().__init__(game)
        self.part, self.number = part, number

    def __call__(self, states):
        found = super().__call__(states)
        found[self.part][-1:] = self.number
        return found


@SEARCHES
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled rules", "batches"])
@pytest.mark.parametrize("part, number", [(0, np.nan), (0, np.inf), (0, -np.inf), (1, np.nan), (1, -np.inf)])
def test_an_evaluation_that_is_no_number_is_refused(algorithm, compiled, part, number):
    game = games.make("tictactoe") if compiled else Corridor()
    search, slots = searching(game, Broken(game, part, number), game.initial(2), simulations=4, algorithm=algorithm)
    with pytest.raises(OwnCodeError, match="Broken returned logits or values that are no finite numbers"):
        search.run(slots)


def test_a_logit_may_be_minus_infinite():
    game = Corridor()
    search, slots = searching(game, Broken(game, 0, [-np.inf, 0]), game.initial(2), simulations=4)
    search.run(slots)
    assert search.trees.edge_prior[1, :2].tolist() == [0, 1]


class ThreeArguments(puct.Search):
    """As a search of a user's own was written before `reset` took the plies."""

    def reset(self, slots, states, stream_words):
        super().reset(slots, states, stream_words)


def test_a_search_of_ones_own_may_reset_without_plies(monkeypatch):
    monkeypatch.setitem(sys.modules, "own_searches", sys.modules[__name__])
    game, config = Corridor(9), make_config(search={"algorithm": "own_searches:ThreeArguments", "simulations": 8})
    search = make_search(game, Avoiding(game), config.search, 2, noise=False)
    search.reset(np.arange(2), game.initial(2), np.zeros(2, np.uint64), np.array([1, 4]))
    search.run(np.arange(2))
    assert search.trees.root_ply.tolist() == [1, 4] and search.done(np.arange(2)).all()


class NotNumbers(Engine):
    """As an engine of a user's own that returns NaN."""

    def evaluate(self, planes):
        return {"policy": np.full((len(planes), 9), np.nan, np.float32), "value": np.zeros(len(planes), np.float32)}


def test_engine_results_that_are_no_numbers_are_refused():
    game = games.make("tictactoe")
    search, slots = searching(game, CachedEvaluator(game, NotNumbers(), num_bytes=2**16), game.initial(2))
    with pytest.raises(OwnCodeError, match="NotNumbers returned logits or values that are no finite numbers"):
        search.run(slots)


class Narrow(Engine):
    """As an engine of a user's own that returns one logit too few for each position."""

    def evaluate(self, planes):
        return {"policy": np.zeros((len(planes), 1), np.float32), "value": np.zeros(len(planes), np.float32)}


def test_engine_results_of_another_shape_are_refused_before_they_are_cached():
    game = Corridor()
    evaluate = CachedEvaluator(game, Narrow(), num_bytes=2**16)
    with pytest.raises(OwnCodeError, match=r"Narrow returned logits \(1, 1\), value \(1,\) for 1 states"):
        evaluate(game.initial(1))
