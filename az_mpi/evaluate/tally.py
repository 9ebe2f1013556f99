"""What the games of a match add up to: wins and losses of two players, shares of several, scores of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from az_mpi.games.base import Game


class Played(NamedTuple):
    """A game of a match. game_index: its number. moves: all actions from the start on, with those of the opening and
    the outcomes of chance. results: of each player, player 0 first, in [-1, 1]. note: why a player lost it, if not by
    the rules; else "". score: at the end of a game of one player, in the game's unit."""

    game_index: int
    moves: list[int]
    results: list[float]
    note: str
    score: float = 0.0

    @property
    def result(self) -> float:
        """The result for `ours`."""
        return self.results[self.game_index % len(self.results)]


@dataclass(frozen=True)
class MatchResult:
    """The results of a match of two players for `ours`: (wins, draws, losses) of the games that it began, and of the
    others. pairs: in a game with chance moves, the score of each pair of games with the same dice, from 0 to 1, and
    results: the mean result of each pair, in [-1, 1]. Else both are empty. num_forfeits: games that a player
    lost not by the rules, see `Played.note`."""

    as_first: tuple[int, int, int]
    as_second: tuple[int, int, int]
    pairs: tuple[float, ...] = ()
    results: tuple[float, ...] = ()
    num_forfeits: int = 0

    @property
    def wins(self) -> int:
        return self.as_first[0] + self.as_second[0]

    @property
    def draws(self) -> int:
        return self.as_first[1] + self.as_second[1]

    @property
    def losses(self) -> int:
        return self.as_first[2] + self.as_second[2]

    @property
    def num_games(self) -> int:
        return self.wins + self.draws + self.losses


@dataclass(frozen=True)
class Shares:
    """The results of a match of three or more players for `ours`, which sits in one seat against `theirs` in all the
    others. Each game of set k is an element of row k: `ours` is player r in column r. Shapes: K sets, P players.

    share: of the points of the game, see `share_of`. result: in [-1, 1]. ahead: the mean over the other players of 1
    where `ours` has the better result, 1/2 where both have the same, 0 where the other one has the better.
    num_forfeits: as in `MatchResult`."""

    share: np.ndarray  # float64 [K, P]
    result: np.ndarray  # float64 [K, P]
    ahead: np.ndarray  # float64 [K, P]
    num_forfeits: int = 0

    @property
    def num_games(self) -> int:
        return self.share.size


@dataclass(frozen=True)
class Scores:
    """The scores of one player in its games, in the game's unit, float64 [n]."""

    scores: np.ndarray

    @property
    def num_games(self) -> int:
        return len(self.scores)


def tally(game: Game, played: Sequence[Played]) -> MatchResult | Shares | Scores:
    """Return what games, in the order of their indices, add up to. Of two players they may be any games of a match; the
    pairs that are whole count as pairs. Of more players, sets that are not whole are left out."""
    if game.num_players == 1:
        return Scores(np.array([one.score for one in played]))
    if game.num_players == 2:
        pairs = _whole_sets(played, 2) if game.num_outcomes else []
        scores = [sum(0.5 + 0.5 * np.sign(one.result) for one in pair) / 2 for pair in pairs]
        results = [sum(one.result for one in pair) / 2 for pair in pairs]
        as_first, as_second = map(tuple, count(played).tolist())
        of_pairs = tuple(map(float, scores)), tuple(map(float, results))
        return MatchResult(as_first, as_second, *of_pairs, _num_forfeits(played))
    sets = _whole_sets(played, game.num_players)
    shape = len(sets), game.num_players

    def each(of):
        return np.array([of(one.results, seat) for of_set in sets for seat, one in enumerate(of_set)]).reshape(shape)

    num_forfeits = _num_forfeits(one for of_set in sets for one in of_set)
    return Shares(each(share_of), each(lambda results, seat: results[seat]), each(ahead_of), num_forfeits)


def _num_forfeits(played):
    return sum(bool(one.note) for one in played)


def _whole_sets(played, num):
    """Return lists of `num` games each, by their sets: those sets of which all games are there."""
    known = {one.game_index: one for one in played}
    sets = sorted({index // num for index in known})
    whole = [[known.get(num * k + seat) for seat in range(num)] for k in sets]
    return [of_set for of_set in whole if None not in of_set]


def count(played: Sequence[Played]) -> np.ndarray:
    """Return the numbers of games of two players, int64 [ours begins or not, win draw loss]."""
    counts = np.zeros((2, 3), np.int64)
    for one in played:
        counts[one.game_index % 2, 1 - int(np.sign(one.result))] += 1
    return counts


def share_of(results: Sequence[float], player: int) -> float:
    """Return the share of the points of a game that a player gets: points are counted from the worst result of the
    game, and are shared equally where all results are the same.

    So the shares of a game add up to 1, equal players get 1 / P each, a winner takes all where the others have the same
    result, and it does not matter whether a game gives its losers -1 or -1/2."""
    least = min(results)
    total = sum(result - least for result in results)
    return (results[player] - least) / total if total > 0 else 1 / len(results)


def ahead_of(results: Sequence[float], player: int) -> float:
    """Return the mean over the other players of 1, 1/2 or 0: the player has a better, the same or a worse result."""
    others = [result for k, result in enumerate(results) if k != player]
    return sum(0.5 + 0.5 * float(np.sign(results[player] - other)) for other in others) / len(others)
