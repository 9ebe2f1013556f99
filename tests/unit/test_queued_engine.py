"""Engines whose device works in the background, with a device that reads and writes as late as it may."""

import copy

import numpy as np
import pytest
import torch
from helpers import CONNECT4, by_id, make_config, play_games

from az_mpi.network.cache import CachedEvaluator
from az_mpi.network.engines.engine import Engine
from az_mpi.network.engines.queued_engine import LARGEST, QueuedEngine, queued_size
from az_mpi.network.evaluators import NetworkEvaluator
from az_mpi.selfplay.player import Player

SHAPES = {"policy": (7,), "value": ()}


def answer(planes):
    """Return outputs that look random, and depend on every number of a position, for planes [n, C, H, W]."""
    numbers = planes.reshape(len(planes), -1).astype(np.int64)
    mixed = numbers @ (np.arange(numbers.shape[1])[:, None] * [7919, 104729, 1299709] + 31) % 1009 / 1009
    logits = np.sin(mixed[:, :1] * 50 + mixed[:, 1:2] * np.arange(7)).astype(np.float32)
    return {"policy": logits, "value": (mixed[:, 2] - 0.5).astype(np.float32)}


class Direct(Engine):
    """Answers at once."""

    def evaluate(self, planes):
        return answer(planes)


class Late(QueuedEngine):
    """Its device touches no memory before somebody waits, and then does all that is queued up to there, in order."""

    def __init__(self, game=CONNECT4):
        super().__init__(game, SHAPES, pinned=False)
        self.work, self.sizes = [], []

    def _queue(self, lane, cuts):
        todo = []
        for rows, size in cuts:
            assert rows.stop - rows.start == size
            self.sizes.append(size)
            todo.append((lane, rows))
        self.work.append(todo)

        def wait():
            while todo:  # empty if somebody has waited for a later batch
                for where, rows in self.work[0]:
                    for name, output in answer(where.planes[rows].numpy()).items():
                        where.outputs[name][rows] = torch.from_numpy(output)
                self.work.pop(0).clear()

        return wait


def random_planes(rng, n):
    return rng.integers(0, 2, (n, *CONNECT4.planes_shape)).astype(CONNECT4.planes_dtype)


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_batches_under_way_keep_their_planes_and_their_results(most):
    """Up to `most` are under way. Sizes differ, and half of the batches are written to the array of `room`."""
    rng, engine, waiting, kept = np.random.default_rng(most), Late(), [], []
    sizes = [1, 64, 65, 3, 300, 513, LARGEST + 5, 7, 2 * LARGEST, 40, *rng.integers(1, 900, 30)]
    for k, n in enumerate(sizes):
        planes = random_planes(rng, n)
        given = planes
        if k % 2:
            given = engine.room(n)
            assert given.shape == planes.shape and given.dtype == planes.dtype
            given[:] = planes
        waiting.append((planes, engine.begin(given)))
        while len(waiting) >= most:
            planes, complete = waiting.pop(0)
            kept.append((answer(planes), complete()))
    kept += [(answer(planes), complete()) for planes, complete in waiting]
    assert len(kept) == len(sizes)
    for expected, found in kept:  # looked at after all others, which have not changed them
        assert found.keys() == expected.keys() and all((found[name] == expected[name]).all() for name in found)


@pytest.mark.parametrize("most", [1, 2, 4])
def test_there_are_as_many_lanes_as_batches_under_way(most):
    engine, waiting, places = Late(), [], []
    for _ in range(20):
        room = engine.room(100)
        assert not any(np.shares_memory(room, other) for other, _ in waiting)
        places.append(room.ctypes.data)
        waiting.append((room, engine.begin(room)))
        if len(waiting) == most:
            waiting.pop(0)[1]()
    assert len(set(places)) == most


def test_an_array_that_was_not_used_is_given_again_and_a_larger_one_if_needed():
    engine = Late()
    first, again = engine.room(10), engine.room(20)
    assert first.ctypes.data == again.ctypes.data and len(engine.room(LARGEST + 1)) == LARGEST + 1
    planes = random_planes(np.random.default_rng(0), 9)
    assert (engine.evaluate(planes)["value"] == answer(planes)["value"]).all()


def test_a_batch_cannot_be_completed_twice():
    """Its lane may belong to another batch by then."""
    complete = Late().begin(random_planes(np.random.default_rng(0), 3))
    complete()
    with pytest.raises(IndexError):
        complete()


def test_batches_are_cut_and_padded_to_few_sizes():
    for n, sizes in (
        (1, [64]),
        (65, [128]),
        (600, [768]),
        (LARGEST, [LARGEST]),
        (2 * LARGEST + 1, [LARGEST] * 2 + [64]),
    ):
        engine = Late()
        engine.evaluate(random_planes(np.random.default_rng(0), n))
        assert engine.sizes == sizes


def test_sizes_for_a_device_are_few_and_no_more_than_twice_as_large_as_needed():
    sizes = {n: queued_size(n) for n in range(1, 4097)}
    assert sorted(set(sizes.values())) == [64, 128, 256, 512, *range(768, 4097, 256)]
    assert all(n <= size < max(65, 2 * n) for n, size in sizes.items())
    assert sizes[1025] == 1280


def test_planes_have_the_numbers_of_the_game():
    game = copy.copy(CONNECT4)
    game.planes_dtype = np.dtype(np.float32)
    room = Late(game).room(3)
    assert room.dtype == np.float32 and room.shape == (3, *game.planes_shape)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("num_groups, threads", [(1, 1), (2, 1), (3, 1), (2, 2)])
def test_groups_of_games_under_way_play_the_games_of_one_that_waits(num_groups, threads, cached):
    """A group's planes are written while those of the others have not been read."""

    def games_with(engine, **more):
        evaluate = CachedEvaluator(CONNECT4, engine, 2**16) if cached else NetworkEvaluator(CONNECT4, engine)
        selfplay = {"parallel_games": 11}
        config = make_config("connect4", search={"simulations": 12, "algorithm": "gumbel"}, selfplay=selfplay)
        return by_id(play_games(Player(config, CONNECT4, evaluate, 0, **more), range(25)))

    assert games_with(Late(), num_groups=num_groups, threads=threads) == games_with(Direct())
