"""The evaluation cache: the same evaluations as without it, each position asked for once."""

import mmap
import multiprocessing
import tracemalloc

import numpy as np
import pytest
from helpers import callable_by_python, make_config, visits_of
from numba import njit

from az_mpi import games
from az_mpi.core import evaluation_table
from az_mpi.games.base import Game
from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import NetworkEvaluator, searched
from az_mpi.run.state import Playing
from az_mpi.search.puct import Search

CONNECT4, TICTACTOE = games.make("connect4"), games.make("tictactoe")


class Counting(Engine):
    """An engine of fixed random weights that keeps what it was asked; it does not know the symmetries."""

    def __init__(self, game):
        rng = np.random.default_rng(8)
        size = int(np.prod(game.planes_shape))
        self.policy, self.worth = rng.normal(size=(size, game.num_actions)), rng.normal(size=size)
        self.asked = []

    def evaluate(self, planes):
        self.asked.append(planes.copy())
        flat = planes.reshape(len(planes), -1).astype(np.float64)
        logits, value = flat @ self.policy, np.tanh(flat @ self.worth)
        return {"policy": logits.astype(np.float32), "value": value.astype(np.float32)}


class Equivariant(Counting):
    """The mean of an engine over all images of a position, each turned back: the same for all images."""

    def __init__(self, game):
        super().__init__(game)
        self.game = game

    def evaluate(self, planes):
        flat, logits, value = planes.reshape(*planes.shape[:2], -1), 0.0, 0.0
        for cells, actions in zip(self.game.symmetry_cells, self.game.symmetry_actions):
            turned = super().evaluate(flat[:, :, cells].reshape(planes.shape))
            back = np.empty_like(turned["policy"])
            back[:, actions] = turned["policy"]
            logits, value = logits + back, value + turned["value"]
        # Coarse numbers, so that the order of additions cannot show.
        mean = value / len(self.game.symmetry_cells)
        return {"policy": np.round(logits, 3).astype(np.float32), "value": np.round(mean, 3).astype(np.float32)}


def random_states(game, num, seed, longest):
    rng = np.random.default_rng(seed)
    states = game.initial(num)
    for _ in range(longest):
        ended, _ = game.terminal(states)
        going = ~ended & (rng.random(num) < 0.9)
        actions = np.argmax((1 - rng.random((num, game.num_actions))) * game.legal(states), axis=1)
        states[going] = game.play(states, actions)[going]
    return states


def images(game, states):
    """Return the planes of every image, uint8 [n, K, C * H * W]."""
    flat = game.planes(states).reshape(len(states), game.planes_shape[0], -1)
    return np.stack([flat[:, :, cells].reshape(len(states), -1) for cells in game.symmetry_cells], axis=1)


@pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=["connect4", "tictactoe"])
def test_an_evaluation_is_that_of_one_symmetric_image_turned_back(game):
    engine = Counting(game)
    cached = CachedEvaluator(game, engine, 1 << 20)
    states = random_states(game, 300, 1, 6)
    for _ in range(2):
        logits, value = cached(states)
    seen = np.concatenate(engine.asked).reshape(-1, int(np.prod(game.planes_shape)))
    legal = game.legal(states)
    for i, row in enumerate(images(game, states)):
        [k, *_] = [k for k in range(len(row)) if (seen == row[k]).all(axis=1).any()]
        expected, worth = searched(Counting(game).evaluate(row[k].reshape(1, *game.planes_shape)))
        turned, may = logits[i, game.symmetry_actions[k]], legal[i, game.symmetry_actions[k]]
        assert np.allclose(turned[may], expected[0, may], atol=1e-5)
        assert np.isclose(value[i], worth[0], atol=1e-6)


@pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=["connect4", "tictactoe"])
def test_symmetric_positions_are_evaluated_once(game):
    engine = Counting(game)
    cached = CachedEvaluator(game, engine, 1 << 20)
    states = random_states(game, 400, 2, 5)
    distinct = {min(map(bytes, row)) for row in images(game, states)}
    cached(states[:250])
    cached(states)
    cached(states[::-1])
    assert sum(map(len, engine.asked)) == len(distinct) < 400
    assert cached.num_positions == 1050 and cached.num_evaluations == len(distinct)


def test_cleared_positions_are_evaluated_again():
    engine = Counting(TICTACTOE)
    cached = CachedEvaluator(TICTACTOE, engine, 10_000)
    before = cached(TICTACTOE.initial(3))
    assert [len(planes) for planes in engine.asked] == [1]
    engine.worth = engine.worth + 1.0
    engine.policy = engine.policy + 1.0
    assert (cached(TICTACTOE.initial(3))[1] == before[1]).all() and len(engine.asked) == 1
    cached.clear("new ones")
    cached(TICTACTOE.initial(3))
    assert len(engine.asked) == 2


def legal_only(game, states, logits):
    """Return logits with 0 in place of those of illegal actions, of which a cache says nothing."""
    return np.where(game.legal(states), logits, 0)


