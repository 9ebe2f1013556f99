"""The invariants that every game must keep, checked on random play-outs."""

import numpy as np

from az_mpi.games.base import ACTIONS_MAX, NO_CELL, NOBODY, Game
from az_mpi.games.random_games import random_actions


def check(game: Game, games_num: int = 64, seed: int = 0) -> None:
    """Play `games_num` random games at once; raise AssertionError with the reason at the first broken invariant."""
    rng = np.random.default_rng(seed)
    _check_tables(game)
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


def _check_tables(game):
    """Symmetry tables are permutations of the right size and begin with the identity; actions turn with their cells."""
    _, height, width = game.planes_shape
    assert 1 <= game.num_actions <= ACTIONS_MAX, f"num_actions is {game.num_actions:,}; allowed: 1 to {ACTIONS_MAX:,}"
    sizes = ((game.symmetry_cells, height * width), (game.symmetry_actions, game.num_actions))
    for table, n in sizes:
        assert table.shape == (len(game.symmetry_cells), n), f"a symmetry table has shape {table.shape}"
        assert (np.sort(table, axis=1) == np.arange(n)).all(), "a symmetry is not a permutation"
        assert (table[0] == np.arange(n)).all(), "the first symmetry is not the identity"
    kinds, cells = game.action_kinds, height * width
    if (other := game.other_view) is not None:
        fits = other.shape == (cells,) and (np.sort(other) == np.arange(cells)).all()
        assert fits and (other[other] == np.arange(cells)).all(), "other_view does not lead back to the same cells"
    assert 0 <= kinds * cells <= game.num_actions, f"action_kinds is {kinds}; {cells} cells would have more actions"
    of_cells = game.symmetry_actions[:, : kinds * cells].reshape(len(game.symmetry_cells), cells, kinds)
    turn_together = (of_cells // max(kinds, 1) == game.symmetry_cells[:, :, None]).all()
    assert turn_together, "a symmetry turns actions otherwise than the cells that action_kinds gives them"


def _check_states(game, states):
    """Shapes, dtypes and ranges; return which states are terminal, bool [B]."""
    n = len(states)
    shape_fits = states.shape == (n, game.state_size) and states.dtype == game.state_dtype
    assert shape_fits, "states have another shape or dtype"
    legal, planes, player = game.legal(states), game.planes(states), game.to_play(states)
    ended, value = game.terminal(states)
    assert legal.shape == (n, game.num_actions) and legal.dtype == bool, "legal is not bool [B, A]"
    assert game.planes_dtype in (np.uint8, np.float32), "planes_dtype is neither uint8 nor float32"
    planes_fit = planes.shape == (n, *game.planes_shape) and planes.dtype == game.planes_dtype
    assert planes_fit, f"planes are not {game.planes_dtype} [B, C, H, W]"
    assert player.dtype == np.int8 and np.isin(player, (0, 1)).all(), "to_play is not int8 0 or 1"
    assert ended.dtype == bool and value.dtype == np.float32, "terminal is not (bool, float32)"
    assert (np.abs(value) <= 1).all() and (value[~ended] == 0).all(), "a value is out of [-1, 1], or not 0 in play"
    assert legal[~ended].any(axis=1).all(), "a state in play has no legal action"
    assert isinstance(game.show(states[0]), str), "show does not return text"
    _check_board(game.board(states[0]))
    _check_points(game, states, ended, np.where(player == 0, value, -value))
    return ended


def _check_points(game, states, ended, outcome):
    """Points and owners of cells, where a game has them. outcome: for the player who began, [B]."""
    lead, (owned, other) = game.lead(states), (game.ownership(states, player) for player in (0, 1))
    if lead is not None:
        assert lead.shape == (len(states),) and lead.dtype == np.float32, "lead is not float32 [B]"
        assert (np.sign(lead) == np.sign(outcome))[ended].all(), "lead and terminal name different winners"
    if owned is not None:
        shape = len(states), *game.planes_shape[1:]
        assert owned.shape == shape and owned.dtype == np.int8, "ownership is not int8 [B, H, W]"
        assert np.isin(owned, (-1, 0, 1)).all(), "ownership is not -1, 0 or 1"
        fits = other.shape == shape and (owned.sum(axis=(1, 2)) == -other.sum(axis=(1, 2))).all()
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
    assert keys.dtype == np.uint64 and symmetry.dtype == np.int64, "canonical_key is not (uint64, int64)"
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
