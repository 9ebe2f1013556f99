"""python -m az_mpi analyse RUN: analyse many positions at a time, by the lines of JSON of KataGo's analysis engine."""

import functools
import itertools
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi import __version__
from az_mpi.core import files
from az_mpi.core.arguments import whole
from az_mpi.core.exit_codes import DONE
from az_mpi.core.problems import Refusal, escape, refusal_of
from az_mpi.play.options import end_on_interrupt, expect_two_players, make_parser
from az_mpi.player.network_paths import find_network

if TYPE_CHECKING:
    from az_mpi.play.analysis_query import Query
    from az_mpi.player.loaded_player import LoadedPlayer
    from az_mpi.player.pool import Pool, Position

PROG = "python -m az_mpi analyse"
ABOUT = "Analyse positions of a game, many at a time, as KataGo's analysis engine does."
EPILOG = """\
It reads queries from standard input, one a line, and writes answers to standard output. With --file it analyses every
position of a game in SGF or PGN, or of moves as words, instead. With --output too, it writes all games of the file
again, with the value and the best moves of each position as comments. docs/play.md explains the fields.
"""
LINE_BYTES_MAX = 2**24
SIDES = ("black", "white", "sidetomove")
SLOTS = 64


def main(arguments: list[str]) -> int:
    """Answer the queries on standard input; return the exit status. Raises Refusal."""
    parser = make_parser(PROG, ABOUT, EPILOG, timed=False)
    parser.add_argument("--file", metavar="FILE", type=Path, help="analyse the game in FILE instead of queries")
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="with --file: write its games with comments to FILE.pgn, FILE.sgf or FILE.jsonl, which must not exist",
    )
    parser.add_argument(
        "--at_once",
        type=whole(4096),
        default=SLOTS,
        metavar="N",
        help=f"positions at a time ({SLOTS} by default), fewer if their trees would take more than 512 MiB",
    )
    parser.add_argument(
        "--report_as", choices=SIDES, default=SIDES[0], help="whose winning rates answers report (black by default)"
    )
    given = parser.parse_args(arguments)
    if given.output and not given.file:
        parser.error("--output writes the games of --file FILE, which is missing")
    content = _content(given.file, bool(given.output)) if given.file else None
    from az_mpi.player.loaded_player import load_player

    print(f"loading {given.run} ({given.checkpoint}) ...", file=sys.stderr, flush=True)
    player = load_player(find_network(given.run, given.checkpoint))
    expect_two_players(player.game, "analyse")
    visits = given.simulations or player.settings.simulations
    if given.output:
        from az_mpi.play.annotate import annotate

        print(annotate(player, visits, given.at_once, given.file, given.output))
        return DONE
    own = player.game
    player = player.with_game(own.untruncated())
    analyser = Analyser(player, visits, given.at_once, given.report_as, _write)
    end_on_interrupt()
    if content is not None:
        from az_mpi.play import analysis_file

        if not analyser.take(json.dumps(analysis_file.query(given.file, content, own))):
            raise Refusal(f"{given.file}: this game cannot be analysed, as the line above says")
        analyser.finish()
        return DONE
    analyser.serve(_lines())
    return DONE


def _content(path, in_parts):
    """Return the text of a file, "" if it is read in parts later. Raises Refusal if it cannot be read."""
    target = os.path.realpath(path)  # a user's own link is followed
    try:
        if in_parts:
            os.close(files.open_plain(target))
            return ""
        return files.read(target).decode("utf-8", "replace")
    except OSError as error:
        raise refusal_of(error)(f"{escape(str(path))} cannot be read: {error.strerror}") from error


