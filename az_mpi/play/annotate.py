"""The games of a file with what a search thinks of each position, as `analyse --file A --output B` writes them."""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from az_mpi.core import files
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, escape
from az_mpi.games import go, go_positions
from az_mpi.games.base import Game
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.pool import Pool, Position
from az_mpi.records import game_files
from az_mpi.records.game_records import GameRecord, Thought, can_tell, check_new, check_suffix, texts
from az_mpi.records.recorded_games import BEST_MAX, games_of
from az_mpi.records.replaying import MoveWords, replay
from az_mpi.records.written_game import WrittenGame
from az_mpi.selfplay.record import POLICY, Record

PART_BYTES = 2**18  # of a file whose games are analysed together
TELL_EVERY_S = 5.0
SHOWN_MAX = 10  # games left out that are shown
ANNOTATOR = {".pgn": "Annotator", ".sgf": "AN"}  # the tag that names who wrote the comments


def annotate(player: LoadedPlayer, visits: int, at_once: int, source: Path, output: Path) -> str:
    """Analyse all games of a file and write them, in order, to a new one; return in words what was done.

    visits: simulations in each position. at_once: positions that are searched together. A game that is broken off is
    taken as it is; one with an illegal move is left out, and standard error says why. Raises Refusal if there is no
    game in the file, or `output` cannot be written."""
    check_suffix(output, player.game)
    check_new(output)
    file = game_files.look(source)
    if file.fault:
        raise Refusal(f"{source}: {file.fault}")
    annotator = _Annotator(player, visits, at_once, file, output.suffix)
    num = 0
    with files.whole_file(output) as temporary, open(temporary, "w", encoding="utf-8") as stream:
        for record in annotator.games():
            stream.writelines(texts(output.suffix, player.game, [record], num + 1))
            num += 1
        if not num:
            raise Refusal(f"{source}: no game of {player.game.name} could be read, as the lines above say")
    left_out = f"; {counted(annotator.num_left_out, 'game')} left out" if annotator.num_left_out else ""
    return f"{annotator.so_far()} in {output}{left_out}"


class _Annotator:
    def __init__(self, player: LoadedPlayer, visits: int, at_once: int, file: game_files.GameFile, suffix: str):
        self.player, self.visits, self.at_once, self.file, self.suffix = player, visits, at_once, file, suffix
        self.num_games = self.num_positions = self.num_left_out = 0
        self._pools: dict[float | None, tuple[Game, Pool]] = {}  # by komi; None: the game's own
        self._begun = self._told = time.monotonic()

    def so_far(self) -> str:
        """Return how many games and positions have been analysed, and how fast."""
        rate = self.num_positions / max(time.monotonic() - self._begun, 1e-9)
        return f"{counted(self.num_games, 'game')}, {counted(self.num_positions, 'position')}, {rate:,.0f} positions/s"

    def games(self) -> Iterator[GameRecord]:
        """Yield the games of the file that the rules allow, analysed. Raises OSError."""
        read, number = game_files.FORMATS[self.file.format].read, 0
        for unit in game_files.units([self.file.num_bytes], PART_BYTES):
            for part in unit:
                written = [
                    WrittenGame(fault=fault) if fault else read(text, self.player.game)
                    for text, fault in game_files.games_in(self.file, part)
                ]
                yield from self._analysed(written, number)
                number += len(written)

    def _analysed(self, written: Sequence[WrittenGame], number: int) -> Iterator[GameRecord]:
        """Yield these games, in order. number: of the games of the file before them."""
        by_komi: dict[float | None, list[int]] = {}
        for k, one in enumerate(written):
            by_komi.setdefault(self._komi(one), []).append(k)
        found: dict[int, GameRecord] = {}
        for komi, places in by_komi.items():
            game, pool = self._pool(komi)
            record, faults = replay(game, [written[k] for k in places], MoveWords(game), unfinished=True)
            for k, fault in zip(places, faults):
                if fault:
                    self._leave_out(number + k + 1, fault)
            taken = [k for k, fault in zip(places, faults) if not fault]
            for k, analysed in zip(taken, self._search(game, pool, record)):
                if can_tell(self.suffix, analysed):
                    found[k] = self._with_tags(analysed, written[k])
                else:
                    self._leave_out(number + k + 1, f"begins at another position, which {self.suffix} cannot tell")
        for k in sorted(found):
            yield found[k]

    def _komi(self, one):
        """Return the komi that a game's file gives it; None for the game's own."""
        if not isinstance(self.player.game, go.Rules):
            return None
        try:
            komi = float(one.tags.get("KM", "nan"))
        except ValueError:
            return None
        return komi if math.isfinite(komi) else None

    def _pool(self, komi):
        if komi not in self._pools:
            game = self.player.game if komi is None else go_positions.with_komi(self.player.game, komi)
            here = LoadedPlayer(game, self.player.engine, self.player.settings, self.player.evaluator)
            self._pools[komi] = (game, Pool(here, self.at_once, self._done))
        return self._pools[komi]

    def _search(self, game: Game, pool: Pool, record: Record) -> Iterator[GameRecord]:
        """Search all positions of a record, with those at the end of its games; yield its games."""
        record.games["id"], record.games["rank"] = np.arange(len(record.games)), 0
        positions = [Position(row["state"], int(row["ply"]), self.visits) for row in record.positions]
        ends = np.cumsum(record.games["length"]) - 1
        last_states = game.play(record.positions["state"][ends], record.positions["action"][ends])
        plies = record.positions["ply"][ends].astype(int) + 1
        last = {}
        for k, (state, ply) in enumerate(zip(last_states, plies.tolist())):
            if not game.terminal_at(state[None], ply)[0][0]:
                last[k] = Position(state, ply, self.visits)
        pool.add([*positions, *last.values()])
        while len(pool):
            pool.step()
        shares = [_shares(position) for position in positions]
        record.positions["root_value"] = [position.value for position in positions]
        record.positions["policy_count"] = [len(part) for part in shares]
        record = replace(record, policy=np.concatenate([np.zeros(0, POLICY), *shares]))
        for k, one in enumerate(games_of(game, record, record.games["id"])):
            self.num_games += 1
            yield one._replace(thoughts=[*one.thoughts, _thought(last[k])]) if k in last else one

    def _done(self, position):
        self.num_positions += 1
        if time.monotonic() > self._told + TELL_EVERY_S:
            self._told = time.monotonic()
            print(f"  {self.so_far()}", file=sys.stderr, flush=True)

    def _with_tags(self, analysed, written):
        """Return an analysed game with what its file tells about it."""
        name = ANNOTATOR.get(self.suffix)
        tags = {name: "az_mpi"} if name else {}
        if self.suffix == f".{self.file.format}":
            tags = dict(written.tags) | tags
        return analysed._replace(names=tuple(written.names) or ("?", "?"), event="?", tags=tags)

    def _leave_out(self, number, fault):
        self.num_left_out += 1
        if self.num_left_out <= SHOWN_MAX:
            print(f"left out: {self.file.path}: game {number}: {escape(fault)}", file=sys.stderr, flush=True)


def _shares(position: Position) -> np.ndarray:
    """Return the search's policy in a position, POLICY [moves that have a share]."""
    return np.array([(move.action, move.share) for move in position.moves if move.share > 0], POLICY)


def _thought(position: Position) -> Thought:
    best = sorted(_shares(position).tolist(), key=lambda pair: -pair[1])[:BEST_MAX]
    return Thought(position.value, tuple(best))
