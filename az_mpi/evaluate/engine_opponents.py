"""Other people's programs as opponents: by the Go Text Protocol (GTP), and by the Universal Chess Interface (UCI).

A program knows the game by its moves from the start on. One process plays all games of a rank, one move at a
time; before each move it is sent the moves that it has not seen. A program that dies, is silent or plays an illegal
move loses that game and is started again.
"""

import logging
import re
from collections.abc import Mapping

import numpy as np

from az_mpi.core.problems import NotHere, Refusal, nearest
from az_mpi.evaluate.engine_process import EngineFailed, EngineProcess, words_of
from az_mpi.evaluate.opponents import RESIGNS, Opponent, Seat
from az_mpi.games.base import Game, after, kind_of
from az_mpi.games.uci_moves import uci_moves
from az_mpi.games.vertices import Vertices

FAILURES_MAX = 3  # without a good answer in between: the program is not started again
START_S = 60.0  # for each answer while it starts, if answer_s is less: it may load much
COLOURS = "black", "white"
USUAL_SETUP = 518  # the start position of chess among those of Chess960
PASS = "pass"


class EnginePlayer(Opponent):
    """A program that plays. A subclass speaks its protocol in `greet` and `ask`."""

    protocol = ""

    def __init__(self, game: Game, command: str, seconds: float, answer_s: float, memory_gb: float):
        """seconds: for each move. answer_s: a program that takes so much longer to answer loses. memory_gb: of address
        space; 0: no limit."""
        for name, value in (("seconds", seconds), ("answer_s", answer_s), ("memory_gb", memory_gb)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
                raise ValueError(f"{name} is {value!r}; allowed: a number of at least 0")
        if game.num_players != 2 or game.num_outcomes:
            raise Refusal(
                f'"{self.protocol}" plays games of two players without chance moves; {kind_of(game)}\n'
                "  take this opponent out; random, greedy and rollout play every game"
            )
        if not isinstance(command, str):
            raise ValueError(f"command is {command!r}; allowed: a text such as 'gnugo --mode gtp'")
        self.game = game
        self.command = command
        self.seconds = float(seconds)
        self.answer_s = float(seconds + answer_s)
        self.memory_bytes = int(memory_gb * 2**30)
        self.process: EngineProcess | None = None
        self.lost: dict[int, str] = {}  # why, by the index of the game
        self._num_failures = 0

    def greet(self, process: EngineProcess) -> None:
        """Tell a new program which game it plays. Raises EngineFailed if it cannot play that."""
        raise NotImplementedError

    def ask(self, process: EngineProcess, actions: list[int]) -> int:
        """Return the program's legal action, or RESIGNS, after these actions from the start. Raises EngineFailed."""
        raise NotImplementedError

    def check(self) -> None:
        """Start the program, and ask it for the first move of a game. Raises Refusal if it gives none."""
        try:
            words_of(self.command)
            process = self._start()
            self.ask(process, [])
        except (EngineFailed, ValueError) as error:
            side = f"{self.protocol}(command={self.command!r})"
            raise NotHere(f"{side} cannot play {self.game.name}\n  {error}") from error
        finally:
            self.stop()

    def stop(self) -> None:
        """End the program. The next move starts it again."""
        if self.process:
            self.process.end()
        self.process = None

    def choose(self, seat: Seat, slots: np.ndarray) -> np.ndarray:
        legal = seat.game.legal(seat.states[slots])
        chosen = np.empty(len(slots), np.int64)
        for k, slot in enumerate(slots):
            # A single legal move needs no question; some programs do not expect one when they must pass.
            only = int(legal[k].argmax()) if legal[k].sum() == 1 else None
            chosen[k] = self.move(seat.moves[slot], int(seat.indices[slot])) if only is None else only
        return chosen

    def note(self, index: int) -> str:
        return self.lost.get(index, "resigned")

    def move(self, actions: list[int], index: int) -> int:
        """Return the program's action in the game `index` after these actions, or RESIGNS if it fails."""
        if self._num_failures >= FAILURES_MAX:
            self.lost[index] = f"{self.protocol} engine not started again after {FAILURES_MAX} failures in a row"
            return RESIGNS
        try:
            action = self.ask(self.process or self._start(), actions)
            self._num_failures = 0
            return action
        except EngineFailed as error:
            self.stop()
            self._num_failures += 1
            self.lost[index] = f"{self.protocol} engine {error}"
            logging.getLogger("az_mpi").warning("%s: %s: it loses game %d", self.command, error, index + 1)
            return RESIGNS

    def _start(self):
        self.process = EngineProcess(self.command, self.memory_bytes)
        self.process.answer_s = max(self.answer_s, START_S)
        self.greet(self.process)
        self.process.answer_s = self.answer_s
        return self.process


class GtpPlayer(EnginePlayer):
    """A program that speaks GTP, version 2: GNU Go, KataGo, Leela Zero, GRhino, or `az_mpi gtp`."""

    protocol = "gtp"

    def __init__(self, game: Game, command: str, seconds: float = 0.0, answer_s: float = 60.0, memory_gb: float = 4.0):
        """seconds 0: the program thinks as long as its own options say."""
        super().__init__(game, command, seconds, answer_s, memory_gb)
        self.vertices = Vertices(game)
        self._known: list[int] = []  # the actions that the program has been sent

    def greet(self, process: EngineProcess) -> None:
        commands, (_, rows, columns) = self._say(process, "list_commands").split(), self.game.planes_shape
        if rows != columns and "rectangular_boardsize" in commands:
            self._say(process, f"rectangular_boardsize {columns} {rows}")
        elif "boardsize" in commands:
            self._say(process, f"boardsize {columns}")
        if hasattr(self.game, "komi") and "komi" in commands:
            self._say(process, f"komi {self.game.komi:g}")
        self._say(process, "clear_board")
        if self.seconds and "time_settings" in commands:
            self._say(process, f"time_settings 0 {max(round(self.seconds), 1)} 1")
        self._known = []

    def ask(self, process: EngineProcess, actions: list[int]) -> int:
        if self._known != actions[: len(self._known)]:
            self._say(process, "clear_board")
            self._known = []
        state = after(self.game, self._known)
        for action in actions[len(self._known) :]:
            self._tell(process, state, action)
            state = self.game.play(state[None], np.array([action]))[0]
        self._known = list(actions)
        word = self._say(process, f"genmove {self._colour(state)}")
        if word.lower() == "resign":
            return RESIGNS
        action = self.vertices.find(state, word)
        if action is None:
            raise EngineFailed(f"plays {word[:20]!r}, which is no legal move")
        self._known.append(action)
        return action

    def _colour(self, state):
        return COLOURS[int(self.game.to_play(state[None])[0])]

    def _tell(self, process, state, action):
        """Send a move. A program may refuse a pass: it knows by itself that there is no other move."""
        vertex = self.vertices.of(state, action)
        try:
            self._say(process, f"play {self._colour(state)} {vertex}")
        except _Refused:
            if vertex != PASS:
                raise

    def _say(self, process, command):
        """Return the answer to a command. Raises EngineFailed."""
        process.send(command)
        status = ""
        answer = []
        for line in process.lines(command):
            if status and not line:
                break
            if status:
                answer.append(line)
            elif line.startswith(("=", "?")):
                status = line[0]
                answer = [line[1:].strip()]
        text = "\n".join(answer).strip()
        if status == "?":
            raise _Refused(f"answers {command!r} with {text[:80]!r}")
        return text


class _Refused(EngineFailed):
    pass


class UciPlayer(EnginePlayer):
    """A program that speaks UCI: Stockfish, Leela Chess Zero, Fairy-Stockfish, or `az_mpi uci`."""

    protocol = "uci"

    def __init__(
        self,
        game: Game,
        command: str,
        options: Mapping[str, object] | None = None,
        seconds: float = 0.1,
        nodes: int = 0,
        answer_s: float = 60.0,
        memory_gb: float = 4.0,
    ):
        """options: of the program, by name. nodes: for each move, 0: no limit; with seconds=0 they alone count."""
        super().__init__(game, command, seconds, answer_s, memory_gb)
        if not isinstance(options or {}, Mapping):
            raise ValueError(f"options is {options!r}; allowed: a dict such as {{'Threads': 1}}")
        if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 0 or not (nodes or seconds):
            raise ValueError(f"nodes is {nodes!r}; allowed: a whole number, above 0 if seconds is 0")
        limits = {"movetime": round(1000 * self.seconds), "nodes": nodes}
        self._go = "go " + " ".join(f"{name} {value}" for name, value in limits.items() if value)
        self.options = dict(options or {})
        self.moves = uci_moves(game)

    def greet(self, process: EngineProcess) -> None:
        process.send("uci")
        offered = {}  # name: the words after it, by their names
        for line in process.lines("uci"):
            words = line.split()
            if words[:2] == ["option", "name"] and "type" in words:
                at = words.index("type")
                offered[" ".join(words[2:at])] = words[at:]
            if line == "uciok":
                break
        for name, value in self._settings(offered).items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            process.send(f"setoption name {name} value {shown}")
        process.send("ucinewgame")
        process.send("isready")
        self._wait(process, "isready", "readyok")

    def _settings(self, offered):
        """Return all options to set, {name: value}. Raises EngineFailed if the program does not have one of them, or
        does not play the game."""
        variants = offered.get("UCI_Variant", [])
        settings = dict(self.options)
        if named := [variant for variant in self.moves.variants if variant in variants]:
            settings["UCI_Variant"] = named[0]
        elif self.moves.variant != "chess":
            known = ", ".join(dict.fromkeys(word for word in variants[2:] if word not in ("default", "var")))
            raise EngineFailed(f"does not play {self.moves.variant}; it plays {known or 'chess'}")
        if self.moves.chess960:
            settings["UCI_Chess960"] = True
        if "UCI_Elo" in settings and "UCI_LimitStrength" in offered:
            settings.setdefault("UCI_LimitStrength", True)  # without it UCI_Elo does nothing
        for name, value in settings.items():
            if name not in offered:
                near = "".join(f"; did you mean {other}?" for other in nearest(name, offered)[:1])
                raise EngineFailed(f"has no option {name}{near}")
            spin = re.fullmatch(r"type spin .*min (-?\d+) max (-?\d+).*", " ".join(offered[name]), re.ASCII)
            if spin and not (type(value) is int and int(spin[1]) <= value <= int(spin[2])):
                raise EngineFailed(f"takes for {name} whole numbers from {spin[1]} to {spin[2]}, not {value}")
        return settings

    def ask(self, process: EngineProcess, actions: list[int]) -> int:
        if self.moves.chess960 and not actions:
            return USUAL_SETUP  # a program is given the start position of Chess960
        process.send(f"position {self.moves.place(actions)}")
        process.send(self._go)
        word = (self._wait(process, self._go, "bestmove").split() + ["", ""])[1]
        action = self.moves.find(after(self.game, actions), word)
        if action is None:
            raise EngineFailed(f"plays {word[:20]!r}, which is no legal move")
        return action

    def _wait(self, process, asked, word):
        """Return the first line that begins with a word."""
        return next(line for line in process.lines(asked) if line.split()[:1] == [word])
