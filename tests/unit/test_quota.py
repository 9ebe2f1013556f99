"""Who plays how many games."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import by_id, make_config

from az_mpi import games
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.selfplay import quota
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.quota import play_share, play_until
from az_mpi.selfplay.record import Record, game_ids
from az_mpi.world import split_evenly

TICTACTOE = games.make("tictactoe")


def make_player(rank=0, parallel_games=4):
    settings = make_config(search={"simulations": 6}, selfplay={"parallel_games": parallel_games})
    return Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), rank)


def silent(done, total):
    pass


def test_split_evenly_by_hand():
    assert split_evenly(100, 3) == [34, 33, 33]
    assert split_evenly(2, 4) == [1, 1, 0, 0]
    assert split_evenly(0, 2) == [0, 0]


@pytest.mark.parametrize("parts", range(1, 12))
@pytest.mark.parametrize("total", [0, 1, 7, 24, 100, 1023])
def test_split_evenly_is_fair(total, parts):
    counts = split_evenly(total, parts)
    assert len(counts) == parts and sum(counts) == total
    assert max(counts) - min(counts) <= 1 and counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("missing", [list(range(11)), [2, 3, 5, 20, 21, 22, 40], [], [9]])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_shares_of_all_ranks_are_the_games_of_one(missing, size):
    """Each index exactly once, each rank an even share, and the same games as one rank plays."""
    missing = np.array(missing, np.int64)

    def share(rank, size):
        player, told = make_player(rank, parallel_games=1 + 2 * rank), []
        play_share(player, SimpleNamespace(rank=rank, size=size), 6, missing, lambda *what: told.append(what))
        record = player.take()
        assert (record.games["rank"] == rank).all() and (record.games["iteration"] == 6).all()
        assert not told or told[-1] == (len(record.games), len(record.games))
        return record

    parts = [share(rank, size) for rank in range(size)]
    assert [len(part.games) for part in parts] == split_evenly(len(missing), size)
    joined = by_id(Record.join(TICTACTOE, parts))
    assert sorted(joined) == game_ids(6, 0, missing).tolist()
    assert joined == by_id(share(0, 1))


class Sums:
    """The world of one of `size` ranks; the others have finished `others` games each time they are asked. Sums are
    known at the second look, as where a slower rank has to join first."""

    def __init__(self, rank=0, size=1, others=0):
        self.rank, self.size, self.others, self.asked = rank, size, others, []

    def start_sum(self, value):
        self.asked.append(int(value))
        looks = iter([False, True])
        return SimpleNamespace(finished=lambda: next(looks, True), total=int(value) + self.others)


@pytest.fixture(autouse=True)
def ask_at_once(monkeypatch):
    monkeypatch.setattr(quota, "ASK_EVERY_S", 0.0)


def test_play_until_stops_when_the_total_is_reached_and_keeps_the_games_under_way():
    player, world, told = make_player(), Sums(), []
    play_until(player, world, 2, 1, 10, lambda *what: told.append(what))
    assert world.asked == sorted(world.asked) and world.asked[-1] >= 10 > world.asked[-2]
    record = player.take()
    assert len(record.games) == player.finished_num >= 10
    assert player.live.any() and set(total for _, total in told) == {10} and told[-1][0] >= 10
    # The next iteration finishes them first; they count for it, and none is lost or played twice.
    under_way = set(player.ids[player.live].tolist())
    play_until(player, world, 3, 1, 10, silent)
    later = player.take()
    assert under_way <= set(later.games["id"].tolist())
    everything = by_id(Record.join(TICTACTOE, [record, later]))
    iterations = {key: content[0][1] for key, content in everything.items()}
    assert all(key >> 40 == iteration for key, iteration in iterations.items())
    assert {iterations[key] for key in under_way} == {2}
    # Begun in order: whatever is not there is still under way.
    for iteration in (2, 3):
        indices = sorted(key & (2**28 - 1) for key in [*iterations, *player.ids[player.live].tolist()]
                         if key >> 40 == iteration)  # fmt: skip
        assert indices == list(range(len(indices)))


def test_play_until_counts_this_call_alone():
    """Games finished before do not count for the next iteration."""
    player = make_player()
    play_until(player, Sums(), 0, 1, 12, silent)
    world = Sums()
    before = player.finished_num
    play_until(player, world, 1, 1, 5, silent)
    assert world.asked[0] == 0 and player.finished_num - before >= 5


def test_other_ranks_games_count():
    player, world = make_player(), Sums(size=2, others=8)
    play_until(player, world, 0, 1, 10, silent)
    assert world.asked[-1] + 8 >= 10 > world.asked[-2] + 8


def test_ranks_and_attempts_never_begin_the_same_game():
    ids = []
    for attempt in (1, 2):
        for rank in range(3):
            player = make_player(rank)
            play_until(player, Sums(rank, 3), 4, attempt, 9, silent)
            record = player.take()
            assert (record.games["id"] % 2**28 % 3 == rank).all()
            ids += record.games["id"].tolist() + player.ids[player.live].tolist()
    assert len(ids) == len(set(ids))
