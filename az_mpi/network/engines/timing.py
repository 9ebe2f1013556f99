"""Measurements of engines when a run starts: which of two is faster, how large batches should be, how many at once."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np

from az_mpi.games.base import Game
from az_mpi.network.engines.engine import Engine

TIMED_S, TURNS = 0.1, (3, 20)  # seconds of all turns; turns, at least and at most
GAIN_MIN = 1.1  # of speed, for a choice that has a price: exactness, or more games at once
LONG_S = 0.2  # an engine that takes so long for a batch gains nothing that counts from larger ones
BATCHES = 8  # in a turn of an engine that works in the background


def shortest(*calls: Callable[[], object]) -> list[float]:
    """Return how many seconds each of these calls takes: its shortest turn without the first one. They alternate."""
    begun = time.perf_counter()
    taken: list[list[float]] = [[] for _ in calls]
    least, most = TURNS
    while len(taken[0]) < least or len(taken[0]) < most and time.perf_counter() - begun < TIMED_S:
        for call, seconds in zip(calls, taken):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return [min(seconds[1:]) for seconds in taken]


def batch_size(engine: Engine, game: Game, least: int, most: int, under_way: int) -> int:
    """Return how many positions a batch should have: `least`, doubled as long as the engine evaluates at least GAIN_MIN
    times as many positions a second. At most `most`. under_way: batches that the engine is given at once."""
    size = least
    while size < most:
        larger = min(2 * size, most)
        taken = shortest(*(partial(_evaluate, engine, _planes(game, n), under_way) for n in (size, larger)))
        if larger / taken[1] < GAIN_MIN * size / taken[0]:
            break
        size = larger
        if taken[1] > LONG_S:
            break
    return size


def num_under_way(engine: Engine, game: Game, size: int, most: int = 3) -> int:
    """Return how many batches of `size` positions an engine that works in the background should be given at once, 1 to
    `most`: the least with which it loses no time between two batches."""
    planes = _planes(game, size)
    taken = shortest(*(partial(_evaluate, engine, planes, num) for num in range(1, most + 1)))
    return next(k for k, seconds in enumerate(taken, 1) if seconds < GAIN_MIN * min(taken))


def _planes(game, size):
    """Return planes of random zeros and ones: they need none of the game's kernels, which are perhaps not compiled."""
    return (
        np.random.default_rng(0).integers(2, size=(size, *game.planes_shape), dtype=np.uint8).astype(game.planes_dtype)
    )


def _evaluate(engine, planes, under_way):
    if not engine.in_background:
        engine.evaluate(planes)
        return
    waiting: deque[Callable] = deque()
    for _ in range(BATCHES):
        if len(waiting) == under_way:
            waiting.popleft()()
        waiting.append(engine.begin(planes))
    while waiting:
        waiting.popleft()()
