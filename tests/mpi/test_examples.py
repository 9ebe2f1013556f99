"""examples/: each is run as its README says, on two ranks, without a change of the package."""

import csv
import json

import numpy as np
import pytest
import torch
from jobs import ROOT, ids

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.core.registry import EVALUATORS, HEADS
from az_mpi.network import resnet
from az_mpi.selfplay.record import GAME, POLICY, Record, position_dtype
from az_mpi.storage import checkpoint

pytestmark = pytest.mark.mpi

EXAMPLES = ROOT / "examples"


@pytest.fixture
def run_example(mpirun, tmp_path):
    """Return run(name): train examples/NAME.json on two ranks into a new folder; (what it said, that folder)."""

    def run(name):
        config = EXAMPLES / f"{name}.json"
        return mpirun(2, "run_dist.py", "--config_file", config, "--logdir", tmp_path / "run").stdout, tmp_path / "run"

    return run


def records(run, kind):
    return [
        record for record in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if record["kind"] == kind
    ]


def hex_game(size):
    return games.make(f"{EXAMPLES}/own_game.py:Hex(size={size})")


def test_the_example_game_trains_and_is_evaluated(run_example, mpirun):
    assert len((EXAMPLES / "own_game.py").read_text().splitlines()) <= 110
    said, run = run_example("own_game")
    assert "game hex_3x3" in said and "complete: iteration 2 of 2" in said
    [evaluation] = [json.loads(path.read_text()) for path in (run / "evaluations").glob("*.json")]
    assert set(evaluation["matches"]) == {"random", "rollout"}  # there is no best network before the first evaluation
    assert all(match["draws"] == 0 for match in evaluation["matches"].values()), "Hex has no draws"
    assert evaluation["solver"]["num_positions"] > 1000
    mpirun(1, "-m", "az_mpi", "verify", run)
    assert "Hex(size=3)" in (run / "report.html").read_text()


def test_the_example_of_rules_for_one_position_trains(run_example):
    assert len((EXAMPLES / "own_rules.py").read_text().splitlines()) <= 60
    said, _ = run_example("own_rules")
    assert "game domineering_4x4" in said and "complete: iteration 2 of 2" in said


def test_the_example_of_a_puzzle_of_one_player_trains(run_example):
    assert len((EXAMPLES / "own_puzzle.py").read_text().splitlines()) <= 110
    said, _ = run_example("own_puzzle")
    assert "game tour_6_5x5" in said and "complete: iteration 2 of 2" in said


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_example_game_keeps_every_invariant(size):
    games.check(hex_game(size), num_games=32)


def test_the_example_game_ends_where_a_drawn_board_has_a_chain():
    """X (top to bottom) has b1 b2 a3, a line, and then a1 b2 a3, of which a1 and b2 do not touch; O (left to right) has
    a2 b2 c2 and, broken, a1 b2 c2 without a neighbour of a1."""
    for moves, ended in (
        ("b1 c1 b2 c2 a3", True),
        ("a1 c1 b2 a3 c3", False),
        ("c3 a2 c1 b2 b1 c2", True),
        ("c3 a1 c1 b2 b1 c2", False),
    ):
        game, states = hex_game(3), hex_game(3).initial(1)
        for move in moves.split():
            assert not game.terminal(states)[0][0]
            states = game.play(states, np.array([game.text_to_action(states[0], move)]))
        assert game.terminal(states)[0][0] == ended, moves
        assert game.terminal(states)[1][0] == (-1 if ended else 0)


def test_the_network_sees_the_planes_of_the_example(run_example, mpirun):
    """This also holds in a match against a network of the same game with other planes."""
    said, run = run_example("own_planes")
    assert "complete: iteration 2 of 2" in said
    assert checkpoint.load_newest(run / "checkpoints", False)[0].model["stem.weight"].shape == (8, 4, 3, 3)
    [evaluation] = records(run, "evaluation")
    assert evaluation["solver"]["num_positions"] == 20
    options = ["--games", 4, "--simulations", 4, "--json"]
    match = json.loads(mpirun(1, "-m", "az_mpi", "match", run, "zoo:connect4", *options).stdout)
    assert match["num_games"] == 4 and match["b"] == "zoo:connect4"


def test_the_example_planes_mark_the_threats_of_drawn_boards():
    """O is to move. On the first board it has three on each other, and X has b1 c1 d1, open at both ends; on the second
    one X has the diagonal a1 b2 c3. Rows are counted from the top, columns from the left, both from 0."""
    game = games.make(f"{EXAMPLES}/own_planes.py:Threats")
    assert games.check(game, num_games=32) == []
    for columns, ours, theirs in (("2727374", [[2, 6]], [[5, 0], [5, 4]]), ("1223733", [], [[2, 3]])):
        states = game.initial(1)
        for column in columns:
            states = game.play(states, np.array([int(column) - 1]))
        planes = game.planes(states)
        assert (planes[:, :2] == games.make("connect4").planes(states)).all()
        assert np.argwhere(planes[0, 2]).tolist() == ours and np.argwhere(planes[0, 3]).tolist() == theirs


def test_the_example_evaluator_plays(run_example):
    said, run = run_example("own_evaluator")
    assert said.count("Tactics (as configured)") == 2 and "complete: iteration 2 of 2" in said
    assert len(ids(run)) >= 32


