"""The replay window: its size, its rows, and samples seen through symmetries."""

import tracemalloc

import numpy as np
import pytest
from helpers import Hashed, board, make_config, play_games

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.network.heads.value import Value
from az_mpi.search.puct import Search
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import GAME, POLICY, Record, position_dtype
from az_mpi.train.replay import ILLEGAL, Replay, Samples, sample_dtype, to_samples, turn, window_size

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
VALUE = {"value": Value(TICTACTOE, channels=8)}  # the only head whose target a row has


def numbered(*indices, game=TICTACTOE):
    """Return samples that tell their index k: value k / 1000, and k modulo 4 policy entries from action k on."""
    rows = np.zeros(len(indices), sample_dtype(game, VALUE))
    rows["index"], rows["value"], rows["weight"] = indices, np.array(indices) / 1000, 1
    return Samples.of(rows, np.array([policy_of_number(k, game) for k in indices]).reshape(-1, game.num_actions))


def policy_of_number(k, game):
    policy = np.zeros(game.num_actions, np.float32)
    policy[(k + np.arange(k % 4)) % game.num_actions] = 0.25 + np.arange(k % 4)
    return policy


class InOrder:
    """In place of a random generator: the numbers from 0 on, in order; no symmetry but the first."""

    def __init__(self, num):
        self.num = num

    def integers(self, high, size):
        return np.arange(size) if high == self.num else np.zeros(size, np.int64)


def held(replay):
    """Return the indices of the positions held, oldest first; their policies are theirs."""
    batch = replay.sample(InOrder(replay.num_positions), replay.num_positions)
    indices = np.rint(batch["value"] * 1000).astype(int).tolist()
    assert all((row == policy_of_number(k, replay.game)).all() for k, row in zip(indices, batch["policy"]))
    return indices


@pytest.mark.parametrize(
    "made, expected",
    [(0, 100), (150, 100), (200, 100), (203, 101), (300, 150), (1999, 999), (2000, 1000), (10**9, 1000)],
)
def test_window_by_hand(made, expected):
    """Half of the positions made, never under 100 nor over 1000."""
    settings = models.Replay(window_min=100, window_max=1000, window_growth=0.5)
    assert window_size(settings, made) == expected


@pytest.mark.parametrize(
    "made, expected", [(0, 1000), (1000, 1000), (16_000, 4733), (81_000, 14_866), (625_000, 20_000)]
)
def test_a_window_that_grows_more_and_more_slowly_by_hand(made, expected):
    """KataGo's, with c = 1000: 16^0.75 = 8, so 1000 (1 + 0.4 (8 - 1) / 0.75) = 4733; 81^0.75 = 27; 20,000 at most."""
    settings = models.Replay(window_min=1000, window_max=20_000, window_growth=0.4, window_exponent=0.75)
    assert window_size(settings, made) == expected


@pytest.fixture(scope="module")
def record():
    settings = make_config("connect4", search={"simulations": 10}, selfplay={"parallel_games": 4})
    return play_games(Player(settings, CONNECT4, Hashed(CONNECT4), 0), range(6))


def test_samples_are_the_positions_of_the_record_in_order(record):
    samples = to_samples(record, CONNECT4, VALUE, models.Train(root_value_share=0.0), 1000)
    n, rows = len(record.positions), samples.rows
    assert rows["index"].tolist() == list(range(1000, 1000 + n))
    for name in ("ply", "state", "value", "policy_count"):
        assert (rows[name] == record.positions[name]).all()
    assert (rows["weight"] == 1).all() and (samples.policy == record.policy).all()
    assert len(to_samples(Record.empty(CONNECT4), CONNECT4, VALUE, models.Train(), 5).rows) == 0
    replay = Replay(CONNECT4, VALUE)
    replay.add(samples)
    assert replay.num_positions == n and (policies(replay, n) == record.dense_policy(7)).all()


def policies(replay, n):
    """Return the policies of the first n positions, 0 where an action is not legal."""
    return np.maximum(replay.sample(InOrder(n), n)["policy"], 0)


