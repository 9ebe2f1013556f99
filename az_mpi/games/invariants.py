"""The invariants that every game must keep, checked on random play-outs.

Each message begins with the method or the attribute that is wrong, and draws the state.
"""

import copy

import numpy as np

from az_mpi.games import perspective
from az_mpi.games.base import CHANCE, Game
from az_mpi.games.board_data import NO_CELL, NOBODY
from az_mpi.games.chance_check import TURNED, Lots
from az_mpi.games.guard import BrokenRules, guarded
from az_mpi.games.perspective import Seen
from az_mpi.games.random_games import random_actions
from az_mpi.games.state_text import drawn, expect, in_state, same


def check(rules: Game, num_games: int = 64, seed: int = 0) -> list[str]:
    """Play `num_games` random games at once; raise AssertionError with the reason at the first broken invariant.

    Returns warnings, each of several lines: what is likely a mistake but breaks no invariant.
    """
    try:
        return _play(guarded(copy.copy(rules), exact=True), num_games, np.random.default_rng(seed))
    except BrokenRules as error:
        raise AssertionError(error.what) from error


def _play(game, num_games, rng):
    states = game.initial(num_games)
    choices, seen, lots, results = _Choices(game), Seen(), Lots(game, rng), _Results(game)
    floors = np.full(num_games, -np.inf, np.float32)
    begins = game.to_play(states)
    expect((begins == 0) | (begins == CHANCE), "to_play is not 0 for the player who begins", game, states)
    # A second set of games plays the same moves, turned by one symmetry each: it must stay the image of the first.
    k = rng.integers(len(game.symmetry_cells), size=num_games)
    if game.num_outcomes:
        k[TURNED:] = 0
    mirrored, plies = game.initial(num_games), np.zeros(num_games, np.int64)
    keys = {}
    boards = {}
    moves = {}
    last = np.full(num_games, -1)
    while True:
        for chance_state in states[begins == CHANCE]:
            _check_keys(game, chance_state[None], keys)
        states, mirrored, k, plies = lots.played(states, mirrored, k, plies)
        ended = _check_states(game, states, results)
        floors = _check_floor(game, states, ended, floors)
        seen.add(states, game.to_play(states), ended, last)
        _check_mirror(game, states, mirrored, k)
        _check_keys(game, states, keys)
        _check_canonical(game, states, mirrored, boards, moves)
        live = ~ended
        if live.any():
            _check_notation(game, states[live][0])
        if not live.any():
            results.check()
            return choices.warnings() + perspective.check(game, seen, rng)
        states, mirrored, k, plies, floors = (part[live] for part in (states, mirrored, k, plies, floors))
        if (plies >= game.max_plies).any():
            raise AssertionError(_too_long(game, num_games, choices, states[plies >= game.max_plies]))
        legal = game.legal(states)
        mover = game.to_play(states)
        choices.add(legal, mover)
        last = mover
        actions = random_actions(legal, rng.random(len(states)))
        states = _checked_play(game, states, actions, mover)
        mirrored = game.play(mirrored, np.argmax(game.symmetry_actions[k] == actions[:, None], axis=1))
        plies, begins = plies + 1, game.to_play(states)


def _checked_play(game, states, actions, mover):
    """Return the states after the actions: the given ones stay as they are, and a second time gives the same."""
    before = states.copy()
    after = game.play(states, actions)
    expect(same(states, before), "play changed the states that it was given", game, before)
    expect(
        same(game.play(states, actions), after),
        "play gives two answers for the same move",
        game,
        before,
        lambda i: f"action {actions[i]}",
    )
    expect(mover == game.to_play(before), "to_play depends on more than the state", game, before)
    return after