@pytest.mark.parametrize("num_bytes", [0, 300, 6000])
def test_a_full_table_drops_entries_and_returns_no_wrong_one(num_bytes):
    """Far more positions than it holds, many in one batch: each answer is still that of its own position."""
    engine = Equivariant(CONNECT4)
    cached = CachedEvaluator(CONNECT4, engine, num_bytes)
    for seed in range(5):
        states = random_states(CONNECT4, 500, seed, 12)
        logits, value = cached(states)
        expected, worth = searched(engine.evaluate(CONNECT4.planes(states)))
        assert (legal_only(CONNECT4, states, logits) == legal_only(CONNECT4, states, expected)).all()
        assert (value == worth).all()


def ask_for(times, game, memory, part, parts, num_bytes, wrong):
    """Evaluate random positions with a table that others write at the same time; count the wrong answers."""
    engine = Equivariant(game)
    cached = CachedEvaluator(game, engine, num_bytes)
    cached.share(memory, part, parts)
    rng = np.random.default_rng(part)
    states = random_states(game, 1500, 1, 12)
    expected, worth = searched(engine.evaluate(game.planes(states)))
    for _ in range(times):
        some = rng.integers(len(states), size=40)
        logits, value = cached(states[some])
        wrong.value += int((value != worth[some]).sum())
        wrong.value += int(((logits != expected[some]) & game.legal(states[some])).sum())
    asked, evaluated = cached.take_counts()
    assert len(states) < evaluated < asked  # it has forgotten, and has answered from the table


