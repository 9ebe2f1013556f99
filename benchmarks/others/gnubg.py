"""GNU Backgammon as an opponent in `backgammon` and `openspiel:backgammon`, for matches.

    mpirun -np 2 -H localhost:2 python -m az_mpi match runs/backgammon benchmarks/others/gnubg.py:GnuBackgammon \\
        --games 200 --opening_plies 0

It needs the program `gnubg`, built with Python (Debian's package has that). `plies` is how far it looks ahead, and
`noise` the deviation of the noise that it adds to its evaluations. It is told the board and the dice, and plays for
wins alone, or for gammons too in `backgammon(gammons=True)`. There is no doubling cube.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.evaluate.opponents import Opponent, Seat
from az_mpi.games import backgammon
from az_mpi.games.base import Game

PROGRAM = shutil.which("gnubg", path=f"{os.environ.get('PATH', '')}:/usr/games")
POINTS, BAR = backgammon.POINTS, 100  # BAR: OpenSpiel's number
# What gnubg runs. Its standard output has its own words too, so the answers go to a pipe of their own.
SERVER = """
import gnubg, json, os, sys
for line in ("display off", "automatic game off", "automatic roll off", "automatic move off", "automatic bearoff off",
             "player 0 human", "player 1 human", "cube use off", "jacoby " + os.environ["AZ_MPI_JACOBY"]):
    gnubg.command("set " + line)
gnubg.command("new session")
with os.fdopen(int(os.environ["AZ_MPI_ANSWERS"]), "w", buffering=1) as answers:
    for line in sys.stdin:
        own, other, dice, plies, noise = json.loads(line)
        gnubg.command("set dice %d %d" % tuple(dice))
        how = dict(gnubg.evalcontext(), plies=plies, cubeful=0, noise=noise)
        # By Jacoby's rule a gammon counts as a win, since the cube lies in the middle.
        move = gnubg.findbestmove((tuple(other), tuple(own)), gnubg.cubeinfo(), how)
        answers.write(json.dumps(list(move or ())) + "\\n")
"""


class GnuBackgammon(Opponent):
    """GNU Backgammon, which evaluates the positions after each move, and `plies` moves further."""

    def __init__(self, game: Game, plies: int = 0, noise: float = 0.0):
        if not game.name.startswith(("backgammon", "openspiel:backgammon")):
            raise Refusal(f"GnuBackgammon plays backgammon and openspiel:backgammon, not {game.name}")
        if PROGRAM is None:
            raise Refusal("GnuBackgammon needs the program gnubg\n  Debian: apt install gnubg")
        self._how = plies, noise
        self._jacoby = "off" if getattr(game, "gammons", False) else "on"
        self._server: subprocess.Popen[str] | None = None

    def seat(self, game: Game, states: np.ndarray, indices: np.ndarray, moves: list[list[int]]) -> Seat:
        return Turns(self, game, states, indices, moves)

    def best(self, positions: list[tuple[list[int], list[int], list[int]]]) -> list[list[int]]:
        """Return gnubg's moves: from, to, from, to and so on, as points of the mover; 25 is the bar, 0 is off.
        positions: (own, other, dice): the checkers on each own point 1 to 24 and on the bar."""
        if self._server is None:
            self._begin()
        for position in positions:
            self._server.stdin.write(json.dumps([*position, *self._how]) + "\n")
        self._server.stdin.flush()
        return [json.loads(self._answers.readline()) for _ in positions]

    def _begin(self):
        self._folder = tempfile.TemporaryDirectory()  # removed with this object
        folder = Path(self._folder.name)
        (folder / "server.py").write_text(SERVER)
        reading, writing = os.pipe()
        self._server = subprocess.Popen(
            [PROGRAM, "-t", "-q", "-p", folder / "server.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
            env=os.environ | {"HOME": str(folder), "AZ_MPI_ANSWERS": str(writing), "AZ_MPI_JACOBY": self._jacoby},
            text=True,
        )
        os.close(writing)
        self._answers = os.fdopen(reading)


class Turns(Seat):
    """The games of GNU Backgammon, which chooses all moves of a throw together."""

    def __init__(self, *place):
        super().__init__(*place)
        self._plans: dict[int, list[int]] = {}  # of each game: the actions that follow in this turn

    def choose(self, slots: np.ndarray) -> np.ndarray:
        new = [slot for slot in slots.tolist() if not self._plans.get(slot)]
        positions = [self._position(self.states[slot]) for slot in new]
        for slot, position, move in zip(new, positions, self.player.best(positions)):  # type: ignore[attr-defined]
            own, other = position[:2]
            self._plans[slot] = _actions(self.game, self.states[slot], _after(own, other, move))
        return np.array([self._plans[slot].pop(0) for slot in slots.tolist()], np.int64)

    def _position(self, state):
        return (*_board(self.game, state, _mover(self.game, state)), _dice(self.game, state))


def _mover(game, state):
    """Return the number of the player to move, in OpenSpiel's games OpenSpiel's."""
    return int(state[backgammon.PLAYER]) if _is_native(game) else game.live(state).current_player()


def _board(game, state, player):
    """Return (own, other): the checkers of a player and of the other one on each own point and on the bar."""
    if _is_native(game):
        first, second = state[: backgammon.OTHER].tolist(), state[backgammon.OTHER : backgammon.DIE].tolist()
        return (first, second) if state[backgammon.PLAYER] == player else (second, first)
    live = game.live(state)
    sides: list[list[int]] = []
    for side in (player, 1 - player):
        points = [live.board(side, point) for point in range(POINTS)]
        sides.append([*(points[::-1] if side == 0 else points), live.board(side, BAR)])
    return tuple(sides)


def _is_native(game):
    return game.name.startswith("backgammon")


def _dice(game, state):
    if _is_native(game):
        high, low = state[[backgammon.DIE, backgammon.SECOND]].tolist()
        return [high, low or high]
    return [int(digit) for digit in re.search(r"Dice: (\d)(\d)", str(game.live(state))).groups()]


def _after(own, other, move):
    """Return the board after a move of gnubg."""
    own, other = list(own), list(other)
    for begin, end in zip(move[::2], move[1::2]):
        if begin == 0:  # the rest is not used
            break
        own[begin - 1] -= 1
        if end > 0:
            own[end - 1] += 1
            hit = POINTS - end
            other[POINTS] += other[hit]  # at most one checker
            other[hit] = 0
    return own, other


def _actions(game, state, wanted):
    """Return the actions of the mover that lead to a board."""
    mover = _mover(game, state)
    to_play = game.to_play(state[None])[0]
    tried = set()
    lines = [([], state)]
    while lines:
        actions, before = lines.pop()
        for action in np.flatnonzero(game.legal(before[None])[0]):
            after = game.play(before[None], np.array([action]))
            goes_on = not game.terminal(after)[0][0] and game.to_play(after)[0] == to_play
            own, other = _board(game, after[0], mover)
            if not goes_on and (own, other) == tuple(wanted):
                return [*actions, int(action)]
            if goes_on and (key := (tuple(own), tuple(other), len(actions))) not in tried:
                tried.add(key)
                lines.append(([*actions, int(action)], after[0]))
    raise Refusal(
        f"GnuBackgammon: no action leads to the board that gnubg wants, from\n{game.show(state)}\n"
        "  it chooses all moves of a throw together, so a match needs --opening_plies 0"
    )
