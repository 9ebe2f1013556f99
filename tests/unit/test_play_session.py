"""A game in progress: its history, what its search says, and its limits of simulations and time."""

import numpy as np
import pytest
from helpers import loaded_player, make_run

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.base import positions
from az_mpi.player import session as module
from az_mpi.player.limits import Clock, Limit
from az_mpi.player.loaded_player import load_player
from az_mpi.player.network_paths import find_network
from az_mpi.player.session import Session


def begun(game, *moves, **settings):
    session = Session(loaded_player(game, **settings))
    for move in moves:
        session.play(session.find(move))
    return session


def test_a_game_is_played_taken_back_and_ends():
    session = begun("tictactoe", "b2", "a1", "c3")
    assert session.played() == ["b2", "a1", "c3"] and session.to_play == 1 and not session.over
    assert set(session.legal()) == {"a2", "a3", "b1", "b3", "c1", "c2"}
    session.undo(2)
    assert session.played() == ["b2"] and session.to_play == 1 and len(session.legal()) == 8
    for move in ("a1", "b1", "a2", "b3"):
        session.play(session.find(move))
    assert session.over and session.result == 1 and session.legal() == {}
    with pytest.raises(ValueError, match="over"):
        session.find("c1")
    session.undo(5)
    assert session.before is None and (session.state == session.game.initial(1)[0]).all()
    lost = begun("tictactoe", "a1", "b1", "a2", "b2", "c3", "b3")
    assert lost.result == -1
    lost.restart()
    assert lost.result is None and lost.actions == []


def test_an_illegal_move_is_refused_with_similar_legal_moves():
    session = begun("go(size=5,komi=7)")
    with pytest.raises(ValueError, match="D[1-5]"):
        session.find("d9")
    with pytest.raises(ValueError, match="pass"):
        session.find("pas")
    assert session.find("d4") == session.find("D4")


def test_a_session_searches_as_its_player():
    player = loaded_player("connect4", simulations=60)
    session = Session(player)
    for move in "44":
        session.play(session.find(move))
    found = player.search(session.state, 60)
    session.think(Limit(simulations=60))
    moves = session.moves()
    assert (session.simulations, moves[0].action, session.value) == (60, found.action, found.value)
    assert {move.action: pytest.approx(move.share) for move in moves} == dict(enumerate(found.policy.tolist()))
    assert sum(move.visits for move in moves) == 60 and sum(move.prior for move in moves) == pytest.approx(1)


def test_the_first_of_equally_visited_moves_is_shown_first_and_played():
    for simulations in range(1, 30):
        session = begun("connect4")
        session.think(Limit(simulations=simulations))
        assert session.moves()[0].action == session.best()


@pytest.mark.parametrize("reuse_tree", [True, False])
def test_the_search_tree_is_kept_between_moves(reuse_tree):
    """That does not depend on what self-play of the run does with its trees."""
    session = Session(loaded_player("connect4", reuse_tree=reuse_tree))
    session.think(Limit(simulations=100))
    first = session.moves()[0]
    session.play(first.action)
    kept = session.simulations
    assert kept == first.visits - 1 > 5
    session.think(Limit(simulations=kept + 10))
    assert session.simulations == kept + 10
    session.play(session.best())
    session.undo()
    assert session.simulations == kept + 10  # the tree had not followed yet
    session.undo()
    assert session.simulations == 0 and session.moves() == []


def test_a_proven_result_ends_the_search_and_its_line_is_shown():
    session = begun("tictactoe", "a1", "a2", "b1", "b2")  # X takes c1
    session.think(Limit(simulations=5000))
    best = session.moves()[0]
    assert session.line(best.variation) == ["c1"] and best.exact and best.value == session.value == 1 == best.share
    session = begun("tictactoe", "b2", "a1")
    session.think(Limit(simulations=100_000))
    best = session.moves()[0]
    assert session.simulations < 100_000 and best.exact and best.value == session.value == 0
    for action in best.variation:  # both players draw
        session.play(action)
    assert session.result == 0


@pytest.mark.parametrize(
    "game",
    ["go(size=5,komi=7)", "othello(size=4)", "hex(size=3,swap=True)", "gomoku", "breakthrough(rows=5,columns=4)"],
)
def test_every_game_is_played_to_its_end_with_lines_of_legal_moves(game):
    session = begun(game)
    for _ in range(session.game.max_plies):
        session.think(Limit(simulations=12))
        moves = session.moves()
        assert {move.action for move in moves} == set(session.legal().values())
        assert all((move.value is None) == (move.visits == 0) for move in moves)
        for state, action in zip(positions(session.game, session.state, moves[0].variation), moves[0].variation):
            assert session.game.legal(state[None])[0, action]
        session.play(moves[0].action)
        if session.over:
            break
    assert session.result in (-1, 0, 1)
    lead = session.game.lead(session.state[None])
    assert lead is None or np.sign(lead[0]) == session.result


def test_a_game_of_openspiel_is_played_in_its_words():
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    session = begun("openspiel:breakthrough(rows=6,columns=5)")
    with pytest.raises(ValueError, match="a5a4"):
        session.find("a5a9")
    while not session.over:
        session.think(Limit(simulations=5))
        session.play(session.find(session.line([session.best()])[0]))
    assert session.result in (-1, 1) and len(session.played()) == len(session.actions)


