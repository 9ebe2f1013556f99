"""The commands of GTP that set up a game and judge it: komi, handicap, rules, SGF, score; those of GoGui and KGS."""

import json
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from az_mpi.core import files
from az_mpi.core.problems import escape
from az_mpi.play import gtp_sgf
from az_mpi.play.analysis import counts_by_area
from az_mpi.play.gtp_words import ANY, GOGUI, PASS, GtpError, number, read_all, whole
from az_mpi.records import sgf_words

RULES = {
    "ko": "POSITIONAL",
    "scoring": "AREA",
    "tax": "NONE",
    "suicide": False,
    "hasButton": False,
    "whiteHandicapBonus": "0",
    "friendlyPassOk": False,
}
KOMI_MAX = 400


class Setup:
    """These commands of a `GtpEngine`, {name: (the function that does it, the functions that read its arguments)}."""

    def __init__(self, engine: Any):
        self.engine = engine
        self._komi: float | None = None  # that a client asked for
        self._is_told = False  # that the network learned another komi
        self.commands: dict[str, tuple[Callable, tuple]] = {
            "komi": (self._set_komi, (number,)),
            "get_komi": (lambda: f"{self.komi:g}", ()),
            "kata-get-rules": (lambda: json.dumps(RULES), ()),
            "kata-set-rules": (self._set_rules, ANY),
            "fixed_handicap": (self._fixed_handicap, (whole,)),
            "place_free_handicap": (self._place_free_handicap, (whole,)),
            "set_free_handicap": (self._set_free_handicap, ANY),
            "loadsgf": (self._load, ANY),
            "printsgf": (self._print, ANY),
            "final_score": (self._final_score, ()),
            "final_status_list": (self._final_status_list, (str,)),
            "kgs-game_over": (lambda: "", ()),
            "cputime": (lambda: f"{time.process_time():.3f}", ()),
            "gogui-analyze_commands": (lambda: GOGUI, ()),
            "hexgui-analyze_commands": (lambda: "", ()),  # HexGui ends if this command is unknown
        }

    @property
    def komi(self) -> float:
        """The komi that counts; 0 in a game without one, unless a client has set it."""
        return self._komi if self._komi is not None else float(getattr(self.engine.session.game, "komi", 0))

    def _set_komi(self, komi):
        if not abs(komi) <= KOMI_MAX:
            raise GtpError("unacceptable komi")
        learned = getattr(self.engine.session.game, "komi", komi)
        self._komi = komi
        if self.engine.go and komi != learned:
            from az_mpi.games import go_positions

            if not self._is_told:
                print(
                    f"komi {komi:g}: it counts, but the network learned with {learned:g}", file=sys.stderr, flush=True
                )
            self._is_told = True
            self.engine.session.use_game(go_positions.with_komi(self.engine.go, komi))

    def komi_again(self) -> None:
        """Let the komi that a client has set count in the engine's session, which is another one now."""
        if self._komi is not None:
            self._set_komi(self._komi)

    def _set_rules(self, words):
        text = " ".join(words).strip()
        given: object = text
        with suppress(ValueError):
            given = json.loads(text)
        if not given or not counts_by_area(given):
            raise GtpError("unsupported rules: the network counts by area, with positional superko and without suicide")

    def _fixed_handicap(self, num):
        from az_mpi.games import go_positions

        game = self._empty_board()
        points = go_positions.fixed_handicap(game.rows, num)
        if not points:
            raise GtpError("invalid number of stones")
        return self._place([game.cell_name(point) for point in points])

    def _place_free_handicap(self, num):
        """Place stones where the network likes Black to play them, one after the other."""
        from az_mpi.games import go_positions

        game = self._empty_board()
        if not 2 <= num < game.cells:
            raise GtpError("invalid number of stones")
        points = go_positions.fixed_handicap(game.rows, min(num, 9))
        state = game.initial(1)[0]
        chosen: list[int] = []
        for k in range(num):
            legal = game.legal(state[None])[0][:-1]
            legal[chosen] = False
            logits, _ = self.engine.session.player.evaluate(state[None])
            best = int((logits[0][:-1] - 1e9 * ~legal).argmax())
            chosen.append(points[k] if k < len(points) else best)
            state = go_positions.turned(game, game.play(state[None], chosen[-1:])[0], 0)
        return self._place([game.cell_name(point) for point in chosen])

    def _set_free_handicap(self, words):
        game = self._empty_board()
        points = [self.engine.vertices.point(word) for word in words]
        if not 2 <= len(points) < game.cells or -1 in points or len(set(points)) < len(points):
            raise GtpError("bad vertex list")
        self._place([game.cell_name(point) for point in points])

    def _empty_board(self):
        engine = self.engine
        if not engine.go:
            raise GtpError("only Go has a handicap")
        if engine.made or engine.placed:
            raise GtpError("board not empty")
        return engine.go

    def _place(self, vertices):
        """Put stones of Black on the board; White moves next. Return their vertices."""
        self._set_up([(0, vertex) for vertex in vertices], 1)
        return " ".join(vertices)

    def _set_up(self, stones, to_play):
        """Put stones on the board before the first move. Raises GtpError."""
        engine = self.engine
        for player, vertex in stones:
            engine.play(player, vertex)
        engine.placed, engine.made = [*engine.placed, *engine.made], []
        if engine.go:
            engine.session.restart(engine.turned(to_play))

    def _load(self, words):
        """Load the main line of a file, up to before the move with a number."""
        engine = self.engine
        if not 1 <= len(words) <= 2:
            raise GtpError("syntax error")
        [most] = read_all([whole], words[1:]) if words[1:] else [10**9]
        try:
            loaded = gtp_sgf.read(files.read(words[0]).decode("utf-8", "replace"))
        except (OSError, ValueError) as error:
            raise GtpError(f"cannot load file: {getattr(error, 'strerror', None) or error}") from None
        self._expect_fitting(loaded.tags)
        before = engine.session.states[:], engine.session.actions[:], engine.made[:], engine.placed[:]
        try:
            engine.clear_board()
            self._replay(loaded, most)
        except GtpError as error:
            engine.session.restore(before[0], before[1])
            engine.made, engine.placed = before[2], before[3]
            raise GtpError(f"cannot load file: {error}") from None
        with suppress(ValueError, GtpError):
            if (komi := sgf_words.komi(loaded.tags)) is not None:
                self._set_komi(komi)
        return ""

    def _expect_fitting(self, tags):
        game = self.engine.session.game
        if not game.sgf_number or tags.get("GM", "1") != str(game.sgf_number) and "GM" in tags:
            raise GtpError("cannot load file: it is of another game")
        if size := sgf_words.other_size(tags, game):
            raise GtpError(f"cannot load file: the board is of size {escape(size)[:20]}")

    def _replay(self, loaded, most):
        engine = self.engine
        if loaded.stones:
            if not engine.go:
                raise GtpError("stones are set up, which only Go has here")
            first = loaded.moves[0][0] if loaded.moves else 1
            self._set_up(
                [(player, self._vertex(point)) for player, point in loaded.stones],
                first if loaded.to_play is None else loaded.to_play,
            )
        for player, point in loaded.moves[: max(most - 1, 0)]:
            engine.play(player, self._vertex(point))

    def _vertex(self, point):
        engine = self.engine
        return gtp_sgf.vertex(point, engine.session.game, engine.vertices.names())

    def _print(self, words):
        engine = self.engine
        game = engine.session.game
        if len(words) > 1:
            raise GtpError("syntax error")
        if not game.sgf_number:
            raise GtpError("SGF has no form for this game")
        tags = sgf_words.properties(game)
        if hasattr(game, "komi"):
            tags["KM"] = f"{self.komi:g}"
        if len(engine.placed) > 1 and all(made.player == 0 for made in engine.placed):
            tags["HA"] = len(engine.placed)
        if engine.session.over:
            tags["RE"] = self._final_score()
        stones, moves = (
            [(made.player, self._point(made.vertex)) for made in row] for row in (engine.placed, engine.made)
        )
        text = gtp_sgf.write(tags, stones, moves)
        if not words:
            return "\n" + text
        try:
            files.create(words[0], text.encode())
        except OSError as error:
            raise GtpError(f"cannot write file: {error.strerror or error}") from None
        return ""

    def _point(self, vertex):
        """Return the point of SGF for a vertex."""
        game = self.engine.session.game
        if vertex.lower() == PASS:
            return ""
        names = {name.lower(): cell for cell, name in self.engine.vertices.names().items()}
        cell = -1 if getattr(game, "edges", ()) else names.get(vertex.lower(), -1)
        return vertex if cell < 0 else sgf_words.point(game, cell)

    def _final_score(self):
        session = self.engine.session
        lead = session.game.lead(session.state[None])
        points = session.result if lead is None else float(lead[0])
        if points is None:
            raise GtpError("cannot score: the game is not over")
        if not self.engine.go and hasattr(session.game, "komi") and self._komi is not None and lead is not None:
            points += session.game.komi - self._komi
        return f"{'B' if points > 0 else 'W'}+{abs(points):g}" if points and math.isfinite(points) else "0"

    def _final_status_list(self, status):
        if status not in ("alive", "dead", "seki"):
            raise GtpError("invalid status")
        if not self.engine.go or status != "alive":  # counting by area takes all stones on the board for alive
            return ""
        game, board = self.engine.go, self.engine.session.game.board(self.engine.session.state)
        return " ".join(
            game.cell_name(row * game.columns + column)
            for row, column in board.cells()
            if board.players[row, column] >= 0
        )
