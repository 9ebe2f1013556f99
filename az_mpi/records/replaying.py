"""Plays games of files again by the rules, many at a time, and makes rows of them as self-play does.

Shapes: n games under way, S numbers a state, A actions, P players.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from az_mpi.core.players import from_mover, of_players
from az_mpi.games.base import CHANCE, Game
from az_mpi.records.pgn_reader import NOTES
from az_mpi.records.written_game import WrittenGame
from az_mpi.selfplay.record import CHANCE_MOVE, POLICY, Record, game_dtype, position_dtype
from az_mpi.storage.imports import RANK

_NUMBERED = re.compile(r"#(\d{1,9})", re.ASCII)  # an action by its number
SHOWN_MAX = 24  # characters of a move in a message


class MoveWords:
    """Finds the actions that words name. A game may know a faster way, `texts_to_actions(states [n, S], words)`, which
    returns int [n], -1 where a word names no legal action.

    Otherwise words are remembered with the actions that they have named: in most games a word names the same action
    everywhere, and in the others it is one of few."""

    def __init__(self, game: Game):
        self.game = game
        self._fast = getattr(game, "texts_to_actions", None)
        self._known: dict[str, list[int]] = {}
        self._known_outcomes: dict[str, list[int]] = {}

    def find(self, states: np.ndarray, words: Sequence[str]) -> np.ndarray:
        """Return the legal actions of states, [n, S], that words name, int64 [n]; -1 where there is none. A word "#12"
        is action 12."""
        if self._fast is not None and not words[0].startswith("#"):
            actions = np.asarray(self._fast(states, words), np.int64)
            for i in np.flatnonzero(actions < 0):
                actions[i] = self._by_rules(states[i], self.game.legal(states[i : i + 1])[0], words[int(i)])
            return actions
        legal = self.game.legal(states)
        return np.array([self._find(*row) for row in zip(states, legal, words)], np.int64)

    def find_outcomes(self, states: np.ndarray, words: Sequence[str]) -> np.ndarray:
        """Return the outcomes of chance that words name in states, [n, S], where it is chance's move, int64 [n]; -1
        where no outcome of this name is possible."""
        return np.array([self._outcome(*row) for row in zip(states, self.game.chances(states) > 0, words)], np.int64)

    def _outcome(self, state, possible, word):
        known = self._known_outcomes.setdefault(word, [])
        for outcome in (*known, *np.flatnonzero(possible).tolist()):
            if possible[outcome] and self.game.outcome_to_text(state, outcome) == word:
                known += [] if outcome in known else [outcome]
                return outcome
        return -1

    def _find(self, state, legal, word):
        if _NUMBERED.fullmatch(word):
            return self._by_rules(state, legal, word)
        known = self._known.setdefault(word, [])
        for action in known:
            if legal[action] and self.game.action_to_text(state, action) == word:
                return action
        texts = {action: self.game.action_to_text(state, action) for action in np.flatnonzero(legal).tolist()}
        if named := [action for action, text in texts.items() if text == word]:
            known.append(named[0])
            return named[0]
        bare = word.rstrip("!?")
        for alike in (lambda text: text == bare, lambda text: _without_notes(text) == _without_notes(word)):
            named = [action for action, text in texts.items() if alike(text)]
            if len(named) == 1:
                return named[0]
        return self._by_rules(state, legal, word)

    def _by_rules(self, state, legal, word):
        """Return the legal action that a word names by its number, or as the game reads it; -1 if there is none."""
        try:
            numbered = _NUMBERED.fullmatch(word)
            action = int(numbered[1]) if numbered else self.game.text_to_action(state, word)
        except ValueError:
            return -1
        return action if action < len(legal) and legal[action] else -1


def _without_notes(word):
    """Return a word without signs such as those of a check, which may be missing in a file; they are a part of the move
    in some games, as `+` of a promotion in shogi."""
    return word.rstrip(NOTES) or word


def replay(
    game: Game, written: Sequence[WrittenGame], words: MoveWords, unfinished: bool = False
) -> tuple[Record, list[str]]:
    """Return (the games that the rules allow, as a record without ids, in order; why each game is left out, "" if it is
    taken). In place of its id a move of chance has the number of its game in the record. unfinished: whether games
    without a result are taken too; their outcome is NaN."""
    return _Replay(game, written, words, unfinished).result()


class _Replay:
    def __init__(self, game: Game, written: Sequence[WrittenGame], words: MoveWords, unfinished: bool):
        self.game, self.written, self.words, self.unfinished = game, written, words, unfinished
        self.faults = [one.fault or ("" if one.words else "no moves") for one in written]
        self.totals = np.array([len(one.words) for one in written], np.int64)  # of moves, passes that are put in too
        self.says_players = any(one.players for one in written)
        self.moves = [list(one.words) for one in written]
        self.passes: list[list[int]] = [[] for _ in written]  # of each that is put in: the moves of the file before it
        self.outcome = np.zeros((len(written), game.num_players), np.float32)
        self.score = np.zeros(len(written), np.float32)
        self.num_rows = np.zeros(len(written), np.int64)  # positions in which a player has moved
        # Of each ply: (game numbers [n], states [n, S], actions [n], players [n], the positions before [n], the ply).
        self._rows: list[tuple] = []
        self._drawn: list[tuple] = []  # of each ply: (game numbers [n], outcomes [n], the ply)

    def result(self) -> tuple[Record, list[str]]:
        """See `replay`."""
        under_way, states = self._begin()
        ply = 0
        while len(under_way):
            under_way, states = self._step(under_way, states, ply)
            ply += 1
        for k in np.flatnonzero(self.num_rows == 0):
            self.faults[k] = self.faults[k] or "no moves"  # but those of chance
        return self._record(), self.faults

    def _begin(self):
        chosen, states = [], []
        plain = self.game.initial(1)[0]
        for k, one in enumerate(self.written):
            if self.faults[k]:
                continue
            try:
                states.append(self.game.text_to_state(one.start) if one.start else plain)
                chosen.append(k)
            except (ValueError, AttributeError):
                self.faults[k] = "begins at another position"
        return np.array(chosen, np.int64), np.array(states, self.game.state_dtype).reshape(-1, self.game.state_size)

    def _step(self, games, states, ply):
        """Play the next move of the games with these numbers; return (those that are under way still, their states)."""
        ended, value = self.game.terminal_at(states, ply)
        players = self.game.to_play(states)
        over = self.totals[games] == ply
        results = of_players(self.game.num_players, value, players)
        for i in np.flatnonzero(over | ended):
            if over[i]:
                self._end(games[i], ended[i], results[i], states[i : i + 1])
            else:
                limit = ply >= self.game.max_plies or self.game.is_cut(states[i])
                self.faults[games[i]] = (
                    f"longer than {self.game.max_plies} moves, the limit of this game"
                    if limit
                    else f"continues after move {ply}, where the rules end it"
                )
        stays = ~(over | ended)
        games, states, players = games[stays], states[stays], players[stays]
        if not len(games):
            return games, states
        games, states, players = self._in_turn(games, states, players, ply)
        if not len(games):
            return games, states
        words, drawn = [self.moves[k][ply] for k in games.tolist()], players == CHANCE
        actions = np.full(len(games), -1, np.int64)
        for chosen, find in ((~drawn, self.words.find), (drawn, self.words.find_outcomes)):
            if chosen.any():
                actions[chosen] = find(states[chosen], [word for word, fits in zip(words, chosen) if fits])
        for i in np.flatnonzero(actions < 0):
            k = games[i]
            self.faults[k] = f"illegal move: number {ply + 1}, {self.moves[k][ply][:SHOWN_MAX]}"
        legal, moved = actions >= 0, (actions >= 0) & ~drawn
        before = self.num_rows[games]
        self._rows.append((*(part[moved] for part in (games, states, actions, players, before)), ply))
        self._drawn.append((games[legal & drawn], actions[legal & drawn], ply))
        self.num_rows[games[moved]] += 1
        return games[legal], self.game.play(states[legal], actions[legal]) if legal.any() else states[legal]

    def _in_turn(self, games, states, players, ply):
        """Leave out games in which a player moves out of turn, where the file says who moves. A pass that a file leaves
        out since no other move is legal, as in Othello, is put in."""
        if not self.says_players:
            return games, states, players
        stays = np.ones(len(games), bool)
        for i, k in enumerate(games.tolist()):
            said = self.written[k].players
            num_before = ply - len(self.passes[k])
            if not said or said[num_before] == players[i]:
                continue
            legal = np.flatnonzero(self.game.legal(states[i : i + 1])[0])
            if len(legal) == 1 and self.game.sgf_number:
                self.moves[k].insert(ply, f"#{legal[0]}")
                self.totals[k] += 1
                self.passes[k].append(num_before)
            else:
                self.faults[k] = f"illegal move: number {ply + 1} is out of turn"
                stays[i] = False
        return games[stays], states[stays], players[stays]

    def _end(self, k, ended, by_rules, state):
        """Set the outcome of game k, whose moves are over in this state, [1, S]. by_rules: the result of each player,
        float [P], if the rules have ended it."""
        said, first = self._said(k), by_rules[0]
        if said is None and not ended:
            self.outcome[k] = np.nan
            self.faults[k] = "" if self.unfinished else "no result"
        elif said is None:
            self.outcome[k] = by_rules
        elif ended and np.sign(said[0]) != np.sign(first) and not self._is_counted():
            self.faults[k] = f"another result: {said[0]:+g}, by the rules {first:+g}"
        else:
            self.outcome[k] = by_rules if ended and len(by_rules) != 2 else said
        if self.game.score_name:
            self.score[k] = self.game.score(state)[0]

    def _said(self, k):
        """Return the result of each player, [P], as the file says it; None if it does not."""
        one, num = self.written[k], self.game.num_players
        if num == 2:
            return None if one.result is None else np.array([one.result, -one.result])
        said = one.results or ([] if one.result is None else [one.result])
        return np.array(said) if len(said) == num else None

    def _is_counted(self):
        """Whether the players agree on what the board is worth, so that rules of programs may say otherwise."""
        return self.game.lead(self.game.initial(1)) is not None

    def _record(self):
        taken = np.array([not fault for fault in self.faults], bool)
        lengths = self.num_rows * taken
        offsets = np.cumsum(lengths) - lengths
        positions = np.zeros(int(lengths.sum()), position_dtype(self.game))
        values = np.full(len(positions), np.nan, np.float32)
        for games, states, actions, players, before, ply in self._rows:
            keep = taken[games]
            at = offsets[games[keep]] + before[keep]
            positions["ply"][at], positions["state"][at] = ply, states[keep]
            positions["action"][at], positions["to_play"][at] = actions[keep], players[keep]
        game_of = np.repeat(np.arange(len(taken)), lengths)
        sign = 1 - 2 * positions["to_play"].astype(np.float32)
        results = from_mover(self.outcome[game_of], positions["to_play"])
        positions["value"] = results if self.game.num_players > 2 else results[:, 0]
        for k in np.flatnonzero(taken):
            one = self.written[k]
            if one.values:
                own = positions["ply"][offsets[k] : offsets[k] + lengths[k]].tolist()
                rows_of = {ply: int(offsets[k]) + place for place, ply in enumerate(own)}
                at_ply = {num + bisect_left(self.passes[k], num): value for num, value in one.values.items()}
                plies = [ply for ply in at_ply if ply in rows_of]
                at = np.array([rows_of[ply] for ply in plies], np.int64)
                said = np.array([at_ply[ply] for ply in plies], np.float32)
                values[at] = said if one.for_mover else said * sign[at]
        positions["root_value"] = np.where(np.isnan(values), results[:, 0], values)
        positions["weight"], positions["policy_count"] = 1.0, 1
        policy = np.empty(len(positions), POLICY)
        policy["action"], policy["probability"] = positions["action"], 1.0
        rows = np.zeros(int(taken.sum()), game_dtype(self.game))
        rows["rank"], rows["length"], rows["outcome"] = RANK, lengths[taken], self.outcome[taken, 0]
        if self.game.score_name:
            rows["score"] = self.score[taken]
        return Record(rows, positions, policy, self._chance(taken))

    def _chance(self, taken):
        """Return the moves of chance of the games that are taken, CHANCE_MOVE [C]."""
        drawn = [np.column_stack([games, np.full(len(games), ply), what]) for games, what, ply in self._drawn]
        rows = np.concatenate([np.zeros((0, 3), np.int64), *drawn])
        rows = rows[taken[rows[:, 0]]]
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        moves = np.zeros(len(rows), CHANCE_MOVE)
        moves["game"], moves["ply"], moves["outcome"] = (np.cumsum(taken) - 1)[rows[:, 0]], rows[:, 1], rows[:, 2]
        return moves
