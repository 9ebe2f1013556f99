"""Whose view `terminal` and `planes` take: two mistakes that break no rule of a single state.

`terminal` gives the value for one and the same player, although a player moves several times in a row, so that half of
all results are wrong; and `planes` do not show who is to move, so that the network has one answer where there are two.
Without the rules three things tell: states of random games that the network cannot tell apart; states that differ
only in the number that says who is to move; and whether what the planes say about the results of ends in which one
player is to move also holds for ends in which the other one is.

Shapes: n states, S numbers a state, C planes of H x W.
"""

import numpy as np

from az_mpi.games.base import Game
from az_mpi.games.random_games import after_chance, random_actions
from az_mpi.games.state_text import drawn, side_by_side

GAMES, GAMES_MIN, POSITIONS = 256, 32, 12_000  # random games: as many as have about POSITIONS positions
SWAP = 1.3  # a part of the board is turned over with each change of the mover if so much more of it changes then
SURE = 0.4  # the least correlation that counts, either way
TURNS_MIN = 50  # times that a player was to move, then the other one, then the first again
ENDS_MIN = 8  # that were won, of those that are turned to the other player

MOVER, BOARD = "mover", "board"


class Seen:
    """What random games show: which numbers of a state say who is to move, and how games end."""

    def __init__(self) -> None:
        self._low = {}
        self._high = {}
        self._ends = []
        self._last = []
        self.num = 0
        self.plies = 0

    def add(self, states: np.ndarray, mover: np.ndarray, ended: np.ndarray, last: np.ndarray) -> None:
        """Take the states of one ply of many games, [n, S], who is to move there, [n], whether they are ends, bool [n],
        and who has moved last, [n]."""
        for player in set(mover.tolist()):
            low, high = (extreme(states[mover == player], axis=0) for extreme in (np.min, np.max))
            self._low[player] = np.minimum(self._low.get(player, low), low)
            self._high[player] = np.maximum(self._high.get(player, high), high)
        self._ends.append(states[ended])
        self._last.append(last[ended])
        self.num, self.plies = self.num + int(ended.sum()), self.plies + len(states)

    @property
    def ends(self) -> np.ndarray:
        """The last states of all games, [n, S]."""
        return np.concatenate(self._ends)

    @property
    def last(self) -> np.ndarray:
        """Who made the last move of each game, [n]."""
        return np.concatenate(self._last)

    def columns(self) -> np.ndarray:
        """Return the numbers of a state that are one where player 0 is to move, and another one for player 1."""
        if len(self._low) < 2:
            return np.zeros(0, np.int64)
        low = self._low
        high = self._high
        return np.flatnonzero((low[0] == high[0]) & (low[1] == high[1]) & (low[0] != low[1]))

    def with_other_mover(self, states: np.ndarray, mover: np.ndarray) -> np.ndarray:
        """Return the states, [n, S], with the other player in the columns that say who is to move."""
        other = states.copy()
        columns = self.columns()
        other[:, columns] = np.where(mover[:, None] == 0, self._low[1][columns], self._low[0][columns])
        return other


