"""The invariants that every game must keep, checked on random play-outs."""

import copy

import numpy as np

from az_mpi.core.problems import OwnCodeError
from az_mpi.games.base import NO_CELL, NOBODY, Game
from az_mpi.games.guard import guarded
from az_mpi.games.random_games import random_actions


def check(game: Game, games_num: int = 64, seed: int = 0) -> None:
    """Play `games_num` random games at once; raise AssertionError with the reason at the first broken invariant."""
    try:
        _play(guarded(copy.copy(game), exact=True), games_num, seed)
    except OwnCodeError as error:
        raise AssertionError(str(error)) from error


def _play(game, games_num, seed):
    rng = np.random.default_rng(seed)
    states = game.initial(games_num)
    assert not game.to_play(states).any(), "to_play is not 0 for the player who begins"
    # A second set of games plays the same moves, turned by one symmetry each: it must stay the image of the first.
    k = rng.integers(len(game.symmetry_cells), size=games_num)
    mirrored = game.initial(games_num)
    seen, boards, moves = {}, {}, {}
    for _ in range(game.max_plies + 1):
        ended = _check_states(game, states)
        _check_mirror(game, states, mirrored, k)
        for state, key in zip(states, game.key(states)):
            assert seen.setdefault(int(key), state.tobytes()) == state.tobytes(), "two states share a key"
        _check_canonical(game, states, mirrored, boards, moves)
        live = ~ended
        if live.any():
            _check_notation(game, states[live][0])
        if not live.any():
            return
        states, mirrored, k = states[live], mirrored[live], k[live]
        actions = random_actions(game.legal(states), rng.random(len(states)))
        before, mover = states.copy(), game.to_play(states)
        after = game.play(states, actions)
        assert (states == before).all(), "play changed the states it was given"
        assert (game.play(states, actions) == after).all(), "play gives two answers for the same move"
        assert (mover == game.to_play(before)).all(), "to_play depends on more than the state"
        mirrored = game.play(mirrored, np.argmax(game.symmetry_actions[k] == actions[:, None], axis=1))
        states = after
    raise AssertionError(f"a game is longer than max_plies = {game.max_plies}")


def _check_states(game, states):
    """Shapes, dtypes and ranges, which `guard` checks; return which states are terminal, bool [B]."""
    game.legal(states), game.planes(states)
    player, (ended, value) = game.to_play(states), game.terminal(states)
    game.show(states[0])
    _check_board(game.board(states[0]))
    _check_points(game, states, ended, np.where(player == 0, value, -value))
    return ended


def _check_points(game, states, ended, outcome):
    """Points and owners of cells, where a game has them. outcome: for the player who began, [B]."""
    lead, (owned, other) = game.lead(states), (game.ownership(states, player) for player in (0, 1))
    if lead is not None:
        assert (np.sign(lead) == np.sign(outcome))[ended].all(), "lead and terminal name different winners"
    if owned is not None:
        fits = (owned.sum(axis=(1, 2)) == -other.sum(axis=(1, 2))).all()
        assert fits, "a cell that one player owns is not lost to the other one in ownership"


def _check_board(board):
    """Every part of a board has its size, where a game gives one."""
    if board is None:
        return
    players = board.players
    assert players.ndim == 2 and players.dtype == np.int8, "the board's players are not int8 [H, W]"
    assert np.isin(players, (NO_CELL, -1, 0, 1, NOBODY)[: 5 if board.symbols else 4]).all(), (
        "the board's players are not -1, 0 or 1")  # fmt: skip
    assert board.shape in ("square", "hex"), f"the board's shape is {board.shape!r}"
    height, width = players.shape
    for name, size in (("symbols", height), ("columns", width), ("rows", height)):
        assert len(getattr(board, name)) in (0, size), f"the board's {name} are not {size}"
    assert all(len(row) == width for row in board.symbols), f"a row of the board's symbols is not {width} long"


def _check_notation(game, state):
    """Each legal action has a word of its own, which leads back to it. Of many words some are read back: to read one is
    to look through all of them."""
    words = {}
    for action in np.flatnonzero(game.legal(state[None])[0]):
        word = game.action_to_text(state, action)
        assert isinstance(word, str) and word.split() == [word], f"action {action} is {word!r}, not one word"
        assert words.setdefault(word, action) == action, f"actions {words[word]} and {action} are both {word}"
    for word, action in list(words.items())[:: 1 + len(words) // 16]:
        assert game.text_to_action(state, word) == action, f"text_to_action takes {word} for another action"


def _check_mirror(game, states, mirrored, k):
    """Playing the turned moves leads to the turned board."""
    cells, actions = game.symmetry_cells[k], game.symmetry_actions[k]
    planes = game.planes(states).reshape(len(states), game.planes_shape[0], -1)
    turned = np.take_along_axis(planes, cells[:, None, :], axis=2)
    assert (turned == game.planes(mirrored).reshape(turned.shape)).all(), "a symmetry does not map boards to boards"
    ended, value = game.terminal(states)
    ended_too, value_too = game.terminal(mirrored)
    assert (ended == ended_too).all() and (value == value_too).all(), "a symmetry changes the result"
    turned_legal = np.take_along_axis(game.legal(states), actions, axis=1)
    assert (turned_legal == game.legal(mirrored))[~ended].all(), "a symmetry does not map legal actions"
    for player in (0, 1):
        if (owned := game.ownership(states, player)) is not None:
            turned = np.take_along_axis(owned.reshape(len(states), -1), cells, axis=1)
            same = turned == game.ownership(mirrored, player).reshape(turned.shape)
            assert same.all(), "a symmetry does not map owners of cells"


def _check_canonical(game, states, mirrored, boards, moves):
    """All images of a board have one canonical key, the symmetries that come with it turn them into one image, and no
    other board, nor one with other legal moves, has that key. boards, moves: {key: that image's planes, its legal
    moves} of all boards so far."""
    (keys, symmetry), (keys_too, symmetry_too) = game.canonical_key(states), game.canonical_key(mirrored)
    assert (keys == keys_too).all(), "images of a board have different canonical keys"
    both, k = np.concatenate([states, mirrored]), np.concatenate([symmetry, symmetry_too])
    planes = game.planes(both).reshape(2 * len(states), game.planes_shape[0], -1)
    turned = np.take_along_axis(planes, game.symmetry_cells[k][:, None, :], axis=2)
    legal = np.packbits(np.take_along_axis(game.legal(both), game.symmetry_actions[k], axis=1), axis=1)
    rows = zip(np.concatenate([keys, keys_too]).tolist(), turned, legal, game.terminal(both)[0])
    for key, board, allowed, is_over in rows:
        assert boards.setdefault(key, board.tobytes()) == board.tobytes(), "two boards have one canonical key"
        if not is_over:  # evaluations are kept by this key, of the legal moves alone
            same = moves.setdefault(key, allowed.tobytes()) == allowed.tobytes()
            assert same, "two positions with one canonical key have different legal moves"
