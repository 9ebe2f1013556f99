"""What a survivor's player does with its games when a rank was lost."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import by_id, make_config

from az_mpi import games, recovery
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import game_ids

TICTACTOE = games.make("tictactoe")


@pytest.mark.parametrize("deterministic", [True, False])
def test_what_was_under_way_is_completed_before_games_go_on_or_are_given_up(deterministic):
    settings = make_config(search={"simulations": 6}, selfplay={"parallel_games": 4, "deterministic": deterministic})

    def begun(rank):
        player = Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), rank, groups_num=2)
        player.start(player.free(), game_ids(2, 0, np.arange(4)), 2)
        return player

    def games_of(player):
        while player.live.any():
            player.step()
        return by_id(player.take())

    player = begun(1)
    for _ in range(5):  # an odd number: one group's simulation is under way
        player.step()
    assert player._under_way
    recovery._keep_games(SimpleNamespace(player=player, config=settings, world=SimpleNamespace(rank=0)))
    assert not player._under_way and player.rank == 0 and player.live.any() != deterministic
    if deterministic:
        player.start(player.free(), game_ids(2, 0, np.arange(4)), 2)
    assert games_of(player) == games_of(begun(0))
