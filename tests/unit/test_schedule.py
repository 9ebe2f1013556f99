"""The learning rate and the batch size, by hand, and when a run is over."""

import pytest
from stand_ins import part_of_run

from az_mpi import loop
from az_mpi.config import schema as models
from az_mpi.storage.checkpoint import Progress
from az_mpi.train.schedule import batch_size, done, learning_rate


def share(iteration, iterations, hours=0.0, limit=0.0):
    """What is done of a run that may take `limit` hours."""
    config = models.Config(game="tictactoe", iterations=iterations, train=models.Train(hours=limit))
    return done(config, Progress(iteration=iteration, hours=hours))


def rate(step, iteration, iterations, **settings):
    return learning_rate(models.Train(learning_rate=0.01, **settings), step, share(iteration, iterations))


@pytest.mark.parametrize("step, expected", [(0, 0.0025), (1, 0.005), (2, 0.0075), (3, 0.01), (4, 0.01), (999, 0.01)])
def test_four_warm_up_steps(step, expected):
    assert rate(step, 0, 10, warmup_steps=4, schedule="constant") == pytest.approx(expected)


def test_no_warm_up_begins_at_the_peak():
    assert rate(0, 0, 10, warmup_steps=0, schedule="constant") == 0.01


@pytest.mark.parametrize(
    "iteration, expected",
    [(0, 0.01), (1, 0.01 * (0.6 + 0.4 * 2**-0.5)), (2, 0.006), (3, 0.01 * (0.6 - 0.4 * 2**-0.5)), (4, 0.002)],
)
def test_cosine_over_five_iterations_down_to_a_fifth(iteration, expected):
    """Angles 0, 45, 90, 135 and 180 degrees."""
    found = rate(100, iteration, 5, warmup_steps=50, schedule="cosine", final_learning_rate=0.2)
    assert found == pytest.approx(expected)


def test_warm_up_and_cosine_multiply():
    """Half of the warm-up, half-way down to 0."""
    found = rate(4, 2, 5, warmup_steps=10, schedule="cosine", final_learning_rate=0.0)
    assert found == pytest.approx(0.0025)


def test_a_run_that_is_extended_beyond_its_end_stays_at_the_end():
    for iteration in (4, 5, 50):
        assert rate(100, iteration, 5, schedule="cosine", final_learning_rate=0.2) == pytest.approx(0.002)


def test_a_run_of_one_iteration_trains_at_the_peak():
    assert rate(100, 0, 1, schedule="cosine") == 0.01


def test_constant_does_not_fall():
    assert {rate(100, iteration, 5, schedule="constant") for iteration in range(5)} == {0.01}


def test_hours_count_where_they_are_further_than_iterations():
    """Of 8 hours or 11 iterations."""
    reached = [(0, 2.0), (5, 2.0), (5, 6.0), (10, 2.0), (5, 9.0)]
    assert [share(iteration, 11, hours, limit=8.0) for iteration, hours in reached] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert [share(iteration, 11, hours) for iteration, hours in reached] == [0.0, 0.5, 0.5, 1.0, 0.5]


def test_the_batch_grows_by_the_same_factor_in_each_iteration():
    settings = models.Train(batch_size=100, batch_growth=16.0)
    sizes = [batch_size(settings, share(iteration, 5)) for iteration in range(7)]
    assert sizes == [100, 200, 400, 800, 1600, 1600, 1600]
    assert batch_size(settings, share(0, 1)) == 100
    assert {batch_size(models.Train(batch_size=99), share(iteration, 5)) for iteration in range(7)} == {99}


@pytest.mark.parametrize("phase, expected", [("train", False), ("play", True)])
@pytest.mark.parametrize(
    "limit", [{"train": models.Train(hours=1.0)}, {"train": models.Train(max_steps=5)}, {"iterations": 1}], ids=str
)
def test_an_iteration_in_which_a_limit_is_reached_is_trained_to_its_end(limit, phase, expected):
    config = models.Config(**{"game": "tictactoe", "iterations": 9, **limit})
    progress = Progress(iteration=1, step=5, phase=phase, hours=2.0)
    assert loop.finished(part_of_run(setup={"config": config}, progress=progress)) == expected
