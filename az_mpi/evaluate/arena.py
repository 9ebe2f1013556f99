"""Matches between two opponents: every opening is played twice, once with each colour.

The games of a rank run at the same time. The two take turns, and each moves in all games in which it is to move, so
that every search runs over as many trees as possible.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from az_mpi.core.problems import OwnCodeError
from az_mpi.evaluate.openings import Openings, openings
from az_mpi.evaluate.opponents import RESIGNS, Opponent
from az_mpi.games.base import Game
from az_mpi.liveness import watchdog
from az_mpi.mpi.world import World, split_evenly

GAMES_AT_ONCE = 256  # on one rank: bounds the memory of the trees
OnProgress = Callable[[int, int], None]  # called with how many are done, and of how many


@dataclass(frozen=True)
class MatchResult:
    """The results of a match for `ours`: (wins, draws, losses) of the games that it began, and of the others."""

    as_first: tuple[int, int, int]
    as_second: tuple[int, int, int]

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


class Played(NamedTuple):
    """A game of a match. game_index: its number. moves: all actions from the start on, with those of the opening.
    result: for `ours`, in [-1, 1]. note: why a player lost it, if not by the rules; else ""."""

    game_index: int
    moves: list[int]
    result: float
    note: str


def silent(*_: object) -> None:
    pass


def play_match(
    world: World,
    game: Game,
    ours: Opponent,
    theirs: Opponent,
    num_games: int,
    opening_plies: int,
    seed: tuple[int, ...],
    on_progress: OnProgress = silent,
    on_finish: Callable[[], None] = silent,
) -> MatchResult:
    """Play `num_games` games, an even number, and return the `MatchResult` of `ours`. Collective over world.

    Games 2 k and 2 k + 1 start from opening k: `ours` begins the first of them, `theirs` the second. seed: of the
    openings. on_progress counts this rank's games; on_finish is called when this rank has played all of its games,
    before the ranks add up their results. A game that is not over after game.max_plies is a draw.
    """
    pairs = num_games // 2
    mine = games_of(world, pairs)
    played = play_games(game, ours, theirs, openings(game, pairs, opening_plies, seed), mine, on_progress)
    on_finish()
    as_first, as_second = map(tuple, world.sum(count(played)).tolist())
    return MatchResult(as_first, as_second)


def games_of(world: World, num_pairs: int, first_pair: int = 0) -> np.ndarray:
    """Return the games of this rank, int64 [n], of the pairs of games from `first_pair` on."""
    share = split_evenly(num_pairs, world.size)
    first = 2 * (first_pair + sum(share[: world.rank]))
    return np.arange(first, first + 2 * share[world.rank])


def count(played: list[Played]) -> np.ndarray:
    """Return the numbers of games, int64 [ours begins or not, win draw loss]."""
    counts = np.zeros((2, 3), np.int64)
    for one in played:
        counts[one.game_index % 2, 1 - int(np.sign(one.result))] += 1
    return counts


def play_games(
    game: Game,
    ours: Opponent,
    theirs: Opponent,
    starts: Openings,
    indices: np.ndarray,
    on_progress: OnProgress = silent,
    on_game: Callable[[Played], object] = silent,
) -> list[Played]:
    """Play the games `indices`, int64 [n], of a match whose opening k is number k of `starts`; return them in order.
    on_game is called with each of them when it has ended. Not collective. See `play_match`."""
    played = []
    for done in range(0, len(indices), GAMES_AT_ONCE):
        part = indices[done : done + GAMES_AT_ONCE]
        played += _play(
            game,
            ours,
            theirs,
            starts.pick(part // 2),
            part,
            lambda num, done=done: on_progress(done + num, len(indices)),
            on_game,
        )
    return played


@watchdog.steps()
def _play(game, ours, theirs, starts, indices, on_progress, on_game):
    states = starts.states.copy()
    moves = [list(opening) for opening in starts.moves]
    played = {}

    def end(slot, result, note=""):
        live[slot] = False
        played[slot] = Played(int(indices[slot]), moves[slot], float(result), note)
        on_game(played[slot])

    colour = indices % 2  # of `ours` in each game, as in `game.to_play`
    seats = [player.seat(game, states, indices, moves) for player in (ours, theirs)]
    # Each player with its seat, its colour in each game and the result for `ours` of a game that it resigns.
    sides = (ours, seats[0], colour, -1), (theirs, seats[1], 1 - colour, 1)
    live = np.ones(len(states), bool)
    for turn in range(2 * game.max_plies):
        player, seat, its_colour, loser_score = sides[turn % 2]
        slots = np.flatnonzero(live & (game.to_play(states) == its_colour))
        if not len(slots):
            continue
        actions = _legal(game, player, states[slots], seat.choose(slots))
        resigned = actions == RESIGNS
        for slot in slots[resigned]:
            end(slot, loser_score, player.note(int(indices[slot])))
        slots = slots[~resigned]
        actions = actions[~resigned]
        for each in seats:
            each.advance(slots, actions)
        states[slots] = game.play(states[slots], actions)
        for slot, action in zip(slots, actions.tolist()):
            moves[slot].append(action)
        ended, value = game.terminal_at(states[slots], np.array([len(moves[slot]) for slot in slots]))
        is_ours = game.to_play(states[slots]) == colour[slots]
        for k in np.flatnonzero(ended):
            end(slots[k], value[k] if is_ours[k] else 0 - value[k])
        # One turn of each player is one step of the watchdog: one of the two may need far less time.
        (watchdog.step if turn % 2 else watchdog.tick)()
        on_progress(int((~live).sum()))
        if not live.any():
            break
    return [played[slot] for slot in range(len(states))]


def _legal(game, player, states, actions):
    """Return the actions of an opponent, int64 [k]. Raises OwnCodeError unless each is legal in its state or RESIGNS:
    the rules may be compiled, and do not look."""
    actions = np.asarray(actions)
    if type(player).__module__.startswith("az_mpi."):  # its moves come from the game
        return actions
    if actions.shape == (len(states),) and actions.dtype.kind in "iu":
        playable = np.flatnonzero(actions != RESIGNS)
        inside = (actions[playable] >= 0) & (actions[playable] < game.num_actions)
        if inside.all() and game.legal(states[playable])[np.arange(len(playable)), actions[playable]].all():
            return actions.astype(np.int64)
    raise OwnCodeError(
        f"the opponent {type(player).__name__} has chosen a move that is not legal: {actions!r:.200}\n"
        f"  expected: {len(states)} whole numbers, each a legal action of its state, or RESIGNS, "
        f"{RESIGNS}\n  az_mpi.evaluate.opponents.Opponent says what an opponent returns"
    )
