"""Records of finished games, and their ids."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import by_id, make_config, play_games

from az_mpi import games
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import GAME, POLICY, Record, game_ids, position_dtype

TICTACTOE = games.make("tictactoe")


def record_of(ids):
    settings = make_config(search={"simulations": 8}, selfplay={"parallel_games": 4})
    return play_games(Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), 0), ids)


def test_dense_policy_by_hand():
    """Three positions with 2, 0 and 1 entries."""
    positions = np.zeros(3, position_dtype(TICTACTOE))
    positions["policy_count"] = [2, 0, 1]
    policy = np.array([(4, 0.25), (8, 0.75), (4, 1.0)], POLICY)
    dense = Record(np.zeros(1, GAME), positions, policy).dense_policy(9)
    assert dense.dtype == np.float32
    assert dense.tolist() == [[0, 0, 0, 0, 0.25, 0, 0, 0, 0.75], [0] * 9, [0, 0, 0, 0, 1, 0, 0, 0, 0]]


def test_empty_record_has_the_columns_of_a_full_one():
    empty, full = Record.empty(TICTACTOE), record_of([1])
    for name in ("games", "positions", "policy"):
        assert len(getattr(empty, name)) == 0 and getattr(empty, name).dtype == getattr(full, name).dtype
    assert empty.dense_policy(9).shape == (0, 9)


def test_join_keeps_the_games_and_their_order():
    a, b, c = record_of([5]), record_of([3, 9]), record_of([4])
    joined = Record.join(TICTACTOE, [a, Record.empty(TICTACTOE), b, c])
    assert joined.games["id"].tolist() == [5, *b.games["id"].tolist(), 4]
    assert by_id(joined) == {**by_id(a), **by_id(b), **by_id(c)}
    assert len(Record.join(TICTACTOE, []).games) == 0


def test_gather_in_a_world_of_one_rank_changes_nothing(world):
    record = record_of(range(6))
    gathered = record.gather(world)
    for name in ("games", "positions", "policy"):
        assert getattr(gathered, name).dtype == getattr(record, name).dtype
        assert (getattr(gathered, name) == getattr(record, name)).all()


def test_gather_gives_the_games_to_root_alone():
    sent = []
    other = SimpleNamespace(is_root=False, gather=lambda rows, compress: sent.append(len(rows)))
    record = record_of([1, 2])
    assert record.gather(other) is None
    assert sent == [len(record.games), len(record.positions), len(record.policy), len(record.chance)]


@pytest.mark.parametrize(
    "iteration, start, index, expected",
    [
        (0, 0, 0, 0),
        (0, 0, 7, 7),
        (0, 1, 5, 2**28 + 5),
        (3, 2, 1, 3 * 2**40 + 2 * 2**28 + 1),
        (2**24 - 1, 2**12 - 1, 2**28 - 1, 2**64 - 1),
    ],
)
def test_ids_by_hand(iteration, start, index, expected):
    ids = game_ids(iteration, start, [index])
    assert ids.dtype == np.uint64 and ids.tolist() == [expected]


def test_ids_are_different_for_all_iterations_starts_and_indices():
    ids = [
        game_ids(iteration, start, np.array([0, 1, 2, 10**6, 2**28 - 1]))
        for iteration in (0, 1, 2, 4095, 4096, 2**24 - 1)
        for start in (0, 1, 2, 4095)
    ]
    assert len(np.unique(ids)) == 6 * 4 * 5
