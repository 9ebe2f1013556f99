"""GNU Backgammon as an opponent in `openspiel:backgammon`, for matches.

    mpirun -np 2 -H localhost:2 python -m az_mpi match runs/backgammon benchmarks/others/gnubg.py:GnuBackgammon \\
        --games 200 --opening_plies 0

It needs the program `gnubg`, built with Python (Debian's package has that). `plies` is how far it looks ahead, and
`noise` the deviation of the noise that it adds to its evaluations. It plays for wins alone, as
`openspiel:backgammon` scores by default, without a doubling cube. It is told nothing but the board and the dice.
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
from az_mpi.evaluate.opponents import Opponent
from az_mpi.games.base import Game

PROGRAM = shutil.which("gnubg", path=f"{os.environ.get('PATH', '')}:/usr/games")
POINTS, BAR = 24, 100  # BAR: OpenSpiel's number
# What gnubg runs. Its standard output has its own words too, so the answers go to a pipe of their own.
SERVER = """
import gnubg, json, os, sys
for line in ("display off", "automatic game off", "automatic roll off", "automatic move off", "automatic bearoff off",
             "player 0 human", "player 1 human", "cube use off", "jacoby on"):
    gnubg.command("set " + line)
gnubg.command("new session")
with os.fdopen(int(os.environ["AZ_MPI_ANSWERS"]), "w", buffering=1) as answers:
    for line in sys.stdin:
        own, other, dice, plies, noise = json.loads(line)
        gnubg.command("set dice %d %d" % tuple(dice))
        how = dict(gnubg.evalcontext(), plies=plies, cubeful=0, noise=noise)
        # The cube lies in the middle, so by Jacoby's rule a gammon counts as a win.
        move = gnubg.findbestmove((tuple(other), tuple(own)), gnubg.cubeinfo(), how)
        answers.write(json.dumps(list(move or ())) + "\\n")
"""


class GnuBackgammon(Opponent):
    """GNU Backgammon, which evaluates the positions after each move, and `plies` moves further."""

    def __init__(self, game: Game, plies: int = 0, noise: float = 0.0):
        if not game.name.startswith("openspiel:backgammon"):
            raise Refusal(f"GnuBackgammon plays openspiel:backgammon, not {game.name}")
        if PROGRAM is None:
            raise Refusal("GnuBackgammon needs the program gnubg\n  Debian: apt install gnubg")
        self._how = plies, noise
        self._server: subprocess.Popen[str] | None = None

    def actions(self, game: Game, states: np.ndarray) -> np.ndarray:
        live = [game.live(state) for state in states]  # type: ignore[attr-defined]
        second = [_is_second_half(state) for state in live]
        begun = [_before(state) if is_second else state for state, is_second in zip(live, second)]
        wanted = [_after(board, move) for board, move in zip(*self._best([_board(one) for one in begun], begun))]
        return np.array([_action(state, board) for state, board in zip(live, wanted)], np.int64)

    def _best(self, boards, states):
        """Return (boards, gnubg's moves: from, to, from, to ..., as points of the mover; 25 is the bar, 0 is off)."""
        if self._server is None:
            self._begin()
        for board, state in zip(boards, states):
            self._server.stdin.write(json.dumps([*board, _dice(state), *self._how]) + "\n")
        self._server.stdin.flush()
        return boards, [json.loads(self._answers.readline()) for _ in boards]

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
            env=os.environ | {"HOME": str(folder), "AZ_MPI_ANSWERS": str(writing)},
            text=True,
        )
        os.close(writing)
        self._answers = os.fdopen(reading)


def _board(state, player=None):
    """Return (own, other): the checkers of the mover, or of `player`, and of the other one on each own point 1 to 24,
    and on the bar."""
    player = state.current_player() if player is None else player
    sides = []
    for side in (player, 1 - player):
        points = [state.board(side, point) for point in range(POINTS)]
        sides.append([*(points[::-1] if side == 0 else points), state.board(side, BAR)])
    return tuple(sides)


def _dice(state):
    return [int(digit) for digit in re.search(r"Dice: (\d)(\d)", str(state)).groups()]


def _is_second_half(state):
    """Return whether the mover has played two of the four moves of a double."""
    history = state.full_history()
    return history[-1].player == state.current_player()


def _before(state):
    before = state.get_game().new_initial_state()
    for action in state.history()[:-1]:
        before.apply_action(action)
    return before


def _after(board, move):
    """Return the board after a move of gnubg."""
    own, other = (list(side) for side in board)
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


def _action(state, wanted):
    """Return the action that leads to a board, or to another action that leads there."""
    player = state.current_player()
    for action in state.legal_actions():
        child = state.child(action)
        goes_on = not child.is_terminal() and child.current_player() == player
        children = [child.child(second) for second in child.legal_actions()] if goes_on else [child]
        if any(list(map(list, _board(one, player))) == list(map(list, wanted)) for one in children):
            return action
    raise Refusal(
        f"GnuBackgammon: no action leads to the board that gnubg wants, from\n{state}"
        "  it chooses all four moves of a double together, so a match needs --opening_plies 0"
    )
