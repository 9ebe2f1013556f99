"""The numbers of games that ranks play."""

import threading
import time
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import by_id, make_config

from az_mpi import games
from az_mpi.core.signals import Requests
from az_mpi.mpi.control_channel import ControlChannel, Total
from az_mpi.mpi.world import split_evenly
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.quota import play_meanwhile, play_share, play_until, shares
from az_mpi.selfplay.record import Record, game_ids

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
    """Each index is played once, each rank has an even share, and the games are those of one rank."""
    missing = np.array(missing, np.int64)

    def share(rank, size):
        player, told = make_player(rank, parallel_games=1 + 2 * rank), []
        play_share(player, Others(rank, size), 6, 0, missing, [1] * size, lambda *what: told.append(what))
        record = player.take()
        assert (record.games["rank"] == rank).all() and (record.games["iteration"] == 6).all()
        assert not told or told[-1] == (len(record.games), len(record.games))
        return record

    parts = [share(rank, size) for rank in range(size)]
    assert [len(part.games) for part in parts] == split_evenly(len(missing), size)
    joined = by_id(Record.join(TICTACTOE, parts))
    assert sorted(joined) == game_ids(6, 0, missing).tolist()
    assert joined == by_id(share(0, 1))


class Others:
    """The control channel of one of `size` ranks.

    The others have finished `others` games each time they are asked and are done at once; a total comes at every second
    look. `requests`: {number of a total: its fields that are not as usual}."""

    def __init__(self, rank=0, size=1, others=0, requests=None):
        self.world = self
        self.rank, self.size, self.is_root, self.others, self.requests = rank, size, rank == 0, others, requests or {}
        self.asked, self.looks, self.exchanges, self.told_finished = [], 0, [], 0

    def poll(self, finished=0, done=False, exchange=False):
        self.looks += 1
        if self.looks % 2:
            return None
        self.asked.append(int(finished))
        self.told_finished = finished
        self.exchanges.append(exchange)
        total = Total(int(finished) + self.others, done + self.size - 1, int(exchange), 0, 0)
        return total._replace(**self.requests.get(len(self.asked), {}))

    def wait(self, ended, **counts):
        while True:
            total = self.poll(**counts)
            if total and ended(total):
                return total


def test_play_until_stops_when_the_total_is_reached_and_keeps_the_games_under_way():
    player, world, told = make_player(), Others(), []
    play_until(player, world, 2, 1, 0, 10, lambda *what: told.append(what))
    assert world.asked == sorted(world.asked) and world.asked[-1] >= 10 > world.asked[-2]
    record = player.take()
    assert len(record.games) == player.num_finished >= 10
    assert player.live.any() and set(total for _, total in told) == {10} and told[-1][0] >= 10
    # The next iteration finishes them first; they count for it, and none is lost or played twice.
    under_way = set(player.ids[player.live].tolist())
    play_until(player, world, 3, 1, player.num_finished, 10, silent)
    later = player.take()
    assert under_way <= set(later.games["id"].tolist())
    everything = by_id(Record.join(TICTACTOE, [record, later]))
    iterations = {key: content[0][1] for key, content in everything.items()}
    assert all(key >> 40 == iteration for key, iteration in iterations.items())
    assert {iterations[key] for key in under_way} == {2}
    # Begun in order: whatever is not there is still under way.
    for iteration in (2, 3):
        indices = sorted(
            key & (2**28 - 1) for key in [*iterations, *player.ids[player.live].tolist()] if key >> 40 == iteration
        )
        assert indices == list(range(len(indices)))


def test_play_until_counts_from_the_games_finished_before():
    """Games given to an earlier iteration do not count; those finished since, while others trained, do."""
    player = make_player()
    play_until(player, Others(), 0, 1, 0, 12, silent)
    before = player.num_finished
    world = Others()
    play_until(player, world, 1, 1, before, 5, silent)
    assert world.asked[0] <= 4 and player.num_finished - before >= 5
    world = Others()
    total = play_until(player, world, 2, 1, before, 5, silent)
    assert len(world.asked) == 1 and total.finished >= 5


def test_other_ranks_games_count():
    player, world = make_player(), Others(size=2, others=8)
    play_until(player, world, 0, 1, 0, 10, silent)
    assert world.asked[-1] + 8 >= 10 > world.asked[-2] + 8


@pytest.mark.parametrize("request_of_one", [{"stop": 1}, {"save": 1}, {"exchange": 1}])
def test_play_until_ends_for_a_request_and_continues_where_it_was(request_of_one):
    player, world = make_player(), Others(requests={3: request_of_one})
    total = play_until(player, world, 2, 1, 0, 1000, silent)
    assert len(world.asked) == 3 and total._asdict().items() >= request_of_one.items()
    under_way = set(player.ids[player.live].tolist())
    first = player.take()
    play_until(player, Others(), 2, 1, 0, 20, silent)
    everything = [*first.games["id"], *player.take().games["id"], *player.ids[player.live]]
    assert under_way <= set(everything) and len(everything) == len(set(everything))
    assert sorted(int(key) & (2**28 - 1) for key in everything) == list(range(len(everything)))


class ThreadWorld:
    """A world whose ranks are threads: `start_sum` adds up over them, as World's does."""

    def __init__(self, rank, size, sums):
        self.rank, self.size, self.is_root, self.sums, self.num_begun = rank, size, rank == 0, sums, 0

    def start_sum(self, counts):
        mine = self.sums[self.num_begun]
        mine[self.rank] = counts
        self.num_begun += 1
        return SimpleNamespace(finished=lambda: len(mine) == self.size, total=Columns(mine))


