"""Levels: weaker play for people, by fewer simulations and by chance."""

import random

import pytest
from helpers import loaded_player

from az_mpi.player import levels
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session


def test_the_full_level_is_the_search_itself_and_lower_ones_have_fewer_simulations():
    assert levels.limit_at(10, Limit(seconds=2), 400) == Limit(seconds=2)
    nums = [levels.limit_at(level, Limit(simulations=400), 100).simulations for level in range(1, 11)]
    assert nums == sorted(nums) and nums[0] == 1 and nums[-1] == 400
    assert levels.limit_at(9, Limit(seconds=2), 100).seconds == 2
    assert [levels.of_elo(elo) for elo in (0, 600, 1500, 2400, 9999)] == [1, 1, 5.5, 10, 10]


def test_a_lower_level_draws_the_best_move_less_often():
    session = Session(loaded_player("connect4"))
    for move in "414141":
        session.play(session.find(move))
    session.think(Limit(simulations=100))
    rng, shares = random.Random(1), []
    assert session.line([session.best()]) == ["4"]  # it wins at once
    for level in (1, 6, 9, 10):
        drawn = [levels.choose(session, level, rng) for _ in range(300)]
        shares.append(drawn.count(session.best()) / 300)
    assert shares == sorted(shares) and shares[0] < 0.4 < shares[1] < 0.7 < shares[2] and shares[3] == 1


@pytest.mark.parametrize("high, low", [(10, 1)])
def test_the_full_level_beats_a_beginner(high, low):
    rng, player, score = random.Random(3), loaded_player("tictactoe"), 0.0
    for game in range(20):
        sessions = [Session(player), Session(player)]
        while not sessions[0].over:
            mover = sessions[0].to_play
            level = high if mover == game % 2 else low
            sessions[mover].think(levels.limit_at(level, Limit(simulations=150), 150))
            action = levels.choose(sessions[mover], level, rng)
            for session in sessions:
                session.play(action)
        score += sessions[0].result * (1 - 2 * (game % 2))
    assert score > 6
