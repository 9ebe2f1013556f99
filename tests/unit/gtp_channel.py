"""A GTP engine in this process, for the tests of `python -m az_mpi gtp`."""

import argparse
import os
from pathlib import Path

from helpers import loaded_player

from az_mpi.play import gtp
from az_mpi.play.line_engine import Serving
from az_mpi.play.lines import Lines
from az_mpi.play.loading import Loading
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


class LoadingChannel:
    """An engine that loads a network as the program does, and another one for a board of another size."""

    def __init__(self, run):
        given = argparse.Namespace(run=Path(run), checkpoint="newest", simulations=16, seconds=0.0)
        loading = Loading(given, "the Go Text Protocol")
        read, self.write_end = os.pipe()
        self.said = []
        serving = Serving(loading.session, Limit(simulations=16), Lines(read), at_size=loading.at_size)
        self.engine = gtp.GtpEngine(serving, self.said.append)

    def send(self, text):
        os.write(self.write_end, text.encode())

    def say(self, line):
        self.said.clear()
        self.engine.answer(line)
        return "".join(self.said).strip()


def malformed(rng):
    """Return a line that is no valid command."""
    junk = "".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(1, 30))).replace("#", "")
    number = rng.choice(["9" * 400, "-1", "1e9", "nan", "inf", "1_0", "0x9", "", "٣", "5.5.5", "--", junk])
    name, count = rng.choice(
        [
            ("boardsize", 1),
            ("komi", 1),
            ("play", 2),
            ("genmove", 1),
            ("reg_genmove", 1),
            ("time_settings", 3),
            ("time_left", 3),
            ("known_command", 1),
            ("name", 0),
            ("undo", 0),
            ("quit", 0),
            ("showboard", 0),
            ("rectangular_boardsize", 2),
        ]
    )
    return rng.choice(
        [
            f"x{junk}",
            f"x{junk} {number}",
            f"{name} " + "b " * (count + 1),
            f"{name}{junk}x",
            f"play {number} a1",
            f"play b x{junk}",
            f"play b {number}z",
            f"genmove x{number}",
            f"komi {number}x",
            f"boardsize x{number}",
            f"time_left b {number}x 1",
            f"time_settings 1 {number}x 1",
            f"lz-analyze x{junk}",
            f"kata-analyze b 1 {junk}",
            "play b" + " a1" * rng.randrange(2, 2000),
            f"{'7' * rng.randrange(1, 500)} x{junk}",
            f"{name.upper()} {number}",
            "\x7f\x00" * 5 + f"x{junk}",
        ]
    )
