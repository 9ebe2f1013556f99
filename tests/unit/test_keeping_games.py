"""The games of survivors after a rank was lost, and how the next root takes over the files."""

import errno
import logging
from contextlib import nullcontext

import numpy as np
import pytest
from helpers import by_id, make_config
from stand_ins import part_of_run

from az_mpi import games
from az_mpi.core import files
from az_mpi.core.signals import Requests, Stopped
from az_mpi.mpi.alone import Alone
from az_mpi.mpi.peers import PeerLost
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.run import exchange, recovery
from az_mpi.run.run_files import RunFiles
from az_mpi.run.writers import Writers
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import game_ids
from az_mpi.storage import lock
from az_mpi.storage.lock import Lock, LockLost
from az_mpi.telemetry.callbacks import Callbacks

TICTACTOE = games.make("tictactoe")


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_simulation_under_way_is_completed_before_games_continue_or_are_given_up(deterministic):
    settings = make_config(search={"simulations": 6}, selfplay={"parallel_games": 4, "deterministic": deterministic})

    def begun(rank):
        player = Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), rank, num_groups=2)
        player.start(player.free(), game_ids(2, 0, np.arange(4)), 2)
        return player

    def games_of(player):
        while player.live.any():
            player.step()
        return by_id(player.take())

    player = begun(1)
    for _ in range(5):
        player.step()
    assert player.under_way
    recovery._keep_games(part_of_run(playing={"player": player}, world={"rank": 0}, setup={"config": settings}))
    assert not player.under_way and player.rank == 0 and player.live.any() != deterministic
    if deterministic:
        player.start(player.free(), game_ids(2, 0, np.arange(4)), 2)
    assert games_of(player) == games_of(begun(0))


@pytest.mark.parametrize("survives", [True, False])
def test_games_are_kept_where_a_rank_is_lost_in_their_exchange(survives):
    """A recovery stores the unacknowledged games that are not on disk, and asks no player."""
    settings = make_config(search={"simulations": 6}, selfplay={"parallel_games": 4})
    player = Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), 1)
    player.start(player.free(), game_ids(2, 0, np.arange(4)), 2)
    while player.live.any():
        player.step()

    class Lossy:
        size, is_root, rank = 2, False, 1

        def exchange(self, *arguments):
            raise PeerLost("rank 0")

        gather = exchange

    Lossy.survives = survives
    run = part_of_run(
        playing={"player": player, "unacknowledged": []},
        world=Lossy(),
        games_iteration=3,
        writers={"group": Lossy()},
        setup={"config": settings, "game": TICTACTOE, "callbacks": Callbacks([], None, 1, TICTACTOE)},
    )
    with pytest.raises(PeerLost):
        exchange.store(run)
    [(iteration, record)] = run.playing.unacknowledged
    assert iteration == 3 and record.games["id"].tolist() == game_ids(2, 0, np.arange(4)).tolist()


def test_the_next_root_waits_while_the_file_system_fails(monkeypatch, tmp_path, caplog):
    """The writer waits. Its own tests show when it gives up."""

    class Taken:
        def check(self):
            pass

    taken = Taken()
    answers = [OSError(errno.ENOSPC, "no space"), OSError(errno.EIO, "no answer"), taken]

    def take_over(*arguments):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def survivor():
        return part_of_run(
            setup={"config": make_config()},
            files=RunFiles(tmp_path, TICTACTOE, 600.0),
            start=1,
            control={"requests": Requests()},
            report={"logger": logging.getLogger("az_mpi")},
        )

    monkeypatch.setattr(Lock, "take_over", take_over)
    run = survivor()
    recovery._take_over(run, Alone())
    assert run.files.lock is taken and "lock cannot be taken over: no space" in caplog.text
    for final in (OSError(errno.EFBIG, "too large"), LockLost("another job has it")):
        answers.append(final)
        with pytest.raises(Stopped):
            recovery._take_over(survivor(), Alone())


@pytest.mark.parametrize("fresh", [True, False])
def test_a_rank_that_lists_an_old_state_of_the_folder_finds_the_lock_of_its_new_root(tmp_path, monkeypatch, fresh):
    """A client of NFS lists a folder as it was, until it changes the folder itself."""
    first = Lock.take(tmp_path, [lock.me()], 1)
    listed, now, refresh = set(files.names(first.path.parent)), files.names, files.refresh
    second = Lock.take_over(tmp_path, [lock.me()], 1, first.token)
    monkeypatch.setattr(files, "names", lambda folder: sorted(listed))

    def change(folder):
        refresh(folder)
        if fresh:
            listed.update(now(folder))

    monkeypatch.setattr(files, "refresh", change)
    with nullcontext() if fresh else pytest.raises(LockLost):
        lock.check(tmp_path, first.token)
    listed = {first.path.name}
    with nullcontext() if fresh else pytest.raises(LockLost):
        Lock.take_over(tmp_path, [lock.me()], 1, first.token).release()
    first.release()
    second.release()


def test_what_several_writers_remember_does_not_grow_with_the_number_of_iterations():
    group, files = part_of_run(is_root=True), part_of_run(next_number=lambda iteration: 3)
    writers, world = Writers(group, [0, 2], 1), part_of_run(from_root=lambda look: look())

    def numbers(iterations):
        return [[writers.next_number(world, files, i) for _ in range(2)] for i in iterations]

    assert numbers(range(100, 110)) == [[4, 6]] * 10
    size = len(repr(writers))
    assert numbers(range(110, 900)) == [[4, 6]] * 790
    assert len(repr(writers)) == size
    assert writers.next_number(world, files, 899) == 8  # the iteration before the newest one may still get games
    assert writers.next_number(world, files, 898) == 8