def _write(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _lines() -> "queue.SimpleQueue[str | None]":
    """Return a queue that gets the lines of standard input, and None at its end."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read():
        for line in iter(functools.partial(sys.stdin.buffer.readline, LINE_BYTES_MAX), b""):
            lines.put(line.decode("utf-8", "replace"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


class Analyser:
    """Answers queries about positions of one game.

    visits: of a query without maxVisits. at_once: positions that are searched together. report_as: of SIDES. write:
    sends an answer."""

    def __init__(
        self, player: "LoadedPlayer", visits: int, at_once: int, report_as: str, write: Callable[[dict[str, Any]], None]
    ):
        from az_mpi.play.analysis_query import Reader

        self.player, self.at_once, self.report_as, self.write = player, at_once, report_as, write
        self._reader = Reader(player.game, visits)
        self._pools: dict[Any, Pool] = {}  # by komi, and by number for searches of some moves alone
        self._numbers = itertools.count()
        self._reports: dict[str, float] = {}  # {id of a query: when its next report during the search is due}

    def serve(self, lines: "queue.SimpleQueue[str | None]") -> None:
        """Answer until the end of input; then finish what has been asked for."""
        is_open = True
        while is_open:
            try:
                line = lines.get(block=not self._is_busy())
            except queue.Empty:
                self.step()
                continue
            is_open = line is not None
            if line and line.strip():
                self.take(line)
        self.finish()

    def finish(self) -> None:
        """Search until all that was asked for is answered."""
        while self._is_busy():
            self.step()

    def _is_busy(self):
        return any(len(pool) for pool in self._pools.values())

    def step(self) -> None:
        """Run one simulation in each search under way."""
        # Of those with a komi of their own, or of some moves alone, which share no batches, one is under way at a time:
        # each takes memory for trees.
        turn = next((key for key in self._pools if key is not None), None)
        for key in [key for key in dict.fromkeys((None, turn)) if key in self._pools]:
            pool = self._pools[key]
            try:
                pool.step()
            except MemoryError:
                pool = self._without_largest(key)
            if not len(pool) and key is not None:
                del self._pools[key]
        now = time.monotonic()
        if self._reports and any(due <= now for due in self._reports.values()):
            self._report(now)

    def _without_largest(self, key):
        """Answer that there is no memory for the positions of a pool with most visits; return a new pool for the others
        of it."""
        pool = self._pools[key]
        positions = pool.all()
        most = max(position.visits for position in positions)
        for position in positions:
            if position.visits == most:
                query, turn = position.about
                error = {"error": f"there is not enough memory for a search of {most} visits", "field": "maxVisits"}
                self.write(error | {"id": query.id, "turnNumber": turn.number})
        self._pools[key] = pool.emptied()
        self._pools[key].add([position for position in positions if position.visits < most])
        return self._pools[key]

    def take(self, line: str) -> bool:
        """Take a query; return whether it has been understood. Errors are answers."""
        from az_mpi.play.analysis_query import QueryError

        given: Any = None
        try:
            given = json.loads(line)
            if not isinstance(given, dict) or not isinstance(given.get("id"), str):
                raise QueryError("a query is a JSON object with a text as its id", "id")
            if "action" in given:
                self._act(given)
            else:
                self._begin(self._reader.read(given))
            return True
        except (QueryError, ValueError, RecursionError) as error:
            known = {"field": error.field} if isinstance(error, QueryError) else {}
            self.write({"error": str(error)} | known | self._id_of(given))
        except Exception as error:  # an error in a game's rules: the next queries are answered
            traceback.print_exc()
            self.write({"error": f"internal error: {type(error).__name__}"} | self._id_of(given))
        return False

    def _id_of(self, given):
        return {"id": given["id"]} if isinstance(given, dict) and isinstance(given.get("id"), str) else {}

    def _begin(self, query: "Query") -> None:
        from az_mpi.player.pool import Position

        for message, field in query.warnings:
            self.write({"warning": message, "field": field, "id": query.id})
        if query.every_s:
            self._reports[query.id] = time.monotonic() + query.every_s
        for turn in query.turns:
            pool = self._pool(query.komi, turn)
            game = self._game(query.komi)
            position = Position(turn.state, turn.plies, query.visits, turn.priority, (query, turn))
            if game.terminal_at(turn.state[None], turn.plies)[0][0]:
                self.write(self._answer(position, is_last=True))
            else:
                pool.add([position])

    def _game(self, komi):
        """Return the game with a komi; None for its own."""
        from az_mpi.games import go, go_positions

        game = self.player.game
        return go_positions.with_komi(game, komi) if komi is not None and isinstance(game, go.Rules) else game

    def _pool(self, komi, turn):
        """Return where a position is searched: with all of its komi, or by itself if only some moves are looked at."""
        from az_mpi.player.pool import CACHE_BYTES, Pool
        from az_mpi.player.restricted_game import restricted

        game = self._game(komi)
        key = (next(self._numbers),) if turn.actions else komi
        if key not in self._pools:
            if turn.actions:
                game = restricted(game, turn.state, turn.actions)
            at_once, cache_bytes = (1, 0) if turn.actions else (self.at_once, CACHE_BYTES)
            self._pools[key] = Pool(self.player.with_game(game), at_once, self._done, cache_bytes)
        return self._pools[key]

    def _done(self, position: "Position") -> None:
        self.write(self._answer(position, is_last=True))

    def _report(self, now):
        """Write what was found so far about the positions of queries for which that is due."""
        due = {name for name, at in self._reports.items() if at <= now}
        under_way = set()
        for pool in self._pools.values():
            for position in pool.look():
                query, _ = position.about
                under_way.add(query.id)
                if query.id in due and position.moves:
                    self.write(self._answer(position, is_last=False))
                    self._reports[query.id] = now + query.every_s
        for name in due - under_way:
            if not any(position.about[0].id == name for pool in self._pools.values() for position in pool.waiting):
                del self._reports[name]

    def _act(self, given):
        """Do an action of KataGo's: query_version, query_models, clear_cache, terminate, terminate_all."""
        action = given["action"]
        if action == "query_version":
            self.write(given | {"version": __version__, "git_hash": ""})
        elif action == "query_models":
            self.write(given | {"models": [{"name": self.player.game.name, "version": 1}]})
        elif action == "clear_cache":
            self.write(given)
        elif action in ("terminate", "terminate_all"):
            self._terminate(given)
            self.write(given)
        else:
            from az_mpi.play.analysis_query import QueryError

            raise QueryError("unknown action", "action")

    def _terminate(self, given):
        turns = given.get("turnNumbers")

        def is_meant(position):
            query, turn = position.about
            named = given["action"] == "terminate_all" or query.id == given.get("terminateId")
            return named and (turns is None or turn.number in turns)

        for pool in self._pools.values():
            for position in pool.remove(is_meant):
                self.write(self._answer(position, is_last=True, none=not position.moves))

    def _answer(self, position: "Position", is_last: bool, none: bool = False) -> dict[str, Any]:
        query, turn = position.about
        answer = {"id": query.id, "isDuringSearch": not is_last, "turnNumber": turn.number}
        if none:
            return answer | {"noResults": True}
        game, state = self._game(query.komi), turn.state
        mover = int(game.to_play(state[None])[0])
        ended, result = game.terminal_at(state[None], turn.plies)
        value = float(result[0]) if ended[0] else position.value
        sign = {"black": 1 - 2 * mover, "white": 2 * mover - 1}.get(self.report_as, 1)
        answer["rootInfo"] = {
            "currentPlayer": "BW"[mover],
            "visits": position.simulations,
            "winrate": _rate(sign * value),
            "utility": sign * value,
            "thisHash": f"{int(game.key(state[None])[0]):016X}",
            "symHash": f"{int(game.canonical_key(state[None])[0][0]):016X}",
            "isOver": bool(ended[0]),
        }
        answer["moveInfos"] = list(self._move_infos(position, query, state, sign))
        if query.policy and position.moves:
            policy = [-1.0] * game.num_actions
            for move in position.moves:
                policy[move.action] = move.prior
            answer["policy"] = policy
        return answer

    def _move_infos(self, position, query, state, sign) -> Iterator[dict[str, Any]]:
        tried = [move for move in position.moves if move.visits]
        for order, move in enumerate(tried):
            yield {
                "move": self._reader.vertices.of(state, move.action),
                "visits": move.visits,
                "edgeVisits": move.visits,
                "winrate": _rate(sign * move.value),
                "utility": sign * move.value,
                "prior": move.prior,
                "order": order,
                "isProven": move.exact,
                "pv": self._reader.vertices.line(state, move.variation[: query.line]),
            }


def _rate(value: float) -> float:
    """Return the winning rate in [0, 1], where a draw is half a win."""
    return (value + 1) / 2
