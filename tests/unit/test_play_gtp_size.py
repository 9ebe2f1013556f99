"""python -m az_mpi gtp on boards of other sizes than the one that a network has learned on."""

import numpy as np
import pytest
import torch
from gtp_channel import LoadingChannel
from helpers import make_run

from az_mpi.player import trained_network
from az_mpi.player.loaded_player import load_player


@pytest.mark.process
def test_a_network_without_weights_for_cells_plays_on_other_boards():
    """Sabaki and gogui-twogtp send komi before the size, and the size before each game."""
    channel = LoadingChannel("zoo:go9")
    assert channel.say("komi 5.5") == "="
    for size, point in ((13, "N13"), (9, "J9"), (13, "N1"), (5, "E5")):
        assert channel.say(f"boardsize {size}") == "=" and channel.say("clear_board") == "="
        assert channel.say(f"play b {point}") == "="
        assert channel.say("genmove w").removeprefix("= ") not in ("pass", point)
        assert channel.say("get_komi") == "= 5.5" and channel.engine.go.komi == 5.5
        assert channel.engine.go.planes_shape[1] == size
    assert channel.say("rectangular_boardsize 9 13") == "? unacceptable size: the network plays 9 x 9 alone"
    assert channel.engine.go.planes_shape[1] == 5


def test_a_network_of_a_game_with_rows_and_columns_plays_on_a_rectangle():
    channel = LoadingChannel("zoo:gomoku9")
    assert channel.say("rectangular_boardsize 11 10") == "=" and channel.say("play b L10") == "="
    assert channel.say("genmove w").startswith("= ")


@pytest.mark.long
@pytest.mark.parametrize("name, line", [("zoo:hex7", "boardsize 9"), ("zoo:connect4", "boardsize 8")])
def test_a_network_with_weights_for_cells_refuses_other_boards(name, line):
    channel = LoadingChannel(name)
    assert channel.say(line).startswith("? unacceptable size: the network plays 7 x ")
    assert channel.say("genmove b").startswith("= ")


@pytest.mark.long
def test_the_size_that_the_rules_do_not_allow_is_named():
    channel = LoadingChannel("zoo:go9")
    assert "size" in channel.say("boardsize 100") and channel.say("genmove b").startswith("= ")


def test_an_engine_computes_on_another_board_what_the_network_computes():
    player = load_player("zoo:go9", size=(13, 13), precision="fp32")
    network, game = trained_network.read("zoo:go9").network, player.game
    states = game.play(game.initial(3), np.array([0, 84, 168]))
    logits, value = player.evaluate(states)
    with torch.inference_mode():
        outputs = network(torch.from_numpy(game.planes(states)).float())
    assert np.allclose(logits, outputs["policy"], atol=1e-3) and np.allclose(value, outputs["value"], atol=1e-3)


def test_a_head_that_only_trains_does_not_keep_a_network_from_other_boards(tmp_path):
    """The replies have weights for each cell, the policy and the value have none."""
    heads = "policy(any_size=True)", "value(any_size=True)", "opponent_reply", "ownership"
    run = make_run(tmp_path / "run", "go(size=5)", heads=heads)
    player = load_player(run, size=(7, 7), precision="fp32")
    assert player.game.num_actions == 50 and player.search(player.game.initial(1)[0], 8).visits.sum() == 8


def test_a_size_is_refused_by_load_player_with_a_reason(tmp_path):
    run = make_run(tmp_path / "run", "connect4")
    with pytest.raises(ValueError, match="plays 7 x 6 alone"):
        load_player(run, size=(9, 9))
