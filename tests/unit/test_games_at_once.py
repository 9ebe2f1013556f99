"""How many games a rank plays at once, and in how many groups: chosen by the engine's speed, on a clock of the test."""

from collections import deque

import numpy as np
import pytest
from helpers import CONNECT4, make_config

from az_mpi.network.engines import timing
from az_mpi.network.engines.engine import Engine
from az_mpi.network.evaluators import NetworkEvaluator, UniformEvaluator
from az_mpi.run import games_at_once


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


class OnProcessors(Engine):
    """Takes so many seconds for a batch, and for each of its positions."""

    def __init__(self, clock, batch_s, position_s):
        self.clock, self.batch_s, self.position_s, self.sizes = clock, batch_s, position_s, []

    def evaluate(self, planes):
        self.sizes.append(len(planes))
        self.clock.now += self.batch_s + len(planes) * self.position_s
        return {"policy": np.zeros((len(planes), 7), np.float32), "value": np.zeros(len(planes), np.float32)}


class InBackground(OnProcessors):
    """One batch after the other; each arrives `latency_s` after it was begun, while the device may be at another."""

    in_background = True

    def __init__(self, clock, batch_s, position_s, latency_s):
        super().__init__(clock, batch_s, position_s)
        self.latency_s, self.free, self.waiting, self.most = latency_s, 0.0, deque(), 0

    def begin(self, planes):
        begins = max(self.clock.now + self.latency_s, self.free)
        self.free = ends = begins + self.batch_s + len(planes) * self.position_s
        self.waiting.append(ends)
        self.most = max(self.most, len(self.waiting))
        self.sizes.append(len(planes))

        def complete():
            assert self.waiting.popleft() == ends
            self.clock.now = max(self.clock.now, ends)

        return complete


def choose(engine, num_ranks=1, evaluate=None, **selfplay):
    evaluate = evaluate or NetworkEvaluator(CONNECT4, engine)
    config = make_config("connect4", selfplay={"num_games": 16384} | selfplay)
    return games_at_once.choose(config, CONNECT4, engine, evaluate, num_ranks)


def test_an_engine_that_is_as_fast_with_small_batches_gets_the_least_number(clock):
    assert choose(OnProcessors(clock, 0.0, 1e-4)) == (256, 1, "measured")


def test_the_number_doubles_as_long_as_the_engine_gains_a_tenth(clock):
    """A batch takes as long as 1,024 positions: of 256 to 512 the gain is 1.67, then 1.5, 1.33; 1.2 to 4,096; 1.11 to
    8,192, which is the most."""
    assert choose(OnProcessors(clock, 1024e-6, 1e-6)).num_games == 8192
    assert choose(OnProcessors(clock, 1000e-6, 1e-6), num_games=100_000).num_games == 8192
    assert choose(OnProcessors(clock, 800e-6, 1e-6)).num_games == 4096  # 1.09 to 8,192


@pytest.mark.parametrize("num_games, num_ranks, expected", [(4000, 1, 2000), (4000, 4, 500), (4000, 16, 256)])
def test_processors_play_at_most_half_of_a_ranks_share_at_once_and_at_least_256(clock, num_games, num_ranks, expected):
    engine = OnProcessors(clock, 1.0, 1e-6)
    clock.now, engine.batch_s = 0.0, 0.1
    assert choose(engine, num_ranks, num_games=num_games).num_games == expected
    assert bool(engine.sizes) == (expected > 256)


def test_batches_that_take_long_grow_no_further(clock):
    assert choose(OnProcessors(clock, 1.0, 1e-6)) == (512, 1, "measured")


@pytest.mark.parametrize("latency_s, num_groups", [(0.0, 2), (5e-5, 2), (5e-4, 3), (1.5e-3, 4)])
def test_a_device_in_the_background_gets_as_many_groups_as_hide_its_latency(clock, latency_s, num_groups):
    """A batch of 128 takes a millisecond, and no longer batch is faster. One batch under way takes a millisecond and
    the latency; with two, the device waits where the latency is longer than a batch. A group more is searched."""
    engine = InBackground(clock, 0.0, 1e-3 / 128, latency_s)
    found = choose(engine, parallel_games=256)
    assert found == (256, num_groups, "as configured")
    assert engine.most == 3 and not engine.waiting


def test_a_device_in_the_background_gets_large_batches_up_to_a_ranks_share(clock):
    engine = InBackground(clock, 1e-3, 1e-7, 0.0)
    assert choose(engine) == (8192, 2, "measured")
    assert choose(engine, num_games=512) == (512, 2, "measured")
    assert choose(engine, num_games=512, num_ranks=4) == (256, 2, "")
    assert choose(InBackground(clock, 0.0, 1e-6, 0.0)) == (256, 2, "measured")
    assert choose(InBackground(clock, 0.0, 1e-6, 1e-4))[:2] == (3 * 128, 3)


def test_what_is_configured_is_obeyed_and_processors_measure_nothing_then(clock):
    engine = OnProcessors(clock, 1.0, 0.0)
    assert choose(engine, parallel_games=100) == (100, 1, "as configured") and not engine.sizes


def test_deterministic_runs_and_evaluators_without_the_network_depend_on_no_time(clock):
    sync, device = OnProcessors(clock, 1.0, 0.0), InBackground(clock, 1.0, 0.0, 1.0)
    for engine, numbers in ((sync, [256, 256, 256]), (device, [256, 512, 2048])):
        for num_games, expected in zip((16, 512, 100_000), numbers):
            found = choose(engine, num_games=num_games, deterministic=True)
            assert found == (expected, 1 + engine.in_background, "")
        assert choose(engine, evaluate=UniformEvaluator(CONNECT4)) == (256, 1, "")
    assert not sync.sizes and not device.sizes


def test_the_words_name_games_groups_and_the_reason():
    words = [games_at_once.AtOnce(*given).words for given in ((256, 1, ""), (2048, 3, "measured"))]
    assert words == ["256", "2,048 in 3 groups (measured)"]
