"""Play of games of one player, of several, and with moves of chance: the session, the terminal, the page, refusals."""

import argparse
import io
import re
import sys
import time

import numpy as np
import pytest
from helpers import UniformEngine

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import Refusal
from az_mpi.games.base import CHANCE
from az_mpi.network.evaluators import Evaluator
from az_mpi.play import options, terminal, web_game
from az_mpi.play.web_game import WebGame
from az_mpi.player import loaded_player
from az_mpi.player.limits import Limit
from az_mpi.player.loaded_player import LoadedPlayer
from az_mpi.player.session import Session
from az_mpi.search.proof_length import UNKNOWN, proof_lengths

KINDS = "kinds:Digits", "kinds:Pig", "kinds:Trio", "kinds:Rain"


class AllAlike(Evaluator):
    """Equal priors; every player's value is 0."""

    def __init__(self, game):
        self.game = game

    def __call__(self, states):
        num, players = len(states), self.game.num_players
        values = np.zeros((num, players) if players > 2 else num, np.float32)
        return np.zeros((num, self.game.num_actions), np.float32), values


def session_of(name, seed=0):
    game = games.make(name)
    session = Session(LoadedPlayer(game, UniformEngine(game), models.Search(simulations=30), AllAlike(game)))
    session.rng = np.random.default_rng(seed)
    return session


def test_a_session_ranks_results_as_the_network_has_learned_to(monkeypatch):
    """`play` makes a game without a limit of the run's, and searches some moves alone for a hint."""
    game = games.make("kinds:Digits")
    loaded = LoadedPlayer(game, UniformEngine(game), models.Search(simulations=8))
    loaded.evaluator.threshold = 0.5
    monkeypatch.setattr(loaded_player, "load_player", lambda *_, **__: loaded)
    monkeypatch.setattr(options, "find_network", lambda *_: None)
    given = argparse.Namespace(run="run", checkpoint="newest", simulations=8, seconds=0)
    session, _ = options.open_session(given, untruncated=True)
    assert session.player.evaluator.threshold == session.beside().player.evaluator.threshold == 0.5
    session.think(Limit(8))
    assert session._search.evaluate.threshold == 0.5


@pytest.mark.parametrize("name", KINDS)
def test_a_session_plays_a_game_of_each_kind_to_its_end(name):
    session = session_of(name)
    session.warm_up()
    drawn = session.draw()
    while not session.over:
        assert session.to_play >= 0 and session.legal()
        session.think(Limit(30))
        assert len(session.values) == session.game.num_players and np.abs(session.values).max() <= 1
        action = session.best()
        assert session.line(session.moves()[0].variation)[0] in session.legal()
        session.play(action)
        drawn += session.draw()
    assert len(session.results) == session.game.num_players and session.result == session.results[0]
    assert (session.score is None) == (session.game.num_players > 1)
    assert bool(drawn) == bool(session.game.num_outcomes)
    assert len(session.played()) == len(session.actions) >= len(drawn)


def test_a_session_plays_a_game_whose_chance_may_lead_to_chance_again():
    session = session_of("kinds:Again")
    session.warm_up()
    session.draw()
    while not session.over:
        session.think(Limit(20))
        session.play(session.best())
        session.draw()
    assert session.score == 5


def test_the_line_of_three_players_goes_to_the_best_expectation_whose_length_nobody_knows():
    session = session_of("kinds:Lots")
    session.think(Limit(300))
    trees = session._search.trees
    assert trees.exact[0, 0] and all(move.exact and move.variation[1:] == [1] for move in session.moves())
    of_player_1 = trees.edge["edge_child"][0, :2]
    assert (proof_lengths(trees, 0)[[0, *of_player_1]] == UNKNOWN).all()


def test_moves_of_chance_come_from_the_sessions_random_numbers():
    def drawn(seed):
        session, words = session_of("kinds:Rain", seed), []
        while not session.over:
            words += session.draw()
            if not session.over:
                session.play(next(iter(session.legal().values())))
        return words

    assert drawn(1) == drawn(1) != drawn(2)


def test_the_tree_below_a_drawn_outcome_stays():
    session = session_of("kinds:Pig")
    session.draw()
    session.think(Limit(400))
    session.play(session.find("0"))
    assert session.draw() and session.to_play != CHANCE
    assert session.over or session.simulations > 5


def table(name, humans, seed=0):
    return terminal.Terminal(session_of(name, seed), Limit(20), humans, f"a game of {name}")