@pytest.mark.parametrize("num_bytes", [300, 6000])
def test_processes_that_write_one_table_at_once_never_get_a_wrong_answer(num_bytes):
    """Their positions are many more than the table holds, so that each process overwrites what others read."""
    parts, fork = 4, multiprocessing.get_context("fork")
    size = CachedEvaluator(CONNECT4, Counting(CONNECT4), num_bytes).bytes_of(parts)
    memory = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    wrong = [fork.Value("q", 0) for _ in range(parts)]
    arguments = [(500, CONNECT4, memory, part, parts, num_bytes, wrong[part]) for part in range(parts)]
    processes = [fork.Process(target=ask_for, args=words) for words in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * parts
    assert [part.value for part in wrong] == [0] * parts


def test_a_position_that_one_process_has_evaluated_is_not_evaluated_by_another():
    engines = [Counting(CONNECT4) for _ in range(2)]
    both = [CachedEvaluator(CONNECT4, engine, 1 << 16) for engine in engines]
    memory = np.zeros(both[0].bytes_of(2), np.uint8)
    for part, cached in enumerate(both):
        cached.share(memory, part, 2)
    states = random_states(CONNECT4, 50, 3, 6)
    results = [cached(states) for cached in both]
    assert len(engines[0].asked) == 1 and not engines[1].asked
    assert (results[0][1] == results[1][1]).all()
    both[1].clear("other weights")  # those of the first are still there
    both[1](states), both[0](states)
    assert len(engines[0].asked) == 1 and len(engines[1].asked) == 1


def test_evaluations_are_forgotten_with_the_weights_and_with_the_calibration():
    engine = Counting(TICTACTOE)
    engine.load = lambda network: None
    playing = Playing(None, engine, CachedEvaluator(TICTACTOE, engine, 10_000))
    asked = []
    for digest, planes in [("a", 0), ("a", 0), ("b", 0), ("b", 1)]:
        playing.calibration = np.full((1, *TICTACTOE.planes_shape), planes, np.uint8), np.ones((1, 9), np.bool_)
        playing.load_weights(None, 1, digest)
        playing.evaluate(TICTACTOE.initial(1))
        asked.append(len(engine.asked))
    assert asked == [1, 1, 2, 3]


def test_an_engine_of_a_users_own_may_calibrate_by_planes_alone():
    class Own(Counting):
        def calibrate(self, planes):
            self.planes = planes

        def load(self, network):
            pass

    engine, planes = Own(TICTACTOE), np.zeros((1, *TICTACTOE.planes_shape), np.uint8)
    playing = Playing(None, engine, None, calibration=(planes, np.ones((1, 9), np.bool_)))
    playing.load(engine, None)
    assert engine.planes is planes


@pytest.mark.parametrize("num_bytes", [10_000, 1_000_000])
def test_a_table_takes_the_memory_it_is_given_and_uses_it(num_bytes):
    """A position takes about 32 bytes and 6 for each of the 5 to 7 legal moves: half of so many fit at least, since the
    number of entries is a power of two. The newest are the ones that it remembers."""
    engine = Counting(CONNECT4)
    tracemalloc.start()
    try:
        cached = CachedEvaluator(CONNECT4, engine, num_bytes)
        assert tracemalloc.get_traced_memory()[0] < num_bytes + 2000
    finally:
        tracemalloc.stop()
    states = np.unique(random_states(CONNECT4, 6000, 1, 14), axis=0)
    states = states[np.unique(CONNECT4.canonical_key(states)[0], return_index=True)[1]]
    np.random.default_rng(1).shuffle(states)
    cached(states)
    before = cached.num_evaluations
    newest = states[-int(num_bytes / 74 / 4) :]
    cached(newest)
    assert cached.num_evaluations - before < 0.1 * len(newest)


def test_a_position_of_a_game_with_many_actions_takes_memory_for_its_legal_ones():
    """30,000 actions, of which tic-tac-toe's nine are used: 100,000 bytes hold three of their logits, were all kept."""

    class Wide(type(TICTACTOE)):
        canonical_key = Game.canonical_key

        def __init__(self):
            super().__init__()
            self.num_actions = 30_000
            self.symmetry_cells, self.symmetry_actions = (np.arange(n, dtype=np.int32)[None] for n in (9, 30_000))

        def legal(self, states):
            return np.pad(TICTACTOE.legal(states), ((0, 0), (0, 30_000 - 9)))

    game, states = Wide(), np.unique(random_states(TICTACTOE, 400, 2, 5), axis=0)
    engine = Counting(game)
    cached = CachedEvaluator(game, engine, 100_000)
    before = cached(states)
    after, asked = cached(states), cached.num_evaluations
    assert 100 < len(states) <= asked < 1.1 * len(states) and (after[1] == before[1]).all()
    assert (legal_only(game, states, after[0]) == legal_only(game, states, before[0])).all()


@pytest.mark.parametrize("game", [CONNECT4, TICTACTOE], ids=["connect4", "tictactoe"])
def test_a_search_makes_the_same_visits_with_and_without_the_cache(game):
    settings = make_config(game.name).search.model_copy(update={"simulations": 60})
    slots = np.arange(12)
    found = []
    for num_bytes in (None, 20_000):
        engine = Equivariant(game)
        evaluate = CachedEvaluator(game, engine, num_bytes) if num_bytes else NetworkEvaluator(game, engine)
        search = Search(game, evaluate, settings, len(slots), noise=True)
        search.reset(slots, game.initial(len(slots)), np.arange(len(slots), dtype=np.uint64))
        visits = []
        for _ in range(4):
            search.run(slots)
            visits.append(visits_of(search, slots))
            search.advance(slots, search.choose(slots, np.ones(len(slots))))
        found.append((np.array(visits), search.value(slots)))
    assert (found[0][0] == found[1][0]).all() and (found[0][1] == found[1][1]).all()


# two batches under way


@pytest.mark.parametrize("num_bytes", [0, 6000, 500_000])
def test_overlapping_batches_get_their_own_results(num_bytes):
    """Each is begun before the one before it is complete, with many positions in common."""
    engine, rng = Equivariant(CONNECT4), np.random.default_rng(2)
    cached, pool = CachedEvaluator(CONNECT4, engine, num_bytes), random_states(CONNECT4, 300, 3, 10)
    under_way = None
    for _ in range(20):
        states = pool[rng.integers(len(pool), size=90)]
        begun = states, cached.begin(states)
        for states, complete in filter(None, [under_way]):
            logits, value = complete()
            expected, worth = searched(engine.evaluate(CONNECT4.planes(states)))
            assert (legal_only(CONNECT4, states, logits) == legal_only(CONNECT4, states, expected)).all()
            assert (value == worth).all()
        under_way = begun


def test_a_batch_begun_before_the_weights_changed_is_not_found_with_the_new_ones():
    engine = Counting(TICTACTOE)
    cached = CachedEvaluator(TICTACTOE, engine, 10_000)
    states = TICTACTOE.play(TICTACTOE.initial(1), np.array([4]))
    old = cached.begin(states)
    cached.clear("new ones")
    engine.worth = engine.worth + 1.0  # new weights
    new = cached.begin(states)
    was = old()[1]
    now = new()[1]
    assert now != was and cached(states)[1] == now and len(engine.asked) == 2


def test_an_evaluation_that_does_not_fit_a_threads_part_is_not_stored():
    """The smallest table has room for one position, which several threads share."""
    table = evaluation_table.table_of(0, 7)
    parts = evaluation_table.parts_of(table, 4)
    before = table.logit.copy()
    legal, actions, logits = np.ones(7, bool), np.arange(7, dtype=np.int32)[None], np.ones((1, 7), np.uint32)
    find = callable_by_python(evaluation_table.find)
    for part in (*parts, table.part):
        stored = part[1] - part[0] >= 7
        _store(table, part, legal, actions, logits)
        assert (find(table, np.uint64(5)) >= 0) == stored
        assert stored or (table.logit == before).all()
    assert len(table.logit) == 7 and stored


@njit
def _store(table, part, legal, actions, logits):
    evaluation_table.store(table, part, np.uint64(5), legal, actions, 0, logits, 0, np.array([3], np.uint32))