def _check_floor(game, states, ended, before):
    """Return what `floor_plane` shows, float32 [n], which never falls and is no more than the result. before: what it
    showed earlier in each game."""
    if game.floor_plane is None:
        return before
    named = f"floor_plane is {game.floor_plane}, and that plane"
    plane = game.planes(states)[:, game.floor_plane].reshape(len(states), -1)
    floors = plane[:, 0].astype(np.float32)
    alike = (plane == plane[:, :1]).all(axis=1) & (np.abs(floors) <= 1)
    expect(alike, f"{named} does not show one value of [-1, 1] in all cells", game, states)
    expect(
        floors >= before,
        f"{named} shows less than earlier in the game",
        game,
        states,
        lambda i: f"expected at least {before[i]:g}, got {floors[i]:g}",
    )
    value = game.terminal(states)[1]
    expect(
        ~ended | (floors <= value + 1e-6),
        f"{named} shows more than the result",
        game,
        states,
        lambda i: f"expected at most {value[i]:g}, as terminal says, got {floors[i]:g}",
    )
    return floors


class _Results:
    """The scores and the values of all states, in a game that has scores: they must have one order."""

    def __init__(self, game) -> None:
        self._game, self._states, self._scores, self._values = game, [], [], []
        self._ended = []

    def add(self, states, ended, value):
        score = self._game.score(states)
        if score is not None:
            for part, more in zip(
                (self._states, self._scores, self._values, self._ended), (states, score, value, ended)
            ):
                part.append(more)

    def check(self):
        if not self._states:
            return
        expect(
            bool(self._game.score_name), "score_name is empty: it says what score counts", self._game, self._states[0]
        )
        states, score, value, ended = map(np.concatenate, (self._states, self._scores, self._values, self._ended))
        if not value[~ended].any():  # then the game counts nothing before its end
            states, score, value = states[ended], score[ended], value[ended]
        order = np.lexsort((value, score))
        score, value = score[order], value[order]
        best = np.maximum.accumulate(value)
        wrong = np.flatnonzero(best > value + 1e-6)
        for i in wrong[:1]:
            j = int(np.argmax(value == best[i]))
            both = [in_state(self._game, states[order[at]]) for at in (j, i)]
            raise AssertionError(
                "score and terminal have different orders: of two states the one with the larger score has the smaller "
                f"value\n  scores {score[j]:g} and {score[i]:g}, values {value[j]:+g} and {value[i]:+g}\n"
                + "\n".join(both)
            )


class _Choices:
    """Who was to move in states in play, and between how many actions that player could choose."""

    def __init__(self, game) -> None:
        self._game = game
        self._most = {}
        self._least = game.num_actions

    def add(self, legal, mover):
        nums = legal.sum(axis=1)
        self._least = min(self._least, nums.min())
        for player in set(mover.tolist()):
            self._most[player] = max(self._most.get(player, 0), nums[mover == player].max())

    @property
    def all_legal(self):
        """Whether every action was legal in every state."""
        return self._least == self._game.num_actions

    def warnings(self):
        if self._game.num_players > 2:
            idle = sorted(set(range(self._game.num_players)) - set(self._most))
            return [
                f"player {player} never moves\n"
                f"  expected: moves of all players, 0 to {self._game.num_players - 1}, as num_players says\n"
                f"  got: from to_play, in all random games, only {', '.join(map(str, sorted(self._most)))}"
                for player in idle[:1]
            ]
        for player in (0, 1) if self._game.num_players == 2 else ():
            if self._most.get(player, 0) < 2 <= self._most.get(1 - player, 0):
                does = "has never more than one legal action" if player in self._most else "never moves"
                method = "legal" if player in self._most else "to_play"
                return [
                    f"this game seems to have one player: player {player} {does}\n"
                    "  expected: two players who move against each other, as num_players is 2\n"
                    f"  got: from {method}, in all random games, a choice for player {1 - player} alone\n"
                    "  set num_players = 1 in the game: its value is then what the one player gets; as a game of two, "
                    "matches, ratings and levels of play mean nothing in it"
                ]
        return []


