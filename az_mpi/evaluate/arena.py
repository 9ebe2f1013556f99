"""Matches: every opening is played from each seat, with the same dice.

With two players the games of a match come in pairs with exchanged seats; with more, in sets in which `ours` sits in
each seat once and `theirs` in all the others; a game of one player is a set by itself. The games of a rank run at the
same time. The opponents move alternately, each in all games in which it is to move, so that every search runs over as
many trees as possible.
"""

import functools
import logging
from collections.abc import Callable, Sequence

import numpy as np

from az_mpi.core.problems import OwnCodeError
from az_mpi.evaluate.dice import Dice
from az_mpi.evaluate.openings import Openings, openings, repeats
from az_mpi.evaluate.opponents import RESIGNS, Opponent, SearchSeat
from az_mpi.evaluate.tally import MatchResult, Played, Scores, Shares, tally
from az_mpi.games import chance
from az_mpi.games.base import Game, all_legal, results
from az_mpi.liveness import watchdog
from az_mpi.mpi.world import World, split_evenly

SEEDS = (0,)  # of the games of one player that are compared: the same in every iteration and in every run
GAMES_AT_ONCE = 256  # on one rank: bounds the memory of the trees
OnProgress = Callable[[int, int], None]  # called with how many are done, and of how many


def silent(*_: object) -> None:
    pass


