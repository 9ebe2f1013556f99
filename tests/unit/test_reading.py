"""Reading a run's games while its file system fails for a while."""

import errno
import logging
import os

from helpers import Hashed, make_config, play_games

from az_mpi import games
from az_mpi.core import files
from az_mpi.run.run_files import RunFiles
from az_mpi.selfplay.player import Player
from az_mpi.storage import segment

GAME = games.make("tictactoe")


def play(ids):
    settings = make_config(search={"simulations": 6}, selfplay={"parallel_games": 8})
    return play_games(Player(settings, GAME, Hashed(GAME), 3), ids, iteration=7)


def test_a_file_that_cannot_be_read_for_a_while_is_waited_for_and_not_set_aside(tmp_path, monkeypatch, caplog):
    records = [play(range(3)), play(range(10, 15))]
    (tmp_path / "games").mkdir()
    stored = RunFiles(tmp_path, GAME, 600.0)
    segments = stored.open_writer(None)
    caplog.set_level(logging.INFO, "az_mpi")
    segments.submit(7, records[0], {})
    segments.submit(7, records[1], {})
    segments.flush()
    there, refusals = sorted(segments.folder.iterdir()), [errno.ESTALE] * 7

    def refusing(function):
        def call(path, *how, **named):
            if str(path).endswith("000007-000.h5") and refusals:
                raise OSError(refusals.pop(), "Stale file handle")
            return function(path, *how, **named)

        return call

    monkeypatch.setattr(files, "READ_S", 0.0)
    monkeypatch.setattr(segment, "open", refusing(open), raising=False)
    monkeypatch.setattr(os, "open", refusing(os.open))
    assert stored.games_of(7).games["id"].tolist() == [i for r in records for i in r.games["id"].tolist()]
    assert not refusals and sorted(segments.folder.iterdir()) == there
    assert "games cannot be read: Stale file handle" in caplog.text and "games: read now" in caplog.text
    refusals.extend([errno.EACCES] * 5)
    assert len(stored.segments(7)) == 2 and not refusals and sorted(segments.folder.iterdir()) == there
    refusals.append(errno.ELOOP)  # such as a link
    assert [s.path.name for s in stored.segments(7)] == ["000007-000.h5", "000007-001.h5"]
    refusals.extend([errno.ELOOP] * 2)
    assert [s.path.name for s in stored.segments(7)] == ["000007-001.h5"]
    assert (segments.folder / "000007-000.h5.damaged").exists()