class Ends:
    """Ends of random games, with what turns over when the other player is to move.

    states: [n, S]; movers: who is to move, [n]; last: who has moved last, [n]; values: for the movers, [n]; planes:
    [n, C, H, W]. state_view, planes_view:
    `BOARD` where a state, or the planes, stay as they are when the other player is to move, `MOVER` where parts of them
    turn over, None if that is not known. twice: whether a player was seen to move twice in a row. turned: the states of
    some `rows` with the other player to move.
    """

    def __init__(self, game: Game, seen: Seen, rng: np.random.Generator):
        states = game.initial(int(np.clip(POSITIONS * seen.num / seen.plies, GAMES_MIN, GAMES)))
        states, made = after_chance(game, states, np.zeros(len(states), np.int64), rng)
        earlier = []
        state_changes = _Changes(_bits)
        plane_changes = _Changes(_cells)
        corners = Seen()
        uniform = np.full(game.planes_shape[0], game.planes_shape[1:] != (1, 1))
        last = np.full(len(states), -1)
        for _ in range(game.max_plies + 1):
            mover = game.to_play(states)
            planes = game.planes(states)
            ended = game.terminal(states)[0]
            seen.add(states, mover, ended, last)
            corners.add(planes[:, :, 0, 0], mover, ended, last)
            uniform &= (planes == planes[:, :, :1, :1]).all(axis=(0, 2, 3))
            plies = [*earlier, (states, planes, mover)]
            movers = [ply[2] for ply in plies]
            state_changes.add([ply[0] for ply in plies], movers)
            plane_changes.add([ply[1] for ply in plies], movers)
            live = ~ended
            if not live.any():
                break
            last = mover[live]
            earlier = [tuple(part[live] for part in ply) for ply in plies[-2:]]
            states = game.play(states[live], random_actions(game.legal(states[live]), rng.random(int(live.sum()))))
            states, made = after_chance(game, states, made[live] + 1, rng)
        self.states = seen.ends
        self.last = seen.last
        self.movers, self.values = game.to_play(self.states), game.terminal(self.states)[1]
        self.planes = game.planes(self.states)
        self.twice = state_changes.twice
        other_columns = np.ones(game.state_size, bool)
        other_columns[seen.columns()] = False
        uniform[corners.columns()] = True  # of one cell each
        self.state_view = state_changes.view(other_columns)
        self.planes_view = plane_changes.view(~uniform)
        self.rows, self.turned = self._turned(game, seen)

    def _turned(self, game, seen):
        """Return (rows, their states with the other player to move), where states show the board as it is and say who
        is to move, and the rules take those for ends too; no rows elsewhere."""
        none = np.zeros(0, np.int64), self.states[:0]
        if self.state_view != BOARD or not len(seen.columns()):
            return none
        other = seen.with_other_mover(self.states, self.movers)
        try:
            rows = np.flatnonzero((game.to_play(other) == 1 - self.movers) & game.terminal(other)[0])
            if len(rows):
                game.planes(other[rows])
        except Exception:  # no game leads to these states, so that the rules need not take them
            return none
        return rows, other[rows]

    def both_win(self) -> bool:
        """Return whether either player has won and lost where that player is to move."""
        return all((np.sign(self.values[self.movers == player]) == sign).any() for player in (0, 1) for sign in (-1, 1))


class _Changes:
    """How many numbers of each part of a position change when the other player is to move, and when the same one is.

    Where the players move alternately, what changes in one ply is compared with what changes in two, after which the
    same player moves again: it is less if parts turn over. Else plies after which the mover is another one are compared
    with those after which it is not.
    """

    def __init__(self, count) -> None:
        self._count = count
        self.twice = False
        self._sums = {name: 0.0 for name in ("ply", "two plies", "other", "same")}
        self._nums = dict.fromkeys(self._sums, 0)

    def add(self, plies, movers):
        """Take a position in each of at most three plies of the same games, and who is to move there, [n]."""
        if len(plies) < 2:
            return
        changed = movers[-1] != movers[-2]
        self.twice |= not changed.all()
        now = self._count(plies[-2], plies[-1])
        self._take("other", now[changed])
        self._take("same", now[~changed])
        if len(plies) == 3:
            in_turns = changed & (movers[-1] == movers[-3])
            self._take("ply", self._count(plies[-3], plies[-2])[in_turns])
            self._take("two plies", self._count(plies[-3], plies[-1])[in_turns])

    def _take(self, name, counts):
        self._sums[name] = self._sums[name] + counts.sum(axis=0)
        self._nums[name] += len(counts)

    def view(self, parts):
        """Return MOVER if any of the parts, bool, turns over with the mover, BOARD if none does; None: not known."""
        names = ("ply", "two plies") if self._nums["ply"] >= TURNS_MIN else ("other", "same")
        if not all(self._nums[name] for name in names) or not parts.any():
            return None
        other, same = (self._sums[name][parts] / self._nums[name] for name in names)
        return MOVER if (other > SWAP * same + 0.01).any() else BOARD