def play_match(
    world: World,
    game: Game,
    ours: Opponent,
    theirs: Opponent | None,
    num_games: int,
    opening_plies: int,
    seed: tuple[int, ...],
    on_progress: OnProgress = silent,
    on_finish: Callable[[], None] = silent,
) -> MatchResult | Shares | Scores:
    """Play `num_games` games, in whole sets, at least one, and return what `tally` makes of them. Collective over
    world.

    Of P players, games P k to P k + P - 1 are set k: they start from opening k, and `ours` is player 0 in the first of
    them, player 1 in the second, and so on. theirs: None in games of one player. seed: of the openings and of the dice.
    on_progress counts this rank's games; on_finish is called when this rank has played all of its games, before the
    ranks exchange their results. A game that is not over after game.max_plies is a draw, or of one player counts as it
    stands.
    """
    num_sets = max(num_games // game.num_players, 1)
    mine = games_of(world, num_sets, 0, game.num_players)
    plies = plies_of(game, opening_plies)
    starts = openings(game, num_sets, plies, seed)
    if world.rank == 0 and (warning := repeats(game, starts, plies)):
        _warn(warning)
    played = play_games(game, ours, theirs, starts, mine, on_progress, dice=Dice(seed))
    on_finish()
    rows = [[one.game_index, [], one.results, one.note, one.score] for one in played]
    return tally(game, sorted(Played(*row) for part in world.collect(rows) for row in part))


@functools.cache  # an evaluation or a ladder says it once, not in each match
def _warn(text):
    logging.getLogger("az_mpi").warning(text)


def plies_of(game: Game, opening_plies: int) -> int:
    """Return how many random moves of players a match begins with: none in a game of one player with chance moves,
    whose games differ by chance; they would cost it a part of its score."""
    return 0 if game.num_players == 1 and game.num_outcomes else opening_plies


def games_of(world: World, num_sets: int, first_set: int = 0, num_players: int = 2) -> np.ndarray:
    """Return the games of this rank, int64 [n], of the sets of games from `first_set` on."""
    share = split_evenly(num_sets, world.size)
    first = num_players * (first_set + sum(share[: world.rank]))
    return np.arange(first, first + num_players * share[world.rank])


def play_games(
    game: Game,
    ours: Opponent,
    theirs: Opponent | None,
    starts: Openings,
    indices: np.ndarray,
    on_progress: OnProgress = silent,
    on_game: Callable[[Played], object] = silent,
    dice: Dice | None = None,
) -> list[Played]:
    """Play the games `indices`, int64 [n], of a match whose opening k is number k of `starts`; return them in order.
    on_game is called with each of them when it has ended. dice: of the match. Not collective. See `play_match`."""
    played = []
    players = [ours] if theirs is None else [ours, theirs]
    for done in range(0, len(indices), GAMES_AT_ONCE):
        part = indices[done : done + GAMES_AT_ONCE]
        table = _Table(game, players, starts.pick(part // game.num_players), part, dice or Dice(0), on_game)
        played += table.play(functools.partial(_tell, on_progress, done, len(indices)))
    return played


def _tell(on_progress, done, total, num):
    on_progress(done + num, total)


class _Table:
    """Games that are played at the same time. players: `ours`, and `theirs` if the game has more than one player."""

    def __init__(
        self,
        game: Game,
        players: Sequence[Opponent],
        starts: Openings,
        indices: np.ndarray,
        dice: Dice,
        on_game: Callable[[Played], object],
    ):
        self.game, self.players, self.indices, self.dice, self.on_game = game, players, indices, dice, on_game
        self.states = starts.states.copy()
        self.moves = [list(opening) for opening in starts.moves]
        self.seat_of_ours = indices % game.num_players  # as in `game.to_play`
        self.live = np.ones(len(self.states), bool)
        self.num_drawn = np.zeros(len(self.states), np.int64)  # chance moves since the opening
        self.played: dict[int, Played] = {}
        self.seats = [player.seat(game, self.states, indices, self.moves) for player in players]

    @watchdog.steps()
    def play(self, on_progress: Callable[[int], None]) -> list[Played]:
        """Play all games to their ends and return them in order."""
        num = len(self.players)
        for turn in range(num * self.game.max_plies):
            self._draw()
            # One turn of each player is one step of the watchdog: one of them may need far less time.
            if self._move(turn % num):
                (watchdog.step if turn % num == num - 1 else watchdog.tick)()
                on_progress(int((~self.live).sum()))
            if not self.live.any():
                break
        return [self.played[slot] for slot in range(len(self.states))]

    def _draw(self):
        """Play all moves of chance that come next."""
        while len(slots := np.flatnonzero(self.live & chance.due(self.game, self.states))):
            sets = self.indices[slots] // self.game.num_players
            numbers = [self.dice.number(*of) for of in zip(sets.tolist(), self.num_drawn[slots].tolist())]
            self.num_drawn[slots] += 1
            self._play(slots, chance.draw(self.game, self.states[slots], np.array(numbers)))

    def _move(self, k):
        """Let player k move in all games in which it is to move; return whether there are any."""
        mover = self.game.to_play(self.states)
        slots = np.flatnonzero(self.live & ((mover == self.seat_of_ours) == (k == 0)))
        if not len(slots):
            return False
        player = self.players[k]
        actions = _legal(self.game, self.seats[k], player, self.states[slots], self.seats[k].choose(slots))
        resigned = actions == RESIGNS
        for slot in slots[resigned]:
            results = np.full(self.game.num_players, 1 / max(self.game.num_players - 1, 1))
            results[mover[slot]] = -1
            self._end(slot, results, player.note(int(self.indices[slot])))
        self._play(slots[~resigned], actions[~resigned])
        return True

    def _play(self, slots, actions):
        game = self.game
        for seat in self.seats:
            seat.advance(slots, actions)
        self.states[slots] = game.play(self.states[slots], actions)
        for slot, action in zip(slots, actions.tolist()):
            self.moves[slot].append(action)
        ended, found = results(game, self.states[slots], np.array([len(self.moves[slot]) for slot in slots]))
        for k in np.flatnonzero(ended):
            self._end(slots[k], found[k] + 0.0)  # without negative zeros

    def _end(self, slot, results, note=""):
        self.live[slot] = False
        of_game = self.game.score(self.states[slot : slot + 1])
        score = results[0] if of_game is None else of_game[0]
        played = Played(int(self.indices[slot]), self.moves[slot], list(map(float, results)), note, float(score))
        self.played[int(slot)] = played
        self.on_game(played)


def _legal(game, seat, player, states, actions):
    """Return the actions of an opponent, int64 [k]. Raises OwnCodeError unless each is legal in its state or RESIGNS:
    the rules may be compiled, and do not look."""
    actions = np.asarray(actions)
    what, chooser = ("search", seat.search) if type(seat) is SearchSeat else ("opponent", player)
    if type(chooser).__module__.startswith("az_mpi."):  # its moves come from the game
        return actions
    if actions.shape == (len(states),):
        playable = np.flatnonzero(actions != RESIGNS)
        if all_legal(actions[playable], game.legal(states[playable]), np.arange(len(playable))):
            return actions.astype(np.int64)
    raise OwnCodeError(
        f"the {what} {type(chooser).__name__} has chosen a move that is not legal: {actions!r:.200}\n"
        f"  expected: {len(states)} whole numbers, each a legal action of its state, or RESIGNS, "
        f"{RESIGNS}\n  az_mpi.evaluate.opponents.Opponent says what an opponent returns"
    )
