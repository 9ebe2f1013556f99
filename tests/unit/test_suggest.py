"""What az_mpi suggest chooses from made-up speeds, the mistakes that it refuses, and one run of the whole command."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from az_mpi.config import load as configuration
from az_mpi.config.schema import Evaluate
from az_mpi.core.problems import Refusal
from az_mpi.doctor import trial
from az_mpi.launch import hosts, mpi_job
from az_mpi.plan import sizing, suggest

ROOT = Path(__file__).parents[2]
FEW, MANY = sizing.Rules(num_legal=6, ply_us=1, length=30), sizing.Rules(num_legal=250, ply_us=1, length=300)
GIB = 2**30


def figures(data, core_gflops=20, ranks=2, length=30, memory=8 * GIB):
    """Return what a machine of such cores would measure if evaluations and training steps took time in proportion to
    the number of weights."""
    wanted = sizing.positions_wanted(data["network"]["blocks"], data["network"]["channels"])
    work = wanted / sizing.POSITIONS_PER_WEIGHT * 42 * 2  # a forward pass of 6 x 7
    evaluation_s = work / (core_gflops * 1e9)
    moves = 1 / (data["search"]["simulations"] * (evaluation_s + 1e-6))
    return {
        "hosts": ["node1"] * ranks,
        "moves_per_s": [moves] * ranks,
        "simulations_per_s": [1.0] * ranks,
        "mean_length": length,
        "length_from": "test",
        "trainers": [True] * ranks,
        "step_s": 3 * data["train"]["batch_size"] * evaluation_s / ranks,
        "memory_bytes": [memory] * ranks,
        "peak_bytes": [GIB + 50_000_000] * ranks,
        "window_bytes": [50_000_000] * ranks,
        "position_bytes": 100,
    }


def suggested(hours, rules=FEW, ranks=2, **machine):
    """Return the configuration that the command makes of such speeds, and the figures that it was made from."""
    chosen = sizing.SIZES[0]
    for size in sizing.SIZES:
        data = sizing.first("connect4", rules, size, ranks)
        if sizing.lacks(data, figures(data, ranks=ranks, **machine), hours):
            break
        chosen = size
    data = sizing.first("connect4", rules, chosen, ranks)
    measured = figures(data, ranks=ranks, **machine)
    data = sizing.at_once(sizing.fill(data, measured, rules, hours), ranks)
    return configuration.validate(sizing.fill(data, measured, rules, hours), "test"), measured


HOURS = (0.002, 0.02, 0.13, 0.2, 0.5, 1, 2, 3, 5, 8, 12, 24, 48, 100, 300)


@pytest.mark.parametrize("core_gflops", [2, 30, 500, 100_000])
def test_more_hours_give_a_network_at_least_as_large_and_more_iterations(core_gflops):
    found = [suggested(hours, core_gflops=core_gflops)[0] for hours in HOURS]
    for less, more in zip(found, found[1:]):
        assert (less.network.blocks, less.network.channels) <= (more.network.blocks, more.network.channels)
        assert less.iterations < more.iterations or less.iterations == more.iterations in (1, sizing.ITERATIONS_MAX)
    assert found[0].network.blocks < found[-1].network.blocks


@pytest.mark.parametrize("ranks", [1, 2, 16, 256])
@pytest.mark.parametrize("rules", [FEW, MANY])
def test_play_and_training_take_less_than_the_time_and_most_of_it(ranks, rules):
    for hours in HOURS[2:]:
        config, measured = suggested(hours, rules, ranks)
        said = trial.predict(config, measured)
        assert 0.75 * hours < said["hours"] <= 0.9 * hours
        assert config.selfplay.parallel_games * ranks <= max(config.selfplay.num_games, sizing.AT_ONCE_MIN * ranks)
        assert config.train.batch_size >= ranks


def test_counts_are_those_computed_by_hand():
    # 0.9 of 40,000 s for games of 20 moves at 100 moves/s, 0.2 s: with 30 samples a game, 0.1 s each 256, 0.2117 s.
    data = sizing.first("connect4", FEW, (4, 48), 2)
    assert data["search"]["simulations"] == 32 and data["train"]["batch_size"] == 256
    measured = figures(data, length=20) | {"moves_per_s": [60.0, 40.0], "step_s": 0.1}
    hours = 40_000 / 3600
    assert sizing.games_in(data, measured, hours) == pytest.approx(36_000 / (0.2 + 30 / 256 * 0.1))
    # 170,037 games, 3,400,738 positions: 4 x 48 wants 20 * 2 * 9 * 4 * 48 * 48 = 3,317,760, 6 x 96 wants 19,906,560.
    assert sizing.positions_wanted(4, 48) == 3_317_760 and sizing.positions_wanted(6, 96) == 19_906_560
    assert sizing.lacks(data, measured, hours) == ""
    assert sizing.lacks(data | {"network": {"blocks": 6, "channels": 96}}, measured, hours) == "positions"
    assert sizing.lacks(data, measured | {"mean_length": 400.0}, hours) == "games"  # 250 iterations of 200
    config = sizing.fill(data, measured, FEW, hours)
    assert config["iterations"] == 250 and config["selfplay"]["num_games"] == 680  # 170,037 / 250
    assert config["replay"] == {"window_max": 272_000}  # 20 iterations of 680 games of 20 moves


def test_the_search_tries_every_move_and_the_opening_is_a_fifth_of_a_random_game():
    few, many = (sizing.first("connect4", rules, (4, 48), 1) for rules in (FEW, MANY))
    for data, actions, plies in ((few, 16, 6), (many, 32, 30)):
        config = configuration.validate(data, "test")
        assert config.search.algorithm == "gumbel" and config.search.gumbel_actions == actions
        assert config.search.full_share == (0.25 if data is many else 1.0)
        assert config.search.temperature_plies == config.selfplay.random_plies == plies
    short = sizing.first("tictactoe", sizing.Rules(5, 1, 7.6), (3, 32), 1)
    assert short["selfplay"]["random_plies"] == 2


def test_gpus_get_large_batches():
    data = sizing.first("connect4", FEW, (3, 32), 4, on_gpus=True)
    assert data["selfplay"]["num_games"] == 4 * 8192 and data["train"]["batch_size"] == 1024
    for num_games in (200, 20_000):
        config = sizing.at_once(data | {"selfplay": {"num_games": num_games, "parallel_games": 0}}, 4)
        assert config["selfplay"]["parallel_games"] == 0  # measured at the start of the run


def test_long_games_and_little_memory_make_a_smaller_window_and_slow_rules_no_rollouts():
    wide, _ = suggested(24, length=300, core_gflops=500)
    tight, measured = suggested(24, length=300, core_gflops=500, memory=GIB + 2_000_000)
    assert 20_000 == tight.replay.window_max < wide.replay.window_max <= 20_000_000
    # Half of what 2 ranks have free beside the run itself, at 100 bytes a position.
    roomy, _ = suggested(24, length=300, core_gflops=500, memory=GIB + 40_000_000)
    assert roomy.replay.window_max == 400_000
    assert "rollout" in wide.evaluate.opponents
    assert suggested(1, sizing.Rules(6, 1000, 30))[0].evaluate.opponents == ("best", "random")
    alone = suggested(1, sizing.Rules(6, 1000, 30, num_players=1))[0]  # of whose opponents no one plays out games
    assert alone.evaluate.opponents == Evaluate().opponents


@pytest.mark.parametrize(
    "wrong, said",
    [
        (["tictactow", "--hours", "1"], "tictactoe"),
        (["openspiel:no_such_game", "--hours", "1"], "no_such_game"),
        (["tictactoe", "--hours", "0"], "--hours"),
        (["tictactoe", "--hours", "nan"], "--hours"),
        (["tictactoe"], "--hours"),
        (["tictactoe", "--hours", "1", "--np", "0"], "--np"),
        (["tictactoe", "--hours", "1", "--np", "3", "--hosts", "localhost:2"], "--np 3"),
        (["tictactoe", "--hours", "1", "--hosts", "a b"], "--hosts"),
        (["tictactoe", "--hours", "1", "--hostfile", "missing"], "missing"),
        (["tictactoe", "--hours", "1", "--output", "missing/a.json"], "--output"),
        (["tictactoe", "--hours", "1", "--output", "there.json"], "--output"),
    ],
)
def test_mistakes_are_refused_before_anything_is_measured(wrong, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suggest.mpi_job, "run_child", lambda *_: pytest.fail("measured"))
    (tmp_path / "there.json").write_text("mine")
    with pytest.raises(Refusal, match=said):
        suggest.main(wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]
    assert (tmp_path / "there.json").read_text() == "mine"


def test_several_hosts_are_checked_unless_no_check_is_given(tmp_path, monkeypatch):
    """Both names answer from this machine, so they cannot be two hosts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suggest.check, "ssh", lambda timeout_s: lambda name, words: words)
    monkeypatch.setattr(suggest.mpi_job, "run_child", lambda *_: mpi_job.Child(3, "", ""))
    words = ["tictactoe", "--hours", "1", "--hosts", "one:1,two:1"]
    with pytest.raises(Refusal, match="calls itself"):
        suggest.main(words)
    with pytest.raises(Refusal, match="the measurement ended with status 3"):
        suggest.main([*words, "--no_check"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("length, share", [(9, 0.8), (22, 0.8), (32, 0.5), (60, 0.5), (206, 0.5)])
def test_the_root_value_counts_more_in_short_games_alone(length, share):
    """In Othello, of 32 and 60 plies, a share of 0.8 lost 17 of 20 games against 0.5 after equally many games."""
    data = sizing.first("connect4", sizing.Rules(num_legal=6, ply_us=1, length=length), (3, 32), 1)
    assert data["train"]["root_value_share"] == share
    assert configuration.validate(data, "test").train.root_value_share == share


def test_one_player_learns_from_later_root_values():
    """As in configs/2048.json, whose random games have 120 moves."""
    data = sizing.first("2048", sizing.Rules(3.5, 0.1, 120, num_players=1), (3, 64), 2)
    train, shipped = (
        configuration.validate(one, "test").train
        for one in (data, json.loads((ROOT / "configs/2048.json").read_text()))
    )
    for name in ("root_value_share", "root_value_horizon", "value_loss_weight"):
        assert getattr(train, name) == getattr(shipped, name)
    assert "60 moves later on average" in suggest._value_target(train)
    assert suggest._rules("2048").num_players == 1


@pytest.mark.parametrize(
    "given, words",
    [
        ({"np": 2}, "mpirun -np 2 -H localhost:2 --bind-to none python run_dist.py"),
        ({"hosts": "localhost:3"}, "mpirun -np 3 -H localhost:3 --bind-to none python run_dist.py"),
        (
            {"hosts": "192.0.2.1:2,192.0.2.2:2", "np": 3},
            "python -m az_mpi launch --np 3 --hosts 192.0.2.1:2,192.0.2.2:2 --",
        ),
        ({"hosts": "192.0.2.1:2"}, "python -m az_mpi launch --hosts 192.0.2.1:2 --"),
    ],
)
def test_one_machine_is_started_by_mpirun_and_others_by_launch(monkeypatch, given, words):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    options = Namespace(**{"np": None, "hosts": None, "hostfile": None, "no_check": False} | given)
    chosen, num_ranks = hosts.choose(hosts.listed(options), np=options.np)
    assert " ".join(suggest._start(options, chosen, num_ranks)) == words


def test_the_explanation_notes_gpus_that_ranks_share():
    config, measured = suggested(0.2)
    found = {"figures": measured, "tried": [((3, 32), measured, 500.0, "")], "notes": ["node1 has 2 ranks and 1 GPU"]}
    lines = suggest.explained(found, config, trial.predict(config, measured | {"weights": [1.0, 1.0]}), 0.2)
    assert "note: node1 has 2 ranks and 1 GPU" in lines


@pytest.mark.process
def test_a_users_own_game_gets_a_configuration_that_run_dist_takes(tmp_path):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    words = [
        sys.executable,
        "-m",
        "az_mpi",
        "suggest",
        "examples/own_game.py:Hex(size=4)",
        "--hours",
        "0.01",
        "--np",
        "1",
        "--output",
        str(tmp_path / "a.json"),
        "--json",
    ]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    config = configuration.load(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == told["config"] and "own_game.py" in config.game
    assert trial.predict(config, told["figures"])["hours"] <= 0.01
    assert (
        told["next"]
        == f"mpirun -np 1 --bind-to none python run_dist.py --config_file {tmp_path}/a.json --logdir runs/a"
    )
    assert told["prediction"]["games_per_s"] > 0 and len(told["tried"]) >= 1