def _too_long(game, num_games, choices, states):
    """Return what is said of a game that is longer than max_plies, with the method that is likely wrong."""
    ended = num_games - len(states)
    likely = "max_plies is too low, or terminal must end a game after so many moves, for example as a draw"
    if not ended:
        likely = f"terminal ended none of the games: terminal is wrong, or {likely}"
    if choices.all_legal and game.num_actions > 1:
        likely = (
            f"legal allowed all {game.num_actions} actions in every state: if the rules forbid some, legal is "
            f"wrong\n  {likely}"
        )
    return (
        f"a game is longer than max_plies = {game.max_plies}\n"
        f"  expected: terminal ends each game after at most {game.max_plies} moves\n"
        f"  got: {ended} of {num_games} random games have ended then, the others have not\n"
        f"  {likely}\n{in_state(game, states[0])}"
    )


def _check_keys(game, states, keys):
    """States that differ have different keys. keys: {key: the state's bytes} of all states so far."""
    for state, key in zip(states, game.key(states)):
        other = keys.setdefault(int(key), state.tobytes())
        if other != state.tobytes():
            other = np.frombuffer(other, state.dtype)
            both = f"{in_state(game, other)}\n{in_state(game, state)}"
            raise AssertionError(f"key: two states share a key, {key}\n{both}")


def _check_states(game, states, results):
    """Shapes, dtypes and ranges, which `guard` checks; return which states are terminal, bool [B]."""
    player, (ended, value) = game.to_play(states), game.terminal(states)
    expect((player != CHANCE) | ~ended, "to_play is CHANCE where the game is over; there it is a player", game, states)
    game.planes(states), game.legal(states)
    _check_board(game.board(states[0]), game.num_players)
    game.show(states[0])
    results.add(states, ended, value)
    if game.num_players == 2:
        _check_points(game, states, ended, np.where(player == 0, value, -value))
    else:
        game.lead(states), game.ownership(states, 0)  # a game of another kind has none, as `guard` says
    return ended


def _check_points(game, states, ended, outcome):
    """Points and owners of cells, where a game has them. outcome: for the player who began, [B]."""
    lead, (owned, other) = game.lead(states), (game.ownership(states, player) for player in (0, 1))
    if lead is not None:
        expect(
            (np.sign(lead) == np.sign(outcome)) | ~ended,
            "lead and terminal name different winners",
            game,
            states,
            lambda i: f"lead is {lead[i]:+g} and terminal's value {outcome[i]:+g}, both for the player who began",
        )
    if owned is not None:
        fits = owned.sum(axis=(1, 2)) == -other.sum(axis=(1, 2))
        expect(
            fits,
            "ownership: a cell that one player owns is not lost to the other one in ownership",
            game,
            states,
            lambda i: f"player 0 has {owned[i].sum()} cells more than player 1, who has {other[i].sum()} more",
        )


def _check_board(board, num_players):
    """Every part of a board has its size, where a game gives one."""
    if board is None:
        return
    players = board.players
    assert players.ndim == 2 and players.dtype == np.int8, "the board's players are not int8 [H, W]"
    allowed = [*range(max(num_players, 2)), -1, NO_CELL, *([NOBODY] if board.symbols else [])]
    assert np.isin(players, allowed).all(), f"the board's players are not -1 to {max(num_players, 2) - 1}"
    assert board.shape in ("square", "hex"), f"the board's shape is {board.shape!r}"
    height, width = players.shape
    for name, size in (("symbols", height), ("columns", width), ("rows", height)):
        assert len(getattr(board, name)) in (0, size), f"the board's {name} are not {size}"
    assert all(len(row) == width for row in board.symbols), f"a row of the board's symbols is not {width} long"
    ends = np.array(board.strokes, np.int64).reshape(-1, 2)
    assert ((ends >= 0) & (ends < players.shape)).all(), "the board's strokes leave the board"


