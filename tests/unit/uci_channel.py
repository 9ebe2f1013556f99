"""A UCI engine in this process, for the tests of `python -m az_mpi uci`."""

import os

from helpers import loaded_player

from az_mpi.play import uci
from az_mpi.play.line_engine import Serving
from az_mpi.play.lines import Lines
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session

CHESS = "openspiel:chess(max_plies=300)"
QUICK = Limit(simulations=8)


class Channel:
    """An engine whose input stays open: what `say` writes is answered in this process."""

    def __init__(self, game=CHESS, limit=QUICK, on_batch=lambda: None):
        read, self.write_end = os.pipe()
        self.said = []
        self.threads = []
        self.session = Session(loaded_player(game, on_batch))
        serving = Serving(lambda: self.session, limit, Lines(read), game, use_threads=self.threads.append)
        self.engine = uci.UciEngine(serving, self.said.append)
        assert self.engine.moves  # what a first position would load is loaded

    def send(self, text):
        os.write(self.write_end, text.encode())

    def say(self, *lines):
        """Return the answers to some lines."""
        self.said.clear()
        for line in lines:
            self.engine.answer(line)
        return list(self.said)

    def best(self, line="go"):
        """Return the move that "go" chooses."""
        *_, last = self.say(line)
        return last.removeprefix("bestmove ").split()[0]