def test_actions_that_are_not_legal_are_marked_on_every_turned_board():
    """A board with three stones, whose policy has one of the free cells: 5 free cells are 0, 3 others -1."""
    states = board(
        TICTACTOE,
        """
        X O .
        . . .
        . . X
        """,
    )
    rows = np.zeros(1, sample_dtype(TICTACTOE, VALUE))
    rows["state"] = states
    replay = Replay(TICTACTOE, VALUE)
    replay.add(Samples.of(rows, np.eye(9, dtype=np.float32)[[4]]))
    batch = replay.sample(np.random.default_rng(1), 100)
    taken = batch["planes"].reshape(100, -1, 9).any(axis=1)
    assert ((batch["policy"] == ILLEGAL) == taken).all() and (taken.sum(axis=1) == 3).all()
    assert (batch["policy"][:, 4] == 1).all() and len(np.unique(taken, axis=0)) > 3


def test_value_target_by_hand():
    """Outcomes 1 and -1, the search thought 0.5 and 0.25: with a quarter of its opinion 0.875 and -0.6875."""
    record = Record(np.zeros(1, GAME), np.zeros(2, position_dtype(TICTACTOE)), np.zeros(0, POLICY))
    record.positions["value"], record.positions["root_value"] = [1, -1], [0.5, 0.25]
    for share, expected in ((0.25, [0.875, -0.6875]), (0.0, [1, -1]), (1.0, [0.5, 0.25])):
        settings = models.Train(root_value_share=share)
        assert to_samples(record, TICTACTOE, VALUE, settings, 0).rows["value"].tolist() == expected
    assert record.positions["value"].tolist() == [1, -1]  # what is stored stays the outcome


def test_forget_drops_what_is_older():
    replay = Replay(TICTACTOE, VALUE)
    replay.add(numbered(3, 5, 7))
    replay.add(numbered(9, 11))
    replay.forget(7)
    assert held(replay) == [7, 9, 11]
    replay.forget(0)
    assert replay.num_positions == 3
    replay.forget(12)
    assert replay.num_positions == 0
    replay.add(numbered(13, 14))
    assert held(replay) == [13, 14]


def test_positions_are_found_by_their_indices():
    """Also where the ring starts again; those that are not held, or are another shard's, are left out."""
    replay = Replay(TICTACTOE, VALUE)
    assert replay.find(np.array([0, 3]))[0].tolist() == [False, False]
    for first in range(0, 120, 10):
        samples = numbered(*range(first + 1, first + 11, 3))
        samples.rows["ply"], samples.rows["state"] = samples.rows["index"] % 7, samples.rows["index"][:, None]
        replay.add(samples)
        replay.forget(first - 20)
    found, states, plies = replay.find(np.array([111, 1, 97, 104, 111, 200, 98, 88, 91]))
    assert found.tolist() == [True, False, True, True, True, False, False, False, True]
    assert states.tolist() == [[k] * TICTACTOE.state_size for k in (111, 97, 104, 111, 91)]
    assert plies.tolist() == [111 % 7, 97 % 7, 104 % 7, 111 % 7, 91 % 7]


@pytest.mark.long
def test_a_window_that_slides_holds_the_newest_rows_where_they_are():
    """An eighth in reserve; once it is full, no row is moved and no memory taken but for what is added."""
    rng, replay, made, size, peaks, sizes = np.random.default_rng(1), Replay(TICTACTOE, VALUE), 0, 8_000, [], []
    tracemalloc.start()
    try:
        for _ in range(200):
            new = numbered(*range(made, made + int(rng.integers(0, 600))))
            made += len(new.rows)
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            replay.add(new)
            replay.forget(made - size)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            sizes.append(replay.num_bytes)
            if made % 7 == 0 or len(sizes) == 200:
                assert held(replay) == list(range(max(0, made - size), made))
        assert replay.num_positions == size and sizes[100] == sizes[-1]
        assert max(peaks[100:]) < 600 * 100
        row_bytes = sample_dtype(TICTACTOE, VALUE).itemsize + 8 + 1.5 * POLICY.itemsize  # 1.5 entries each
        assert sizes[-1] < 1.15 * (size + 600) * row_bytes
    finally:
        tracemalloc.stop()


