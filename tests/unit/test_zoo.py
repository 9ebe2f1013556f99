"""Networks that come with az_mpi: each plays and is as strong as it says. A run's network can become one."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import make_config
from marks import slow

from az_mpi import __main__, games
from az_mpi.core import registry
from az_mpi.core.problems import Refusal
from az_mpi.evaluate.arena import play_match
from az_mpi.evaluate.opponents import RandomPlayer, SearchPlayer
from az_mpi.export import export_command
from az_mpi.player import network_paths, trained_network
from az_mpi.player.loaded_player import load_player
from az_mpi.player.network_paths import find_network
from az_mpi.storage import checkpoint

RUN = Path(__file__).parents[1] / "data/run_of_0823929"  # a real run of tic-tac-toe
NUM_GAMES_ALONE, SHARE_ALONE = 8, 1 / 3
NUM_GAMES, SLACK = 20, 0.27  # of a match against random moves; four standard deviations of its score near 0.9


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A zoo with the network of an old run."""
    monkeypatch.setattr(network_paths, "ZOO", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert __main__.main(["export", str(RUN), "--to", "zoo", str(tmp_path / "small.safetensors")]) == 0
    return tmp_path


def test_a_configuration_above_the_networks_is_no_run(zoo):
    (zoo / "config.json").write_text('{"game": "connect4"}')
    for name in ("zoo:small", "small", zoo / "small.safetensors"):
        assert trained_network.read(name).game.name == "tictactoe"
    with pytest.raises(Refusal, match="not a run's folder"):
        trained_network.read(zoo / "nothing")


def about(path):
    return checkpoint.from_bytes_with_about(path.read_bytes())[1]


def check(path, world, simulations=10**6):
    """Assert that a network plays, and scores against random moves what it says, or more; alone a third of its points,
    which differ much between games. With so many simulations a move at most."""
    said, player = about(path), load_player(path, precision="fp32")
    assert path.stat().st_size <= export_command.ZOO_BYTES_MAX and said["game"] == player.game.name
    assert float(said["hours"]) > 0 and json.loads(said["commit"]) and json.loads(said["config"])["game"]
    evaluation = json.loads(said["evaluation"])
    settings = player.settings.model_copy(update={"simulations": min(evaluation["simulations"], simulations)})
    ours = SearchPlayer(player.evaluator, settings)
    if player.game.num_players == 1:
        result = play_match(world, player.game, ours, None, NUM_GAMES_ALONE, 0, (1,))
        assert result.scores.mean() >= evaluation["score_mean"] * SHARE_ALONE
        return
    result = play_match(world, player.game, ours, RandomPlayer((1,)), NUM_GAMES, 2, (1,))
    score = (result.wins + result.draws / 2) / NUM_GAMES
    assert score >= evaluation["matches"]["random"]["score"] - SLACK


def shipped():
    files = sorted(network_paths.ZOO.glob("*.safetensors"))
    if not files:
        return [pytest.param(None, marks=pytest.mark.skip(reason="no network is shipped yet"))]
    return [slow(path) if path.stem == "2048" else path for path in files]  # 2048 takes 20 s: it has 1,000 moves a game


@pytest.mark.process  # not in `make test`: it takes 2 to 15 s for each, and a minute with all simulations
@pytest.mark.parametrize("simulations", [16, slow(10**6)])
@pytest.mark.parametrize("path", shipped(), ids=lambda path: path and path.stem)
def test_each_network_is_as_strong_as_its_description_says(path, world, simulations):
    check(path, world, simulations)


def test_the_networks_of_the_zoo_are_small_together():
    assert sum(path.stat().st_size for path in network_paths.ZOO.glob("*.safetensors")) <= 15_000_000


def test_a_network_of_a_run_becomes_one_of_the_zoo(zoo, world, capsys):
    check(zoo / "small.safetensors", world)
    player = load_player("zoo:small")
    assert player.game.name == load_player("small").game.name == load_player(zoo / "small.safetensors").game.name
    states = player.game.initial(2)
    assert (load_player(RUN).evaluate(states)[0] == player.evaluate(states)[0]).all()
    assert find_network(Path("small"), "newest") == Path("small")
    assert __main__.main(["export", "small", "--to", "onnx", str(zoo / "small.onnx")]) == 0
    assert __main__.main(["export", "small", "--to", "zoo", "again.safetensors"]) == 2  # nothing says how it was made
    assert "name a run" in capsys.readouterr().err


def test_a_folder_comes_before_the_zoo_and_other_names_are_refused(zoo):
    with pytest.raises(Refusal, match="there are: small"):
        load_player("zoo:smal")
    for name in ("smal", "zoo:../small", "zoo:"):
        with pytest.raises(Refusal):
            load_player(name)
    (zoo / "small").mkdir()
    with pytest.raises(Refusal, match="not a run's folder"):
        load_player("small")
    assert load_player("zoo:small")


def test_a_network_without_a_description_is_refused(zoo):
    whole = (zoo / "small.safetensors").read_bytes()
    tensors, _ = checkpoint.from_bytes_with_about(whole)
    for wrong in (b"", b"torn", whole[:1000], checkpoint.to_bytes(tensors)):
        (zoo / "other.safetensors").write_bytes(wrong)
        with pytest.raises(Refusal, match="not from"):
            load_player(zoo / "other.safetensors")


def test_a_network_of_the_zoo_is_an_opponent_in_matches(zoo):
    config = make_config("tictactoe", evaluate={"opponents": ["zoo:small"]})
    offered = {
        "game": load_player("small").game,
        "seed": (1,),
        "rank": 0,
        "settings": config.evaluate,
        "search": config.search,
        "best": None,
    }
    [name] = config.evaluate.opponents
    made = registry.OPPONENTS.make(name, **offered)
    assert made.actions(offered["game"], offered["game"].initial(3)).shape == (3,)
    with pytest.raises(Refusal, match="there are: small"):
        registry.OPPONENTS.make("zoo:other", **offered)
    with pytest.raises(Refusal, match="it plays tictactoe"):
        registry.OPPONENTS.make(name, **offered | {"game": games.make("connect4")})


@pytest.mark.process
def test_the_example_that_looks_at_a_run():
    command = [sys.executable, "examples/look_at_a_run.py", str(RUN)]
    done = subprocess.run(command, cwd=RUN.parents[2], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    segments = [line for line in lines if "first player won" in line]
    moves = [line.split() for line in lines if "newest network" in line]
    assert len(segments) == 2 and 5 <= len(moves) <= 9
    game = games.make("tictactoe")
    state = game.initial(1)
    for move, *_ in moves:
        state = game.play(state, np.array([game.text_to_action(state[0], move)]))
    assert game.terminal(state)[0][0] and game.show(state[0]) in done.stdout


def test_a_network_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(export_command, "ZOO_BYTES_MAX", 1000)
    with pytest.raises(Refusal, match="take up to 1,000"):
        export_command.zoo(trained_network.read(RUN))
