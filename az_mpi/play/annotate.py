"""The games of a file with what a search thinks of each position, as `analyse --file A --output B` writes them."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from az_mpi.core import files
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, escape, refusal_of
from az_mpi.games import go, go_positions
from az_mpi.games.base import Game
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.pool import Pool, Position
from az_mpi.records import game_files, sgf_words
from az_mpi.records.game_records import GameRecord, Thought, can_tell, check_new, check_suffix, texts
from az_mpi.records.recorded_games import BEST_MAX, games_of
from az_mpi.records.replaying import MoveWords, replay
from az_mpi.records.written_game import WrittenGame
from az_mpi.selfplay.record import POLICY, Record

PART_BYTES = 2**18  # of a file whose games are analysed together
TELL_EVERY_S = 5.0
SHOWN_MAX = 10  # games left out that are shown
ANNOTATOR = {".pgn": "Annotator", ".sgf": "AN"}  # the tag that names who wrote the comments
TAGS = {"Event": "EV", "Site": "PC", "Date": "DT", "Round": "RO", "Komi": "KM"}  # of PGN, as SGF names them
UNKNOWN = ("", "?", "-", "????.??.??")


def annotate(player: LoadedPlayer, visits: int, at_once: int, source: Path, output: Path) -> str:
    """Analyse all games of a file and write them, in order, to a new one; return in words what was done.

    visits: simulations in each position. at_once: positions that are searched together. A game without a result is
    taken as it is; standard error names the first SHOWN_MAX games that are left out, with the reasons. Raises Refusal
    if no game is left, or where a file cannot be read or written."""
    check_suffix(output, player.game)
    check_new(output)
    file = game_files.look(source)
    if file.fault:
        raise Refusal(f"{source}: {file.fault}")
    annotator = _Annotator(player, visits, at_once, file, output.suffix)
    try:
        with files.whole_file(output) as temporary:
            with open(temporary, "w", encoding="utf-8", errors="replace") as stream:
                for game, record in annotator.games():
                    stream.writelines(texts(output.suffix, game, [record], annotator.num_games))
            if not annotator.num_games:
                why = ", as the lines above say" if annotator.num_left_out else ""
                raise Refusal(f"{source}: no game of {player.game.name} could be read{why}")
    except OSError as error:
        raise refusal_of(error)(f"{error.filename or output}: {error.strerror}; nothing was written") from error
    left_out = f"; {counted(annotator.num_left_out, 'game')} left out" if annotator.num_left_out else ""
    return f"{annotator.so_far()} in {output}{left_out}"


class _Annotator:
    def __init__(self, player: LoadedPlayer, visits: int, at_once: int, file: game_files.GameFile, suffix: str):
        self.player, self.visits, self.at_once, self.file, self.suffix = player, visits, at_once, file, suffix
        self.num_games = self.num_positions = self.num_left_out = 0
        self._read = game_files.FORMATS[file.format].read
        self._begun = self._told = time.monotonic()

    def so_far(self) -> str:
        """Return how many games and positions have been analysed, and how fast."""
        rate = self.num_positions / max(time.monotonic() - self._begun, 1e-9)
        return f"{counted(self.num_games, 'game')}, {counted(self.num_positions, 'position')}, {rate:,.0f} positions/s"

    def games(self) -> Iterator[tuple[Game, GameRecord]]:
        """Yield (the rules by which a file tells the game, the game) of the games that the rules allow, analysed.
        Raises OSError."""
        number = 0
        for unit in game_files.units([self.file.num_bytes], PART_BYTES):
            for part in unit:
                written = [
                    WrittenGame(fault=fault) if fault else self._written(text)
                    for text, fault in game_files.games_in(self.file, part)
                ]
                for found in self._analysed(written, number):
                    self.num_games += 1
                    yield found
                number += len(written)

    def _written(self, text):
        """Return the game in a text, its result counted with its own komi; with its fault, if it cannot be told."""
        one = self._read(text, self.player.game)
        try:
            komi = self._komi(one)
        except ValueError:
            return one._replace(fault="its komi cannot be counted")
        if komi is not None and not one.fault:
            one = self._read(text, self._own_game(komi))
        return one if can_tell(self.suffix, one.start) else one._replace(fault=self._elsewhere())

    def _elsewhere(self):
        return f"begins at another position, which {self.suffix} cannot tell"

    def _komi(self, one):
        """Return the komi that a game's file gives it; None for the game's own. Raises ValueError."""
        game = self.player.game
        komi = sgf_words.komi(one.tags) if isinstance(game, go.Rules) else None
        if komi is None:
            return None
        if not (abs(komi) <= game.num_actions and (2 * komi).is_integer()):
            raise ValueError
        return None if komi == game.komi else komi

    def _own_game(self, komi):
        """Return the run's own game with a komi; None: as it is."""
        return self.player.game if komi is None else go_positions.with_komi(self.player.game, komi)

    def _analysed(self, written: Sequence[WrittenGame], number: int) -> Iterator[tuple[Game, GameRecord]]:
        """Yield these games, in order, see `games`. number: of the games of the file before them."""
        by_komi: dict[float | None, list[int]] = {}
        for k, one in enumerate(written):
            by_komi.setdefault(None if one.fault else self._komi(one), []).append(k)
        found: dict[int, tuple[Game, GameRecord]] = {}
        for komi, places in by_komi.items():
            own = self._own_game(komi)
            rules = own.untruncated()
            record, faults = replay(rules, [written[k] for k in places], MoveWords(rules), unfinished=True)
            taken = [k for k, fault in zip(places, faults) if not fault]
            # The other formats have the game's name, which has to stay that of the run, though it has a komi in it.
            told = own if self.suffix == ".sgf" else self.player.game
            for k, analysed in zip(taken, self._search(rules, record) if taken else ()):
                if analysed is None:
                    faults[places.index(k)] = self._elsewhere()
                else:
                    found[k] = told, self._with_tags(analysed, written[k])
            for k, fault in zip(places, faults):
                if fault:
                    self._leave_out(number + k + 1, fault)
        for k in sorted(found):
            yield found[k]

    def _search(self, game: Game, record: Record) -> Iterator[GameRecord | None]:
        """Search all positions of a record, with those at the end of its games; yield its games, see `games_of`."""
        record.games["id"], record.games["rank"] = np.arange(len(record.games)), 0
        positions = [Position(row["state"], int(row["ply"]), self.visits) for row in record.positions]
        ends = np.cumsum(record.games["length"]) - 1
        last_states = game.play(record.positions["state"][ends], record.positions["action"][ends])
        plies = record.positions["ply"][ends].astype(int) + 1
        last = {}
        for k, (state, ply) in enumerate(zip(last_states, plies.tolist())):
            if not game.terminal_at(state[None], ply)[0][0]:
                last[k] = Position(state, ply, self.visits)
        pool = Pool(self.player.with_game(game), self.at_once, self._done)
        pool.add([*positions, *last.values()])
        while len(pool):
            pool.step()
        shares = [_shares(position) for position in positions]
        record.positions["root_value"] = [position.value for position in positions]
        record.positions["policy_count"] = [len(part) for part in shares]
        record = replace(record, policy=np.concatenate([np.zeros(0, POLICY), *shares]))
        for k, one in enumerate(games_of(game, record, record.games["id"])):
            if one and k in last:  # nobody knows how it ended
                one = one._replace(thoughts=[*one.thoughts, _thought(last[k])], note=None)
            yield one

    def _done(self, position):
        self.num_positions += 1
        if time.monotonic() > self._told + TELL_EVERY_S:
            self._told = time.monotonic()
            print(f"  {self.so_far()}", file=sys.stderr, flush=True)

    def _with_tags(self, analysed, written):
        """Return an analysed game with what its file tells about it."""
        same = self.suffix == f".{self.file.format}"
        tags = dict(written.tags) if same else {name: one for name, one in self._renamed(written.tags)}
        if self.suffix == ".pgn":
            tags = {"Event": "?", "Date": "????.??.??"} | tags
        if name := ANNOTATOR.get(self.suffix):
            tags[name] = "az_mpi"
        names = [" ".join(name.split()) or "?" for name in written.names]
        names = (*names, "?", "?")[:2]
        return analysed._replace(names=names, event=tags.get("Event", "?"), tags=tags)

    def _renamed(self, tags):
        """Yield (name, text) of the tags that the format of the output has under another name."""
        for pgn, sgf in TAGS.items():
            text = tags.get(sgf if self.file.format == "sgf" else pgn, "")
            if text not in UNKNOWN:
                yield (sgf if self.suffix == ".sgf" else pgn), text

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
