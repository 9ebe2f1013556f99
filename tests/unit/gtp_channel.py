"""A GTP engine in this process, for the tests of `python -m az_mpi gtp`."""

import os

from helpers import loaded_player

from az_mpi.play import gtp
from az_mpi.play.line_engine import Serving
from az_mpi.play.lines import Lines
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session

GO = "go(size=5,komi=7)"
QUICK = Limit(simulations=8)


class Channel:
    """An engine whose input stays open: what `say` writes is answered in this process."""

    def __init__(self, game=GO, limit=QUICK, on_batch=lambda: None, **settings):
        read, self.write_end = os.pipe()
        self.said = []
        session = Session(loaded_player(game, on_batch, **settings))
        self.engine = gtp.GtpEngine(Serving(lambda: session, limit, Lines(read)), self.said.append)
        self.session = session

    def send(self, data):
        os.write(self.write_end, data if isinstance(data, bytes) else data.encode())

    def say(self, line):
        """Return the answer to one line: (its first character, the rest without the blank line)."""
        self.said.clear()
        self.engine.answer(line)
        said = "".join(self.said)
        assert said.endswith("\n\n") and "\n\n" not in said[:-2], said
        return said[0], said[1:-2].strip(" ")

    def good(self, line):
        status, text = self.say(line)
        assert status == "=", (line, text)
        return text

    def bad(self, line):
        status, text = self.say(line)
        assert status == "?", (line, text)
        return text

    def moves(self):
        return self.session.played()