def test_no_simulation_begins_that_may_end_too_late(monkeypatch):
    """Simulations of the most various durations, by a clock of the test's own."""
    now, rng = [100.0], np.random.default_rng(0)
    for slowest_s in (0.001, 0.02, 0.06):

        def take_time(slowest_s=slowest_s):
            now[0] += rng.uniform(slowest_s / 3, slowest_s)

        session = Session(loaded_player("go(size=9)", take_time))
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        for seconds in (0.2, 1.0, 5.0):
            session.restart()
            start = now[0]
            session.think(Limit(seconds=seconds))
            assert start + seconds - min(0.1 * seconds, 0.2) - 2.1 * slowest_s <= now[0] <= start + seconds


def test_a_search_obeys_both_limits_and_can_be_stopped():
    session = begun("go(size=9)")
    session.think(Limit(simulations=30, seconds=1000))
    assert session.simulations == 30
    session.think(Limit(seconds=1e-9))
    assert session.simulations <= 31
    session.think(Limit(), stop=lambda: session.simulations >= 37)
    assert session.simulations == 37
    session.restart()
    session.think(Limit(simulations=9), stop=lambda: True)
    assert session.simulations == 1 and len(session.moves()) == 82


def test_a_full_search_tree_ends_the_search(monkeypatch):
    monkeypatch.setattr(module, "SIMULATIONS_MAX", 40)
    session = begun("go(size=9)")
    session.think(Limit())
    assert session.simulations == 40


def test_the_clock_of_main_time_and_canadian_byo_yomi():
    clock = Clock(100, 30, 5)
    assert clock.budget_s(20) == 6 and clock.budget_s(10) == 10  # not below 30 / 5
    clock.spend(90)
    assert clock.budget_s(10) == 6
    clock.spend(14)  # main time ends: 4 s of the first period's 30 are gone, and one of its 5 moves
    assert clock.budget_s(10) == pytest.approx(26 / 4)
    for _ in range(4):
        clock.spend(6)
    assert clock.budget_s(10) == 30 / 5
    clock.set_left(8, 2)
    assert clock.budget_s(10) == 4
    absolute = Clock(10, 0, 0)
    for _ in range(1000):
        absolute.spend(absolute.budget_s(10))
    assert 0 <= absolute.left_s < 1
    assert Clock(0, 1, 0).budget_s(10) == Clock(0, 0, 0).budget_s(10) == float("inf")


def test_games_that_count_points_say_by_how_many_the_first_player_leads():
    go, othello = games.make("go(size=5,komi=7)"), games.make("othello")
    session = begun("go(size=5,komi=7)", "C3")
    assert go.lead(session.state[None]).tolist() == [25 - 7]
    assert go.lead(go.initial(2)).tolist() == [-7, -7]
    session = begun("othello", "d3")  # turns one stone
    assert othello.lead(session.state[None]).tolist() == [4 - 1]
    session.play(session.find("c3"))
    assert othello.lead(session.state[None]).tolist() == [0]
    assert games.make("connect4").lead(session.state[None]) is None


def test_networks_of_a_run_are_found_by_name(tmp_path):
    run = make_run(tmp_path / "run", checkpoints=(1, 2), best=(1,))
    places = {
        "newest": run,
        "best": run / "best/000001.safetensors",
        "000001": run / "checkpoints/000001",
        "000002": run / "checkpoints/000002",
        "000001.safetensors": run / "checkpoints/000001",
    }
    assert {name: find_network(run, name) for name in places} == places
    player = load_player(find_network(run, "best"), engine="torch")
    assert player.game.name == "tictactoe"
    for name in ("000009", "../run", "", "x" * 5000, "\x00"):
        with pytest.raises(Refusal, match="newest, best, 000001, 000002"):
            find_network(run, name)
    with pytest.raises(Refusal, match="not a run"):
        find_network(tmp_path, "best")


@pytest.mark.parametrize("name", ["checkpoints/000009", "chekpoints/000001", "best/000009.safetensors", "best"])
def test_a_checkpoint_that_does_not_exist_is_refused(tmp_path, name):
    run = make_run(tmp_path / "run", checkpoints=(1, 2), best=(1,))
    with pytest.raises(Refusal, match="no checkpoint"):
        load_player(run / name, engine="torch")


@pytest.mark.long
def test_of_proven_wins_the_shortest_is_played_and_of_losses_the_longest():
    """In tic-tac-toe, compared with all games from each position: the winner cannot be faster than the best play
    allows, and every line that is shown ends the game with the proven result."""
    rng, decided = np.random.default_rng(2), 0
    for _ in range(60):
        session = begun("tictactoe")
        for _ in range(rng.integers(2, 5)):
            session.play(int(rng.choice(list(session.legal().values()))))
        if session.over:
            continue
        session.think(Limit(simulations=5000))
        best, *others = session.moves()
        if not best.exact or not best.value:
            continue
        decided += 1
        value, shortest = solved(session.game, session.state)
        assert best.value == value and len(best.variation) >= shortest if value > 0 else best.value == value
        alike = [len(move.variation) for move in others if move.exact and move.value == best.value]
        compare = min if value > 0 else max
        assert len(best.variation) == compare([len(best.variation), *alike])
        result = session.to_play
        for action in best.variation:
            session.play(action)
        assert session.result == (value if result == 0 else -value)
    assert decided > 10


def solved(game, state):
    """Return (the result of best play for the player to move, how many moves it takes)."""
    ended, value = game.terminal(state[None])
    if ended[0]:
        return float(value[0]), 0
    found = []
    for action in np.flatnonzero(game.legal(state[None])[0]):
        value, length = solved(game, game.play(state[None], np.array([action]))[0])
        found.append((-value, length + 1))
    best = max(value for value, _ in found)
    lengths = [length for value, length in found if value == best]
    return best, (min if best > 0 else max)(lengths)
