"""benchmarks/simulated_cluster.py: queues by hand, the quota, and real jobs of 1 to 16 ranks that share cores."""

import argparse
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from az_mpi.plan import scaling_figures

ROOT = Path(__file__).parents[2]
STATE = json.loads((ROOT / "tests/data/scaling_waiting/scaling.json").read_text())


@pytest.fixture
def cluster(monkeypatch):
    """Return what the program defines."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks/simulated_cluster.py")))


@pytest.mark.parametrize(
    "wait_s, cpu_s, ranks, cores, cycle_s",
    [
        (0.0, 1.0, 3, 1, 3.0),  # three ranks that never wait share one core
        (5.0, 1.0, 1, 1, 6.0),  # a rank alone
        (1.0, 1.0, 2, 1, 1 + 1 * (1 + 0.5)),  # one of them finds the other one there half of the time
        (0.0, 1.0, 4, 2, 0.5 + 1.53125),  # Seidmann: half a second apart, and a core that takes the other half
    ],
)
def test_ranks_queue_for_cores_as_mean_value_analysis_says(cluster, wait_s, cpu_s, ranks, cores, cycle_s):
    assert cluster.queued(wait_s, cpu_s, ranks, cores) == pytest.approx(cycle_s)


def rank(cluster, **changes):
    values = {"step_s": 0.1, "step_cpu_s": 0.0, "game_steps": 20.0, "games": 200.0, "slots": 4, "train_s": 1.0}
    values |= {"train_cpu_s": 0.0, "num_steps": 10, "others": dict.fromkeys(cluster.PHASES, 0.0)}
    return cluster.Rank(**values | changes)


GIVEN = argparse.Namespace(message_s=0.0, jitter=0.0, sum_steps=1, known=4, ranks_per_writer=64)


@pytest.mark.parametrize("num_ranks", [1, 8, 64])
def test_play_takes_the_steps_of_its_games_and_little_more(cluster, num_ranks):
    """200 games of 20 steps, four at once: 1,000 steps."""
    seconds, _ = cluster.play(rank(cluster), num_ranks, 0.1, GIVEN, np.random.default_rng(1))
    assert 97 < seconds < 107


def test_a_longer_sum_makes_a_longer_tail_and_a_wider_world_no_longer_play(cluster):
    def seconds(num_ranks, sum_steps):
        given = argparse.Namespace(**vars(GIVEN) | {"sum_steps": sum_steps})
        return cluster.play(rank(cluster, games=24.0), num_ranks, 0.1, given, np.random.default_rng(1))[0]

    assert seconds(256, 2) > seconds(256, 1) > 24 * 20 / 4 * 0.1
    assert seconds(1024, 1) == pytest.approx(seconds(64, 1), rel=0.03)


def test_what_each_rank_costs_grows_with_the_ranks_and_messages_with_their_logarithm(cluster):
    costs = cluster.Costs(item_s=1e-5, part_s=2e-5, beat_s=1e-4, row_s=1e-5, game_s=1e-4, game_bytes=500.0)
    given = argparse.Namespace(message_s=1e-3, jitter=0.0, sum_steps=1, ranks_per_writer=64)
    small, large = (
        cluster.own_cores(rank(cluster, games=8.0), costs, n, given, np.random.default_rng(1)) for n in (16, 64)
    )
    assert small["broadcast_s"] == pytest.approx(2 * 4 * 1e-3) and large["broadcast_s"] == pytest.approx(2 * 6 * 1e-3)
    hops, each = 2 * 6 * 1e-3, 64 * 1e-5
    assert large["rest_s"] == pytest.approx(cluster.COLLECTS * (hops + each))
    assert large["beats_busy"] == pytest.approx(4 * small["beats_busy"]) == pytest.approx(64 * 1e-4)
    assert large["segments_busy"] == pytest.approx(64 * 8 * 1e-4 / large["iteration_s"])
    assert large["written_mb_per_s"] == pytest.approx(64 * 8 * 500e-6 / large["iteration_s"])


@pytest.mark.parametrize("num_ranks, busiest", [(1, 1), (64, 64), (127, 127), (128, 64), (1000, 104), (4096, 64)])
def test_the_busiest_writer_has_fewer_than_two_groups(cluster, num_ranks, busiest):
    assert cluster.ranks_of_writer(num_ranks, GIVEN) == busiest


def test_the_model_is_within_10_percent_of_real_jobs_of_1_to_16_ranks(cluster):
    """The jobs are those of docs/scaling.md. The model knows 1, 2 and 4 ranks."""
    sizes = {one.num_ranks: one for one in scaling_figures.sizes(STATE["cases"], "weak", 1)}
    assert list(sizes) == [1, 2, 4, 8, 16]
    given = argparse.Namespace(message_s=5e-6, jitter=0.02, sum_steps=2, known=4)
    rng = np.random.default_rng(1)
    known = cluster.calibrated(cluster.measured(STATE, sizes[1]), given, rng)
    found = cluster.checked(STATE, sizes, known, given, rng)
    assert all(abs(row["predicted_by_measured"] - 1) < 0.1 for row in found.values()), found