def _bits(before, after):
    """Return how many bits of each number of a state differ, [n, S]."""
    differ = np.ascontiguousarray(before).view(np.uint8) ^ np.ascontiguousarray(after).view(np.uint8)
    return np.bitwise_count(differ).reshape(*before.shape, -1).sum(axis=2, dtype=np.int64)


def _cells(before, after):
    """Return how many cells of each plane differ, [n, C]."""
    return (before != after).sum(axis=(2, 3))


def check(game: Game, seen: Seen, rng: np.random.Generator) -> list[str]:
    """Return warnings, each of several lines. Raises AssertionError where `terminal` does not take the mover's view.

    seen: of random games that were played before. A game of one player has one view only; with three players or more
    `terminal` says whose value is which, so that only the planes are checked.
    """
    if game.num_players == 1:
        return []
    if game.num_players > 2:
        pair = _of_several(game, seen)
        return [_unseen_mover(game, pair)] if pair is not None else []
    if not len(seen.columns()) and len(set(game.to_play(seen.ends).tolist())) < 2:
        return []  # nothing to compare
    ends = Ends(game, seen, rng)
    pair = _alike(game, ends)
    if ends.both_win() and _asks_for_mover(game, ends) is not True:
        one_player = _asks_for_mover(game, ends) is False
        across = _agreement(ends)
        if one_player and across == -1:
            raise AssertionError(_one_player(game, ends))
        alike = ends.planes_view == MOVER and pair is not None
        if across == -1 or across == 0 and (alike or one_player and ends.twice and not _of_last_mover(ends)):
            return [_other_view(game, ends, pair)]
    return [_unseen_mover(game, pair)] if pair is not None else []


def _asks_for_mover(game, ends):
    """Return whether `terminal` turns the value over when the other player is to move: True or False if it does so in
    all ends or in none, None if it does in some or if that is not known."""
    values = ends.values[ends.rows]
    won = values != 0
    if won.sum() < ENDS_MIN:
        return None
    turned = game.terminal(ends.turned)[1]
    if (turned == -values)[won].all():
        return True
    return False if (turned == values)[won].all() else None


def _of_last_mover(ends):
    """Return whether the one who has moved last always wins, or always loses: then that is the rule."""
    results = np.where(ends.movers == ends.last, ends.values, -ends.values)
    return not ((results > 0).any() and (results < 0).any())


def _alike(game, ends):
    """Return two ends with equal planes, another player to move and another value, [2, S], or None. Ends that were
    made by changing who is to move come last."""
    pair = _same_planes(ends.states, ends.planes, ends.movers, ends.values)
    if pair is not None:
        return pair
    if len(ends.rows):
        same = (game.planes(ends.turned) == ends.planes[ends.rows]).all(axis=(1, 2, 3))
        same &= game.terminal(ends.turned)[1] != ends.values[ends.rows]
        for i in np.flatnonzero(same)[:1]:
            return np.stack([ends.states[ends.rows[i]], ends.turned[i]])
    return None


def _same_planes(states, planes, movers, values):
    """Return two states with equal planes, another player to move and another value, [2, S], or None. values: [n] of
    what can be compared."""
    first = {}
    for row, seen in enumerate(planes):
        same = first.setdefault(seen.tobytes(), {})
        for mate in same.values():
            if movers[mate] != movers[row] and values[mate] != values[row]:
                return states[[mate, row]]
        same.setdefault((movers[row], values[row]), row)
    return None


def _of_several(game, seen):
    """`_alike` for three players or more, whose values are compared as the player to move sees them."""
    ends, movers = seen.ends, game.to_play(seen.ends)
    relative = (movers[:, None] + np.arange(game.num_players)) % game.num_players
    values = np.take_along_axis(game.terminal(ends)[1], relative, axis=1)
    return _same_planes(ends, game.planes(ends), movers, [tuple(row) for row in values.tolist()])