def _check_notation(game, state):
    """Each legal action has a word of its own, which leads back to it. Of many words some are read back: to read one is
    to look through all of them."""
    words = {}
    for action in np.flatnonzero(game.legal(state[None])[0]):
        word = game.action_to_text(state, action)
        if word.split() != [word]:
            expect(False, f"action_to_text: action {action} is {word!r}, not one word", game, state[None])
        if (same := words.setdefault(word, action)) != action:
            expect(False, f"action_to_text: actions {same} and {action} are both {word}", game, state[None])
    for word, action in list(words.items())[:: 1 + len(words) // 16]:
        try:
            found = game.text_to_action(state, word)
        except ValueError as error:
            found = f"ValueError: {error}"
        expect(
            found == action,
            f"text_to_action takes {word} for another action",
            game,
            state[None],
            f"expected {action}, got {found}",
        )


def _check_mirror(game, states, mirrored, k):
    """Playing the turned moves leads to the turned board."""
    cells = game.symmetry_cells[k]
    actions = game.symmetry_actions[k]

    def turns(fits, told, got=None):
        expect(
            fits,
            told,
            game,
            states,
            lambda i: (
                (f"{got(i)}\n  " if got else "")
                + f"its image, by the moves that symmetry {k[i]} gives:\n{drawn(game, mirrored[i])}"
            ),
        )

    planes = game.planes(states)
    image = game.planes(mirrored)
    planes, image = (part.reshape(len(states), game.planes_shape[0], -1) for part in (planes, image))
    turned = np.take_along_axis(planes, cells[:, None, :], axis=2)
    fits = (turned == image).all(axis=(1, 2))
    turns(fits, "a symmetry does not map boards to boards: symmetry_cells, symmetry_actions, planes or play is wrong")
    ended, value = game.terminal(states)
    ended_too, value_too = game.terminal(mirrored)
    turns(
        (ended == ended_too) & same(value, value_too),
        "terminal: a symmetry changes the result",
        lambda i: f"expected {ended[i], value[i].tolist()}, got {ended_too[i], value_too[i].tolist()}",
    )
    turned_legal = np.take_along_axis(game.legal(states), actions, axis=1)
    fits = (turned_legal == game.legal(mirrored)).all(axis=1)
    turns(fits | ended, "legal: a symmetry does not map legal actions")
    for player in (0, 1) if game.num_players == 2 else ():
        if (owned := game.ownership(states, player)) is not None:
            turned = np.take_along_axis(owned.reshape(len(states), -1), cells, axis=1)
            kept = turned == game.ownership(mirrored, player).reshape(turned.shape)
            turns(kept.all(axis=1), "ownership: a symmetry does not map owners of cells")


def _check_canonical(game, states, mirrored, boards, moves):
    """All images of a board have one canonical key, the symmetries that come with it turn them into one image, and no
    other board, nor one with other legal moves, has that key. boards, moves: {key: that image's planes, its legal
    moves} of all boards so far."""
    (keys, symmetry), (keys_too, symmetry_too) = game.canonical_key(states), game.canonical_key(mirrored)
    expect(
        keys == keys_too,
        "canonical_key: images of a board have different canonical keys",
        game,
        states,
        lambda i: f"its image:\n{drawn(game, mirrored[i])}",
    )
    both = np.concatenate([states, mirrored])
    k = np.concatenate([symmetry, symmetry_too])
    planes = game.planes(both).reshape(2 * len(states), game.planes_shape[0], -1)
    turned = np.take_along_axis(planes, game.symmetry_cells[k][:, None, :], axis=2)
    legal = np.packbits(np.take_along_axis(game.legal(both), game.symmetry_actions[k], axis=1), axis=1)
    rows = zip(both, np.concatenate([keys, keys_too]).tolist(), turned, legal, game.terminal(both)[0])
    for state, key, board, allowed, is_over in rows:
        if boards.setdefault(key, board.tobytes()) != board.tobytes():
            expect(False, "canonical_key: two boards have one canonical key", game, state[None])
        # Evaluations are kept by this key, of the legal moves alone.
        if not is_over and moves.setdefault(key, allowed.tobytes()) != allowed.tobytes():
            expect(
                False,
                "canonical_key: two positions with one canonical key have different legal moves",
                game,
                state[None],
                "expected: planes that show what makes the difference",
            )
