"""Games that are held out of a fit: which they are, and the figures that they give."""

import numpy as np
import pytest

from az_mpi import games
from az_mpi.network.engines.engine import Engine
from az_mpi.run import held_out
from az_mpi.selfplay.record import GAME, POLICY, Record, game_ids, position_dtype

GAME3 = games.make("tictactoe")


class Says(Engine):
    """Prefers the cells from 0 on, legal or not, and gives every position the same value."""

    def __init__(self, value):
        self.value = value

    def evaluate(self, planes):
        n = len(planes)
        return {
            "policy": np.tile(-np.arange(9.0, dtype=np.float32), (n, 1)),
            "value": np.full(n, self.value, np.float32),
        }


def test_the_same_games_are_held_out_whatever_else_there_is():
    ids = game_ids(3, 0xFFF, np.arange(20_000))
    found = held_out.is_held_out(ids, 0.1)
    assert 0.09 < found.mean() < 0.11
    assert (held_out.is_held_out(ids[::3], 0.1) == found[::3]).all()
    assert (held_out.is_held_out(ids, 0.05) <= found).all() and not held_out.is_held_out(ids, 0.0).any()


def test_figures_are_as_defined():
    """Positions after the move 0: legal are 1 to 8, so that move 1 is the first choice and 6 the sixth."""
    after = GAME3.play(GAME3.initial(1), np.array([0]))
    rows = held_out.to_rows(Record.empty(GAME3), GAME3)
    rows = np.zeros(4, rows.dtype)
    rows["state"], rows["action"], rows["value"] = after, [1, 5, 6, -1], [1, 1, -1, 0]
    total = sum(held_out.sums(Says(0.5), GAME3, part) for part in (rows[:1], rows[1:], rows[:0]))
    found = held_out.figures(total)
    assert (found["policy_top1"], found["policy_top5"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert found["value_error"] == pytest.approx((0.5 + 0.5 + 1.5 + 0.5) / 4)
    assert found["value_squared_error"] == pytest.approx((0.25 * 3 + 2.25) / 4)
    assert found["calibration_error"] == pytest.approx(abs(0.5 - 0.25)) and found["num_positions"] == 4
    assert [row for row in found["calibration"] if row[0]] == [[4, 0.5, 0.25]]
    assert held_out.figures(0 * total) == {}


def test_rows_have_the_likeliest_move_of_each_position():
    positions = np.zeros(3, position_dtype(GAME3))
    positions["policy_count"], positions["value"] = [2, 0, 3], [1, -1, 0]
    policy = np.array([(4, 0.2), (3, 0.8), (1, 0.5), (2, 0.3), (7, 0.2)], POLICY)
    rows = held_out.to_rows(Record(np.zeros(1, GAME), positions, policy), GAME3)
    assert rows["action"].tolist() == [3, -1, 1] and rows["value"].tolist() == [1, -1, 0]