class Columns:
    """Sums of the columns of {rank: counts}, taken when they are looked at."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return (sum(int(count) for count in column) for column in zip(*self.rows.values()))


@pytest.mark.parametrize("slow", [0, 3])
@pytest.mark.parametrize("num_games, parallel_games", [(40, 16), (5, 8), (16, 64)])
def test_ranks_beside_a_slow_one_finish_few_games_beyond_the_quota(num_games, parallel_games, slow):
    """Four ranks, of which one looks at its sums every 20 ms only, finish fewer than one game a rank too many, in three
    iterations after each other; games beyond the quota count for the next one."""
    size, played, sums = 4, [[] for _ in range(3)], defaultdict(dict)

    def play(rank):
        player, control = make_player(rank, parallel_games), ControlChannel(ThreadWorld(rank, size, sums), Requests())
        poll = control.poll
        if rank == slow:
            control.poll = lambda *what, **more: (time.sleep(0.02), poll(*what, **more))[1]
        for iteration, ids in enumerate(played):
            play_until(player, control, iteration, 1, player.num_finished, num_games, silent)
            ids += player.take().games["id"].tolist()

    ranks = [threading.Thread(target=play, args=(rank,)) for rank in range(size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    numbers = [len(ids) for ids in played]
    assert min(numbers) >= num_games and max(numbers) < num_games + size
    assert len(set(sum(played, []))) == len(sum(played, []))


def test_root_alone_calls_for_an_exchange_when_it_is_time():
    for rank in (0, 1):
        world = Others(rank, 2, requests={40: {"stop": 1}})
        play_until(make_player(rank), world, 0, 1, 0, 1000, silent, every_s=1e-9)
        assert any(world.exchanges) == (rank == 0)
    world = Others(requests={40: {"stop": 1}})
    play_until(make_player(), world, 0, 1, 0, 1000, silent)
    assert not any(world.exchanges)


def test_play_meanwhile_ends_when_all_others_are_done():
    player = make_player(2)
    requests = {n: {"done": n - 1, "stop": 1} for n in (1, 2, 3)}  # a stop is for those who train to answer
    world = Others(2, 3, requests=requests)
    total = play_meanwhile(player, world, 4, 1, 2)
    assert total.done == 2 and len(world.asked) == 3
    # What is begun then and afterwards has ids of one series.
    play_until(player, Others(2, 3), 4, 1, 0, 9, silent)
    ids = [*player.take().games["id"], *player.ids[player.live]]
    assert sorted(int(key) & (2**28 - 1) for key in ids) == [2 + 3 * k for k in range(len(ids))]


def test_play_share_ends_for_a_stop_but_not_to_save():
    missing = np.arange(30)
    player = make_player()
    total = play_share(player, Others(requests={4: {"stop": 1}}), 1, 0, missing, [1.0], silent)
    assert total.stop and len(player.take().games) < 30
    player = make_player()
    total = play_share(player, Others(requests={4: {"save": 1}}), 1, 0, missing, [1.0], silent)
    assert total.save == 1 and len(player.take().games) == 30


@pytest.mark.parametrize(
    "total, weights, expected",
    [
        (100, [1, 1, 1], [34, 33, 33]),
        (90, [1.0, 2.0], [30, 60]),
        (100, [1, 2], [33, 67]),
        (10, [1, 1, 2, 2], [2, 2, 3, 3]),
        (1, [1, 5], [0, 1]),
        (0, [3, 1], [0, 0]),
    ],
)
def test_shares_by_hand(total, weights, expected):
    assert shares(total, weights) == expected


def test_shares_are_off_by_less_than_one_and_as_split_evenly_for_equals():
    rng = np.random.default_rng(1)
    for _ in range(200):
        total, weights = int(rng.integers(500)), rng.uniform(0.1, 5, int(rng.integers(1, 9)))
        counts = shares(total, weights)
        assert sum(counts) == total
        assert np.abs(np.array(counts) - total * weights / weights.sum()).max() < 1
        assert shares(total, [0.3] * len(weights)) == split_evenly(total, len(weights))


def test_ranks_and_starts_never_begin_the_same_game():
    ids = []
    for start in (1, 2):
        for rank in range(3):
            player = make_player(rank)
            play_until(player, Others(rank, 3), 4, start, 0, 9, silent)
            record = player.take()
            assert (record.games["id"] % 2**28 % 3 == rank).all()
            ids += record.games["id"].tolist() + player.ids[player.live].tolist()
    assert len(ids) == len(set(ids))


def test_games_begun_before_an_iteration_are_given_up_and_newer_ones_stay():
    player = make_player(parallel_games=4)
    player.start(np.array([0, 1]), game_ids(2, 1, [0, 1]), 2)
    player.start(np.array([2, 3]), game_ids(3, 1, [0, 1]), 3)
    for _ in range(8):
        player.step()
    player.pause()
    assert player.abandon(2) == 0
    assert player.abandon(3) == 2 and player.free().tolist() == [0, 1] and player.num_unfinished == 2
    play_until(player, Others(0, 1), 4, 1, 0, 12, silent)
    assert {*player.take().games["iteration"]} == {3, 4}


def test_games_that_ended_and_wait_are_given_up_too():
    player = make_player(parallel_games=2)
    player.allow(0)
    player.start(np.array([0, 1]), game_ids(0, 1, [0, 1]), 0)
    while player.live.any():
        player.step()
    assert player.num_unfinished == 2 and not len(player.free())
    assert player.abandon(1) == 2 and player.num_unfinished == 0 and player.free().tolist() == [0, 1]
    player.allow()
    assert not len(player.take().games)