def _agreement(ends):
    """Return 1 if ends where player 0 is to move and those where player 1 is teach the same, -1 if they teach opposite
    things, 0 if that is not known.

    A linear rule from the planes to the result is fitted to one kind of ends. Results are taken for the mover where
    planes take the mover's view, and for the player who began where they show the board as it is.
    """
    if ends.planes_view is None:
        return 0
    values = ends.values if ends.planes_view == MOVER else np.where(ends.movers == 0, ends.values, -ends.values)
    planes = ends.planes.astype(np.float64)
    numbers = np.concatenate([planes.reshape(len(planes), -1), planes.sum(axis=(2, 3))], axis=1)
    groups = [np.flatnonzero(ends.movers == player) for player in (0, 1)]
    within = min(_correlation(numbers, values, group[::2], group[1::2]) for group in groups)
    across = [_correlation(numbers, values, groups[k], groups[1 - k]) for k in (0, 1)]
    if within < SURE:
        return 0
    return 1 if min(across) >= SURE else -1 if max(across) <= -SURE else 0


def _correlation(numbers, values, known, asked):
    """Return the correlation of values with what a ridge regression on the rows `known` says of the rows `asked`."""
    mean = numbers[known].mean(axis=0)
    scale = numbers[known].std(axis=0)
    used = scale > 0
    if not used.any() or not np.ptp(values[known]) or not np.ptp(values[asked]):
        return 0.0
    known_x, asked_x = ((numbers[rows][:, used] - mean[used]) / scale[used] for rows in (known, asked))
    kernel = known_x @ known_x.T / used.sum()
    weights = np.linalg.solve(kernel + 0.1 * np.eye(len(known)), values[known] - values[known].mean())
    said = asked_x @ (known_x.T @ weights)
    return float(np.corrcoef(said, values[asked])[0, 1]) if np.ptp(said) else 0.0


def _described(game, state):
    """Return an end with what `to_play` and `terminal` say of it, in lines."""
    player = int(game.to_play(state[None])[0])
    if game.num_players > 2:
        values = ", ".join(f"{value:+g}" for value in game.terminal(state[None])[1][0])
        return f"    to_play {player}, values {values}\n{drawn(game, state)}"
    value = float(game.terminal(state[None])[1][0])
    winner = player if value > 0 else 1 - player
    means = f"so player {winner} has won" if value else "a draw"
    return f"    to_play {player}, value {value:+g}:\n    {means}\n{drawn(game, state)}"


def _pair(game, states):
    return side_by_side(*(_described(game, state) for state in states))


EXPECTED = "  expected: the value for the player whom to_play names in that state, also at the end of a game\n"


def _one_player(game, ends):
    i = int(np.argmax(ends.values[ends.rows] != 0))
    return (
        "terminal gives the value for one and the same player; the player to move does not matter\n"
        + EXPECTED
        + f"  got: the same value in all of {len(ends.rows)} ends when only who is to move is changed, so that the "
        f"winner is another player\n  the end of a random game, and the same with the other player to move:\n"
        f"{_pair(game, [ends.states[ends.rows[i]], ends.turned[i]])}"
    )


def _other_view(game, ends, pair):
    if pair is None:
        won = ends.values > 0
        pair = ends.states[[int(np.argmax(won & (ends.movers == player))) for player in (0, 1)]]
        why = "  got: values that do not turn over, as they should, with who is to move\n"
    else:
        why = "  got: two values where the player to move sees the same planes\n"
    return (
        "terminal seems to give the value for one and the same player; the player to move does not matter\n"
        + EXPECTED
        + why
        + f"  look whether these two ends name the right winner:\n{_pair(game, pair)}"
    )


def _unseen_mover(game, pair):
    return (
        "planes do not show who is to move\n"
        "  expected: other planes where the other player is to move and the value is another one\n"
        "  got: equal planes for these two states, so that the network gives both one value and one policy\n"
        f"{_pair(game, pair)}\n"
        "  show the mover's pieces first in planes, or add a plane that is 1 where player 1 is to move"
    )