def typed(table, text, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with pytest.raises((EOFError, terminal.Quit)):
        table.run()
    return capsys.readouterr().out


def test_the_terminal_announces_what_is_drawn(monkeypatch, capsys):
    at = table("kinds:Pig", {0})
    out = typed(at, "0\nhint\nundo\nquit\n", monkeypatch, capsys)
    outcome = out.partition("Drawn: ")[2].split()[0]
    assert outcome.isdecimal() or outcome
    assert out.count("Drawn: ") >= 1 and "You are X. Legal moves:" in out


def test_the_terminal_shows_one_player_the_score(monkeypatch, capsys):
    at = table("kinds:Digits", {0})
    first = next(iter(at.session.legal()))
    out = typed(at, f"{first}\n", monkeypatch, capsys)
    assert out.count("Your units: ") >= 2
    watched = typed(table("kinds:Digits", set()), "", monkeypatch, capsys)
    assert "The network plays" in watched and "The game is over: units " in watched


def test_the_terminal_seats_people_and_networks_together(monkeypatch, capsys):
    at = table("kinds:Trio", {0, 2})
    out = typed(at, f"{next(iter(at.session.legal()))}\n", monkeypatch, capsys)
    assert "You are player 1. Legal moves" in out and "The network, player 2, plays" in out
    assert "You are player 3. Legal moves" in out
    alone = typed(table("kinds:Trio", set()), "", monkeypatch, capsys)
    end = re.search(r"The game is over: (.*?); (.*)\.", alone)
    values = [float(value) for value in re.findall(r"player \d has ([-+][\d.]+\d)", end[2])]
    assert len(values) == 3
    assert end[1] == (f"player {np.argmax(values) + 1} wins" if max(values) > 0 else "a draw")


def test_seats_are_named_by_numbers():
    for name, given, seats in (
        ("kinds:Trio", "1,3", {0, 2}),
        ("kinds:Trio", "first", {0}),
        ("kinds:Digits", "none", set()),
        ("kinds:Digits", "1", {0}),
        ("tictactoe", "2", {1}),
        ("tictactoe", "1,2", {0, 1}),
    ):
        assert terminal.seats_of(given, games.make(name)) == seats, (name, given)
    for name, given in (("kinds:Trio", "4"), ("kinds:Trio", "white"), ("kinds:Digits", "second"), ("tictactoe", "0")):
        with pytest.raises(Refusal, match="allowed"):
            terminal.seats_of(given, games.make(name))


@pytest.fixture
def began(monkeypatch):
    monkeypatch.setattr(web_game, "PACE_S", 0.0)
    begun = []

    def begin(name, humans):
        about = {"run": "a run", "checkpoints": []}
        game = WebGame(lambda _: session_of(name), "newest", Limit(20), about, {})
        game.humans, game.is_analysing = humans, False
        begun.append(game)
        game.start()
        return game

    yield begin
    for game in begun:
        game.close()
        game.join(10)


def wait_for(game, condition):
    end, state = time.monotonic() + 120, game.state(0, 1)
    while not condition(state):
        assert time.monotonic() < end, state
        state = game.state(state["version"], 1)
    return state


@pytest.mark.parametrize("name", KINDS)
def test_the_page_lets_the_network_play_every_kind(name, began):
    state = wait_for(began(name, set()), lambda state: state.get("over"))
    assert len(state["outcomes"]) == state["players"] == games.make(name).num_players
    assert (state["score"] is None) == (state["players"] > 1)


def test_the_page_shows_what_was_drawn_and_steps_over_it(began):
    game = began("kinds:Pig", {0, 1})
    start = wait_for(game, lambda state: state.get("legal"))["ply"]
    assert game.ask("move", "0") is None
    state = wait_for(game, lambda state: state["ply"] > start)
    assert len(state["drawn"]) == 1 and state["moves"][-1] == state["drawn"][0] and state["legal"]
    moves = state["moves"]
    assert game.ask("goto", state["ply"] - 1) is None
    assert wait_for(game, lambda state: state["ply"] == start)["moves"] == moves  # the outcome is still known
    assert game.ask("goto", start + 1) is None
    state = wait_for(game, lambda state: state["ply"] > start)
    assert state["ply"] == start + 2 and state["moves"] == moves


def test_the_page_seats_people_and_networks_together(began):
    game = began("kinds:Trio", {0, 2})
    assert game.ask("move", next(iter(games_legal(game)))) is None
    state = wait_for(game, lambda state: state["ply"] == 2)
    assert state["to_play"] == 2 and not state["thinking"] and state["humans"] == [0, 2]
    assert game.ask("humans", [1]) is None
    wait_for(game, lambda state: state["over"] or state["to_play"] == 1 and state["ply"] > 2)


def games_legal(game):
    return [one["move"] for one in wait_for(game, lambda state: state.get("legal"))["legal"]]


@pytest.mark.parametrize("name, has", [("kinds:Digits", "1 player"), ("kinds:Pig", "chance"), ("kinds:Trio", "3 pl")])
def test_programs_for_two_players_refuse_other_games(name, has):
    with pytest.raises(Refusal, match=has):
        options.expect_two_players(games.make(name), "GTP")
    options.expect_two_players(games.make("tictactoe"), "GTP")


@pytest.mark.parametrize("name", KINDS)
def test_files_of_games_and_the_page_without_a_server_refuse_other_games(name, tmp_path):
    from az_mpi.export.standalone_page import spec
    from az_mpi.records.game_records import check_suffix

    game = games.make(name)
    with pytest.raises(Refusal, match="two players without chance"):
        check_suffix(tmp_path / "games.pgn", game)
    with pytest.raises(Refusal, match="two players without chance"):
        spec(game)