def test_the_example_evaluator_sees_wins():
    class Flat:
        def evaluate(self, planes):
            return {"policy": np.zeros((len(planes), 7), np.float32), "value": np.zeros(len(planes), np.float32)}

    game = games.make("connect4")
    evaluate = EVALUATORS.make(
        f"{EXAMPLES}/own_evaluator.py:Tactics(bonus=2.5)", game=game, engine=Flat(), seed=[1], settings=None
    )
    states = game.initial(1)
    for column in (3, 0, 3, 1, 3, 0):  # three of the first player's on each other
        states = game.play(states, np.array([column]))
    logits, value = evaluate(np.concatenate([states, game.initial(1)]))
    assert logits.tolist() == [[0, 0, 0, 2.5, 0, 0, 0], [0] * 7] and value.tolist() == [1, 0]


def test_the_example_callback_gets_every_game_iteration_and_evaluation(run_example):
    _, run = run_example("own_callback")
    lines = {
        rank: [json.loads(line) for line in (run / f"openings-{rank}.jsonl").read_text().splitlines()]
        for rank in (0, 1)
    }
    seen = [line["game"] for rank in (0, 1) for line in lines[rank] if "game" in line]
    assert sorted(seen) == sorted(ids(run)), "each stored game once, on the rank that played it"
    assert all(len(line["opening"].split()) == 2 for rank in (0, 1) for line in lines[rank] if "game" in line)
    told = [line for line in lines[0] if "num_games" in line]
    assert [line["num_games"] for line in told] == [record["num_games"] for record in records(run, "iteration")]
    scores = [line["scores"] for line in lines[0] if "scores" in line]
    [evaluation] = records(run, "evaluation")
    assert scores == [{name: match["score"] for name, match in evaluation["matches"].items()}]
    assert all("game" in line for line in lines[1]), "iterations and evaluations are told to root"


@pytest.mark.slow
def test_the_example_sink_gets_each_record(run_example):
    _, run = run_example("own_sink")
    with open(run / "iterations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row, record in zip(rows, records(run, "iteration"), strict=True):
        assert all(float(row[name]) == record[name] for name in row if row[name])
        assert row["policy_loss"] and row["games_per_s"]
    assert not (run / "tensorboard").exists()


def test_the_example_head_is_trained_beside_the_others(run_example):
    said, run = run_example("own_head")
    assert "moves left loss" in said and "complete: iteration 2 of 2" in said
    for kind in ("train", "iteration"):
        assert all(record["moves_left_loss"] > 0 for record in records(run, kind))
    config = configuration.load(EXAMPLES / "own_head.json", {}, {})
    before = resnet.build(games.make("tictactoe"), config.network, config.seed).state_dict()
    after = checkpoint.load_newest(run / "checkpoints", False, before)[0].model
    assert not torch.equal(before["heads.moves_left.out.bias"], after["heads.moves_left.out.bias"])


def test_the_target_of_the_example_head_is_the_share_of_moves_left():
    game = games.make("tictactoe")
    head = HEADS.make(f"{EXAMPLES}/own_head.py:MovesLeft", game=game, channels=8)
    record = Record(np.zeros(2, GAME), np.zeros(5, position_dtype(game)), np.zeros(0, POLICY))
    record.games["length"], record.positions["ply"] = [3, 2], [0, 1, 2, 0, 1]
    assert head.target(record, game, None).tolist() == pytest.approx([3 / 9, 2 / 9, 1 / 9, 2 / 9, 1 / 9])


@pytest.mark.slow  # tests/unit/test_bounds.py has the compiled loop, and rules that leave their arrays
@pytest.mark.parametrize("name", ["own_game", "own_evaluator"])
def test_compiled_code_of_an_example_stays_within_its_arrays(run_example, monkeypatch, tmp_path_factory, name):
    """The games and searches of the examples, in Python and compiled, with Numba's checks of every index."""
    check_bounds(monkeypatch, tmp_path_factory)
    said, _ = run_example(name)
    assert "complete: iteration 2 of 2" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "game",
    [
        "connect4",
        "tictactoe",
        "gomoku(size=7)",
        "hex(size=4)",
        "breakthrough(size=5)",
        "go(size=5)",
        "othello(size=6)",
        "openspiel:breakthrough(rows=6,columns=6)",
    ],
)
@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_compiled_code_of_a_game_stays_within_its_arrays(
    mpirun, monkeypatch, tmp_path, tmp_path_factory, game, algorithm
):
    check_bounds(monkeypatch, tmp_path_factory)
    options = ["--set", f"game={game}", "--set", f"search.algorithm={algorithm}", "--logdir", tmp_path / "run"]
    mpirun(
        2,
        "run_dist.py",
        "--config_file",
        "configs/smoke.json",
        *options,
        "--set",
        "evaluate.solver_positions=0",
        timeout=1200,
    )


def check_bounds(monkeypatch, tmp_path_factory):
    """Compile with checks of bounds from now on, into a cache of its own: Numba's cache does not tell the two apart."""
    monkeypatch.setenv("NUMBA_BOUNDSCHECK", "1")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "checked"))