def test_policies_take_memory_by_their_entries_not_by_the_actions():
    """10,000 positions with three moves each, of a game with 5,000 actions."""
    large = type(TICTACTOE)()
    large.num_actions = 5000
    replay, rows = Replay(large, VALUE), np.zeros(10_000, sample_dtype(TICTACTOE, VALUE))
    rows["index"], rows["policy_count"] = np.arange(10_000), 3
    policy = np.zeros(30_000, POLICY)
    policy["action"] = np.random.default_rng(1).integers(5000, size=30_000)
    replay.add(Samples(rows, policy))
    assert replay.num_bytes < 10_000 * 100


def test_an_empty_shard_gives_no_samples_of_the_right_shape():
    batch = Replay(CONNECT4, VALUE).sample(np.random.default_rng(0), 5)
    assert batch["planes"].shape == (0, 2, 6, 7) and batch["planes"].dtype == np.uint8
    assert batch["policy"].shape == (0, 7) and batch["value"].shape == batch["weight"].shape == (0,)
    replay = Replay(CONNECT4, VALUE)
    replay.add(numbered(1, game=CONNECT4))
    assert [len(part) for part in replay.sample(np.random.default_rng(0), 0).values()] == [0] * 4


def test_samples_are_drawn_uniformly_with_replacement():
    """9000 draws of 30 rows: chi-square with 29 degrees of freedom is above 70 by chance once in 30,000."""
    replay = Replay(TICTACTOE, VALUE)
    replay.add(numbered(*range(30)))
    batch = replay.sample(np.random.default_rng(1), 9000)
    assert batch["planes"].shape == (9000, 2, 3, 3) and batch["policy"].shape == (9000, 9)
    assert (batch["weight"] == 1).all()
    counts = np.bincount(np.rint(batch["value"] * 1000).astype(int), minlength=30)
    assert len(counts) == 30 and ((counts - 300) ** 2 / 300).sum() < 70


def test_samples_depend_on_the_generator_alone():
    replay = Replay(TICTACTOE, VALUE)
    replay.add(numbered(*range(30)))
    one, same, other = (replay.sample(np.random.default_rng(seed), 50) for seed in (1, 1, 2))
    assert all((one[name] == same[name]).all() for name in one) and (one["value"] != other["value"]).any()


@pytest.mark.parametrize("game", [TICTACTOE, CONNECT4])
def test_samples_are_those_of_plain_indexing(game):
    """The compiled kernels against numpy's indexing of whole rows, on random states, for the same generator."""
    rng, rows = np.random.default_rng(4), np.zeros(200, sample_dtype(game, VALUE))
    rows["state"] = rng.integers(0, 1 << 9, rows["state"].shape)
    policy = rng.random((200, game.num_actions), np.float32) * (rng.random((200, game.num_actions)) < 0.5)
    rows["value"], rows["weight"] = rng.random((2, 200))
    replay = Replay(game, VALUE)
    replay.add(Samples.of(rows, policy))
    rng = np.random.default_rng(5)
    places, symmetry = rng.integers(200, size=1000), rng.integers(len(game.symmetry_cells), size=1000)
    drawn = rows[places]
    cells, actions = game.symmetry_cells[symmetry], game.symmetry_actions[symmetry]
    planes = np.take_along_axis(game.planes(drawn["state"]).reshape(1000, 2, -1), cells[:, None, :], axis=2)
    marked = np.where((policy == 0) & ~game.legal(rows["state"]), ILLEGAL, policy)
    policy = np.take_along_axis(marked[places], actions, axis=1)
    expected = {
        "planes": planes.reshape(1000, *game.planes_shape),
        "policy": policy,
        "value": drawn["value"],
        "weight": drawn["weight"],
    }
    batch = replay.sample(np.random.default_rng(5), 1000)
    assert batch.keys() == expected.keys()
    for name, plain in expected.items():
        ours = batch[name]
        assert ours.dtype == plain.dtype and ours.shape == plain.shape and (ours == plain).all()


