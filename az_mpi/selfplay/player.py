"""Self-play: a batch of games on one rank; each step runs one simulation in every game.

If the engine works in the background, the games form two groups or more, and the steps alternate between them: while
the engine evaluates the leaves of one group, another is searched.

Shapes: B games at once, L longest game, A actions, S numbers a state, M policy entries.
No game waits for another: each plays its move when its search is complete, and games that end are replaced a few
steps later at most, so that the batches for the evaluator stay full.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from az_mpi.core.printing import counted
from az_mpi.core.problems import OwnCodeError
from az_mpi.games import chance
from az_mpi.games.base import results
from az_mpi.search import batches, choices, make_search, streams
from az_mpi.selfplay import ended, moves, starts

if TYPE_CHECKING:
    from az_mpi.config.schema import Config
    from az_mpi.games.base import Game
    from az_mpi.network.evaluators import Evaluator
    from az_mpi.selfplay.record import Record


PARALLEL_GAMES, PARALLEL_GAMES_MAX = 256, 8192  # at least and at most, if the configuration leaves it open
# Games that end are collected, and others begin, a few together: for each step that does so Python's code has to come
# back into the processor's caches. They wait until they are this share of the games, for so many steps at most.
TOGETHER, STEPS_MAX = 1 / 256, 8


def most_plies(config: Config, game: Game) -> int:
    """Return after how many plies a game of self-play ends at the latest."""
    return min(config.selfplay.max_plies or game.max_plies, game.max_plies)


class Player:
    """Plays up to `config.selfplay.parallel_games` games of `game` at once; `evaluate` evaluates the leaves.

    threads: of the search. num_groups: batches that are under way at the same time. num_games: at once, in place of
    the configuration's.
    """

    def __init__(
        self,
        config: Config,
        game: Game,
        evaluate: Evaluator,
        rank: int,
        threads: int = 1,
        num_groups: int = 1,
        num_games: int = 0,
    ):
        self.config = config
        self.game = game
        self.rank = rank
        num_games = num_games or config.selfplay.parallel_games or PARALLEL_GAMES
        self.search = make_search(game, evaluate, config.search, num_games, noise=True, threads=threads)
        num_groups = min(num_groups, num_games)
        groups = [np.arange(first, num_games, num_groups) for first in range(num_groups)]
        self._groups = deque((slots, batches.make(self.search, len(slots), threads)) for slots in groups)
        self.max_plies = most_plies(config, game)
        self.ids = np.zeros(num_games, np.uint64)
        self.iterations = np.zeros(num_games, np.int32)
        # The moves from the initial position to where the game began, and to where it is.
        self.first_ply, self.ply = np.zeros((2, num_games), np.int32)
        self.archive: starts.Archive | None = None  # positions at which games may begin
        self._moves = moves.empty(game, num_games, self.max_plies)
        self._manner = moves.manner(config, self.max_plies)
        self._made = moves.made(num_games, threads, self.search.trees.node.shape[1])
        self._in_loop = moves.in_loop(self.search, self._groups[0][1])
        self.drawn: list[list[tuple[int, int]]] = [[] for _ in range(num_games)]  # (ply, outcome) of chance's moves
        if config.selfplay.surprise_share:
            self.search.keep_priors()
        self.plays_on = np.ones(num_games, bool)  # games in which nobody resigns
        self.live = np.zeros(num_games, bool)
        self.finished: list[ended.Ended] = []  # not taken yet
        self.num_finished = 0
        self._over: list[tuple[int, bool, int]] = []  # of games to collect: slot, whether the player resigned, last ply
        self._steps = 0  # since the first of these ended
        self._ended, self._allowed = deque(), math.inf  # (slot, game) of those that ended and wait, see `allow`
        self.begun: dict[int, int] = {}  # {the newest iteration: games begun in it}, kept by `quota`

    def free(self) -> np.ndarray:
        """Return the slots without a game, int64."""
        free = ~self.live
        free[[slot for slot, *_ in (*self._ended, *self._over)]] = False
        return np.flatnonzero(free)

    @property
    def batch_max(self) -> int:
        """How many positions the evaluator is asked for at once, at most."""
        return len(self._groups[0][0])

    @property
    def num_simulations(self) -> int:
        """How many simulations were begun."""
        return sum(batch.num_simulations for _, batch in self._groups)

    @property
    def under_way(self) -> bool:
        """Whether evaluations are under way, see `pause`."""
        return any(batch.under_way for _, batch in self._groups)

    @property
    def num_unfinished(self) -> int:
        """How many games have begun and do not count as finished yet."""
        return int(self.live.sum()) + len(self._ended) + len(self._over)

    @property
    def num_unfinished_moves(self) -> int:
        """How many moves have been played in the games under way."""
        return int((self.ply - self.first_ply)[self.live].sum())

    def allow(self, num_finished: float = math.inf) -> None:
        """Count games as finished only up to `num_finished` in all, since this player was made. Games that end beyond
        that wait in their slots until a later call allows more. Ranks share one quota: a rank that finished all it
        could would exceed it."""
        self._allowed = num_finished
        self._finish()

    def abandon(self, iteration: int) -> int:
        """Give up the games that were begun before `iteration` and are not finished, and return how many. Their slots
        are free then. Only while no evaluations are under way."""
        self._collect()
        old = np.zeros(len(self.live), bool)
        old[[slot for slot, _ in self._ended]] = True
        old = (old | self.live) & (self.iterations < iteration)
        self.live[old] = False
        self._ended = deque((slot, game) for slot, game in self._ended if not old[slot])
        return int(old.sum())

    def restart_searches(self) -> None:
        """Forget what the searches of the games under way have found, since values have got another scale. The games
        stay as they are, and continue their random numbers. Only while no evaluations are under way."""
        slots, search = np.flatnonzero(self.live), self.search
        if len(slots):
            search.reset(slots, search.trees.state[slots, 0], search.streams[slots], self.ply[slots])

    def start(self, slots: np.ndarray, ids: np.ndarray, iteration: int) -> None:
        """Begin a game in each slot; ids: uint64 [n]. Its random numbers depend on the seed and its id alone. Where it
        begins, see `starts.begin`. Raises OwnCodeError if the limit of moves ends it before a player moves."""
        self.ids[slots], self.iterations[slots], self.live[slots] = ids, iteration, True
        self._moves.num_entries[slots] = 0
        for slot in slots:
            self.drawn[slot] = []
        words = streams.keyed(self.config.seed, np.asarray(ids, np.uint64))
        states, plies = starts.begin(self.game, self.config.selfplay, self.archive, self.max_plies, words)
        self.first_ply[slots] = self.ply[slots] = plies
        self.search.reset(slots, states, words, plies)
        self._draw(slots)
        if (self.ply[slots] >= self.max_plies).any():
            raise OwnCodeError(
                f"a game of {self.game.name} has {counted(self.max_plies, 'move')} of chance before a player moves, "
                "and may have no more moves\n  let selfplay.max_plies, or the game's own max_plies, be larger"
            )
        if self.config.selfplay.resign_threshold < 1 and self.game.num_players == 2:
            drawn = streams.uniforms(self.search.streams, slots)
            self.plays_on[slots] = drawn < self.config.selfplay.resign_play_on

    def step(self) -> None:
        """Continue the games of the group that has waited longest: complete its simulations, play the moves that are
        decided then, begin the next evaluations, and collect the games that have ended."""
        self._groups.rotate(-1)
        slots, batch = self._groups[-1]
        batch.finish()
        self._simulate(batch, slots[self.live[slots]])
        batch.evaluate(slots[self.live[slots]])
        self._steps += 1
        if self._over:  # while the engine works, if it does so in the background
            enough = len(self._over) >= TOGETHER * len(self.live) or self._steps >= STEPS_MAX
            awaited = self.num_finished + len(self._ended) + len(self._over) >= self._allowed
            if enough or awaited or not self.live.any():
                self._collect()

    def _simulate(self, batch, slots, descends=True):
        """Simulate and play the moves that are decided then, once. Searches that are complete after that too, because
        their trees were kept, wait for the next step: for a few more games, each further round would take as long."""
        if self._in_loop:
            ready = self._move_in_loop(batch, slots, descends)
        else:
            ready = batch.simulate(slots, descends)
            if len(ready):
                self._move(ready)
        ready = ready[self.live[ready]]
        if len(ready):
            batch.simulate(ready, descends)

    def _move_in_loop(self, batch, slots, descends):
        """Simulate in the compiled loop, which plays the moves that are decided and continues with the next searches.
        Return the games that moved to a position that was not in the tree: those that are not over are yet to be
        searched."""
        made = self._made
        made.moved.fill(False)
        if len(slots):
            self._moves = moves.with_room(self._moves, slots, self.game.num_actions)

        def play(trees):
            return moves.player_in_loop(trees, self._moves, self.search, self.ply, self.plays_on, self._manner, made)

        batch.simulate(slots, descends, play)
        moved = np.flatnonzero(made.moved)
        new = moved[~made.kept[moved]]
        if len(new):
            self.search.begin_moved(new, made.actions[new], made.kept[new])
        over = made.over[moved] | self.search.trees.node["ended"][moved, 0]  # of new positions it is known only now
        self._note_over(moved, over, made.resigns[moved], self.ply[moved] - 1)
        return new

    def pause(self) -> None:
        """Complete the simulations under way; after that the weights may change."""
        self._groups = deque(sorted(self._groups, key=lambda group: group[0][0]))  # as a new player would begin
        for slots, batch in self._groups:
            if batch.under_way:
                batch.finish()
                self._simulate(batch, slots[self.live[slots]], descends=False)
        self._collect()

    def take(self) -> Record:
        """Return the games finished since the last call as one record, in the order of their ids."""
        self._collect()
        games, self.finished = self.finished, []
        return ended.record(self.game, games, self.config.selfplay.surprise_share)

    def _move(self, slots):
        search, last = self.search, self.ply[slots]
        if type(search) in choices.DECIDED:
            self._moves = moves.with_room(self._moves, slots, self.game.num_actions)
            moves.played(self._moves, search, slots, self.ply, self.plays_on, self._manner, self._made)
            resigns = self._made.resigns[slots]
        else:
            resigns = self._move_by_methods(slots, last)
        self._draw(slots)
        over = resigns | search.trees.node["ended"][slots, 0] | (self.ply[slots] >= self.max_plies)
        self._note_over(slots, over, resigns, last)

    def _note_over(self, slots, over, resigns, last):
        """Note which of these games are over, bool [n]. resigns: bool [n], whether the player to move at the last
        position does. last: int32 [n], its ply."""
        if over.any():
            self.live[slots[over]] = False
            self._steps = self._steps if self._over else 0
            self._over += zip(slots[over].tolist(), resigns[over].tolist(), last[over].tolist())

    def _move_by_methods(self, slots, ply):
        """Do what `moves.played` does, by the methods of the search."""
        search, how = self.search, self._manner
        early = ply < how.temperature_plies
        actions = search.choose(slots, np.where(early, how.temperature, how.temperature_final))
        targets = search.policy(slots)
        values = search.value(slots)
        found = moves.Found(actions, values, np.zeros(len(slots), np.float32), *targets)
        self._moves = moves.added(self._moves, search, slots, ply, found, how.keeps_surprises)
        search.advance(slots, actions)
        self.ply[slots] += 1
        return ~self.plays_on[slots] & (values < how.resigns_below)

    def _collect(self):
        """Collect the games that have ended."""
        if not self._over:
            return
        slots, resigns, last = map(np.array, zip(*self._over))
        self._over = []
        roots = self.search.trees.state[slots, 0]
        over, outcome = results(self.game, roots)
        if (rows := resigns & ~over).any():  # in games of two alone
            resigned = np.where(self._moves.move["to_play"][slots, last] == 0, -1, 1)
            outcome[rows] = np.stack([resigned, -resigned], axis=1)[rows]
        over = over | resigns
        for i, slot in enumerate(slots.tolist()):
            self._ended.append((slot, self._ended_game(slot, outcome[i], truncated=not over[i])))
        self._finish()

    def _draw(self, slots):
        """Draw the moves of chance that come next in these games, from the games' own random streams."""
        while len(slots := slots[chance.due(self.game, self.search.trees.state[slots, 0])]):
            slots = slots[self.ply[slots] < self.max_plies]
            uniform = streams.uniforms(self.search.streams, slots)
            outcomes = chance.draw(self.game, self.search.trees.state[slots, 0], uniform)
            for slot, outcome in zip(slots.tolist(), outcomes.tolist()):
                self.drawn[slot].append((int(self.ply[slot]), outcome))
            self.search.advance(slots, outcomes)
            self.ply[slots] += 1

    def _finish(self):
        while self._ended and self.num_finished < self._allowed:
            _, game = self._ended.popleft()
            self.finished.append(game)
            self.num_finished += 1

    def _ended_game(self, slot, outcome, truncated):
        """Return a game that has ended. outcome: float32 [players], the result of each."""
        first, last = int(self.first_ply[slot]), int(self.ply[slot])
        drawn, plies = self.drawn[slot], np.arange(first, last)
        states, moved = self._moves.states[slot, first:last], self._moves.move[slot, first:last]
        if drawn:
            plies = np.setdiff1d(plies, [ply for ply, _ in drawn])
            states, moved = states[plies - first], moved[plies - first]
        row = (self.ids[slot], self.rank, self.iterations[slot], len(plies), outcome[0], truncated)
        if self.game.score_name:
            row = (*row, self.game.score(self.search.trees.state[slot, :1])[0])
        policy = self._moves.policy[slot, : self._moves.num_entries[slot]].copy()
        return ended.Ended(row, outcome, plies, states.copy(), moved.copy(), policy, drawn)