def test_each_symmetry_is_as_likely_and_value_and_weight_stay_with_their_position():
    """X in a corner, O beside it: each of the 8 views is recognised by their places."""
    corner = board(
        TICTACTOE,
        """
        X O .
        . . .
        . . .""",
    )
    rows = np.zeros(2, sample_dtype(TICTACTOE, VALUE))
    rows["state"] = np.concatenate([corner, TICTACTOE.initial(1)])
    rows["value"], rows["weight"] = [0.5, -0.25], [2, 3]
    replay = Replay(TICTACTOE, VALUE)
    replay.add(Samples.of(rows, np.tile(np.arange(9) == 1, (2, 1))))
    planes, policy, value, weight = map(
        replay.sample(np.random.default_rng(3), 4000).get, ("planes", "policy", "value", "weight")
    )
    ours = planes.any(axis=(1, 2, 3))
    assert ((value == 0.5) == ours).all() and ((value == -0.25) == ~ours).all()
    assert (weight == np.where(ours, 2, 3)).all()
    flat = planes[ours].reshape(-1, 2, 9)
    x, o = flat[:, 0].argmax(axis=1), flat[:, 1].argmax(axis=1)
    assert (policy[ours][np.arange(len(o)), o] == 1).all()  # the policy's cell was O's
    views, counts = np.unique(np.stack([x, o], axis=1), axis=0, return_counts=True)
    assert len(views) == 8 and ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 35  # 7 degrees of freedom


@pytest.mark.parametrize(
    "game, drawing, action, cell",
    [
        (TICTACTOE, "X X .\nO O .\n. . .", 2, (0, 2)),
        (TICTACTOE, "X O .\nO X .\n. . .", 8, (2, 2)),
        (CONNECT4, "\n".join([". . . . . . ."] * 3 + ["O . . . . . .", "O . . . . . .", "O X X . X . ."]), 3, (5, 3)),
        (CONNECT4, "\n".join([". . . . . . ."] * 3 + ["O X . . . . .", "O X . . . . .", "O X . . . . ."]), 1, (2, 1)),
    ],
)
def test_the_winning_move_turns_with_the_board(game, drawing, action, cell):
    """In each symmetry, the turned policy's move played on the turned board wins: its stone makes the line."""
    state = board(game, drawing)
    policy = np.zeros((1, game.num_actions), np.float32)
    policy[0, action] = 1
    after = game.planes(game.play(state, np.array([action])))[:, ::-1]  # as the one who moved sees it
    assert after[0, 0][cell] == 1 and game.planes(state)[0, 0][cell] == 0
    for k in range(len(game.symmetry_cells)):
        turned, turned_policy = turn(game, game.planes(state), policy, np.array([k]))
        assert turned.shape == (1, *game.planes_shape) and turned_policy.sum() == 1
        turned_after, _ = turn(game, after, policy, np.array([k]))
        row, column = np.argwhere(turned_after[0, 0] != turned[0, 0])[0]  # where the winning stone comes to lie
        move = int(turned_policy[0].argmax())
        assert move == (3 * row + column if game is TICTACTOE else column)


def test_search_on_a_turned_board_finds_the_turned_policy():
    """X must block at b1: a search of each of the eight views finds that cell where the table puts it."""
    state = board(
        TICTACTOE,
        """
        X O X
        . O .
        . . .""",
    )
    planes = TICTACTOE.planes(state)
    search = Search(TICTACTOE, UniformEvaluator(TICTACTOE), models.Search(simulations=600), 8, noise=False)
    policy = np.zeros((1, 9), np.float32)
    policy[0, 7] = 1
    starts = []
    for k in range(8):
        turned, _ = turn(TICTACTOE, planes, policy, np.array([k]))
        bits = (turned.reshape(2, 9) * (1 << np.arange(9))).sum(axis=1)
        starts.append(bits)
    search.reset(np.arange(8), np.array(starts, np.uint16), np.zeros(8, np.uint64))
    search.run(np.arange(8))
    expected = [turn(TICTACTOE, planes, policy, np.array([k]))[1].argmax() for k in range(8)]
    assert search.choose(np.arange(8), np.zeros(8)).tolist() == expected
    assert len(set(expected)) == 4
