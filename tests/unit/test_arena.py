"""Openings, matches and whole evaluations."""

import json

import numpy as np
import pytest
from helpers import Corridor
from scripted import Scripted
from stand_ins import Part, Shown

from az_mpi import games
from az_mpi.config import load
from az_mpi.config import schema as models
from az_mpi.core.problems import Refusal
from az_mpi.core.registry import OPPONENTS
from az_mpi.evaluate import arena
from az_mpi.evaluate.arena import play_match
from az_mpi.evaluate.evaluation import evaluate, opponents
from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import RandomPlayer, SearchPlayer
from az_mpi.evaluate.solver import positions
from az_mpi.games.mnk import Rules
from az_mpi.games.random_games import random_actions
from az_mpi.network.evaluators import RolloutEvaluator, UniformEvaluator

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")


def searcher(game, simulations, evaluate=None):
    return SearchPlayer(evaluate or UniformEvaluator(game), models.Search(simulations=simulations))


def mirrored(result):
    """The same games seen by the other player."""
    return arena.MatchResult(result.as_second[::-1], result.as_first[::-1])


# openings


def test_openings_differ_while_there_are_enough():
    """Two plies of Connect Four lead to 7 x 7 positions, all different."""
    keys = CONNECT4.key(openings(CONNECT4, 60, 2, seed=(1, 5)).states)
    assert len(set(keys[:49].tolist())) == 49
    assert (keys[49:] == keys[:11]).all()


def test_openings_are_positions_in_play_of_the_asked_length():
    states = openings(CONNECT4, 200, 9, seed=3).states
    assert (np.bitwise_count(states).sum(axis=1) == 9).all() and not CONNECT4.terminal(states)[0].any()


def test_openings_depend_on_the_seed_alone():
    one, same, other = (openings(CONNECT4, 20, 4, seed).states for seed in ((1, 2), (1, 2), (1, 3)))
    assert (one == same).all() and (one != other).any()


def test_opening_longer_than_any_game():
    """At nine plies tic-tac-toe is over; at eight it may be in play, with one empty cell."""
    states = openings(TICTACTOE, 5, 50, seed=1).states
    assert (np.bitwise_count(states).sum(axis=1) == 8).all() and not TICTACTOE.terminal(states)[0].any()


@pytest.mark.parametrize("game", [Corridor(31), games.make("backgammon(max_plies=30)")], ids=lambda game: game.name)
def test_openings_end_before_the_limit_of_a_game_whose_rules_do_not_end_it(game):
    """Chance moves count to the limit, not to the plies of an opening."""
    found = openings(game, 5, 100, seed=1)
    plies = np.array([len(moves) for moves in found.moves])
    assert not game.terminal_at(found.states, plies)[0].any() and plies.max() == game.max_plies - 1


def test_a_game_without_a_move_of_a_player_has_no_opening(monkeypatch):
    monkeypatch.setattr(Corridor, "max_plies", 0)
    with pytest.raises(Refusal, match="corridor: no game lasts until a player is to move"):
        openings(Corridor(), 5, 2, seed=1)


def test_no_opening():
    assert (openings(CONNECT4, 3, 0, seed=1).states == 0).all()


def test_random_actions_share_the_unit_interval():
    legal = np.tile([True, False, True, True], (6, 1))
    uniform = np.array([0.0, 0.333, 0.334, 0.666, 0.667, 0.999999])
    assert random_actions(legal, uniform).tolist() == [0, 0, 2, 2, 3, 3]


# matches


def test_scripted_match(world):
    """X takes cells 0 1 2 and has a line before O has 8 7 6; then the other begins and has 8 7 6 first."""
    result = play_match(world, TICTACTOE, Scripted(False, []), Scripted(True, []), 6, 0, seed=1)
    assert result == arena.MatchResult(as_first=(3, 0, 0), as_second=(0, 0, 3))
    assert (result.wins, result.draws, result.losses, result.num_games) == (3, 0, 3, 6)


def test_openings_that_repeat_are_warned_of_once(caplog):
    """Connect Four has 49 openings of two plies."""
    arena._warn.cache_clear()
    sides = Scripted(False, []), Scripted(True, [])

    def said(rank, num_games, plies):
        caplog.clear()
        play_match(Part(rank, 100), CONNECT4, *sides, num_games, plies, (1,))
        return [record.getMessage() for record in caplog.records]

    assert said(0, 98, 2) == said(0, 100, 2) == said(1, 110, 2) == said(0, 110, 3) == []
    [text] = said(0, 110, 2)
    assert "openings repeat: there are 49 of 2 plies" in text
    assert said(0, 110, 2) == []


def test_each_opening_is_played_with_both_colours(world):
    seen = []

    class Noting(Scripted):
        def seat(self, game, states, indices, moves):
            seen.append((states.copy(), indices))
            return super().seat(game, states, indices, moves)

    ours, theirs = Noting(False, []), Scripted(True, [])
    play_match(world, CONNECT4, ours, theirs, 20, 3, seed=2)
    ((states, indices),) = seen
    assert indices.tolist() == list(range(20))
    assert (states[0::2] == states[1::2]).all() and len(set(CONNECT4.key(states).tolist())) == 10
    assert set(ours.moves) == {(i, i % 2) for i in range(20)}
    assert set(theirs.moves) == {(i, 1 - i % 2) for i in range(20)}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_same_games_on_any_number_of_ranks(ranks):
    """Ten games are five pairs; the ranks' counts add up to those of one rank."""
    players = searcher(CONNECT4, 20), RandomPlayer((7,))
    whole = play_match(Part(0, 1), CONNECT4, *players, 10, 2, seed=4)
    parts = [play_match(Part(rank, ranks), CONNECT4, *players, 10, 2, seed=4) for rank in range(ranks)]
    assert whole.as_first == tuple(np.sum([part.as_first for part in parts], axis=0))
    assert whole.as_second == tuple(np.sum([part.as_second for part in parts], axis=0))
    assert whole.num_games == 10 and all(part.num_games % 2 == 0 for part in parts)


def test_more_games_than_are_played_at_once(world, monkeypatch):
    players, progress = (searcher(TICTACTOE, 10), RandomPlayer((7,))), []
    whole = play_match(world, TICTACTOE, *players, 10, 2, seed=4)
    monkeypatch.setattr(arena, "GAMES_AT_ONCE", 4)
    assert play_match(world, TICTACTOE, *players, 10, 2, 4, lambda *counts: progress.append(counts)) == whole
    assert progress == sorted(progress) and progress[-1] == (10, 10)


def test_exchanging_the_players_mirrors_the_match(world):
    weak, strong = searcher(CONNECT4, 10), searcher(CONNECT4, 60)
    result = play_match(world, CONNECT4, weak, strong, 40, 2, seed=1)
    assert play_match(world, CONNECT4, strong, weak, 40, 2, seed=1) == mirrored(result)
    assert result.wins != result.losses  # else the match could not tell a mirror


def test_a_player_against_itself_scores_half(world):
    player = searcher(CONNECT4, 30)
    result = play_match(world, CONNECT4, player, player, 40, 2, seed=1)
    assert result == mirrored(result) and result.wins == result.losses


def test_search_beats_random_moves(world):
    rollout = searcher(TICTACTOE, 100, RolloutEvaluator(TICTACTOE, 1))
    result = play_match(world, TICTACTOE, rollout, RandomPlayer((1,)), 60, 0, seed=1)
    assert result.wins >= 50 and result.losses <= 2


def test_search_takes_the_win(world):
    """X to move has three stones on each other in column 4."""
    state = CONNECT4.initial(1)
    for column in (3, 0, 3, 1, 3, 0):
        state = CONNECT4.play(state, np.array([column]))
    assert searcher(CONNECT4, 50).actions(CONNECT4, state).tolist() == [3]


def test_any_result_above_zero_is_a_win(world):
    class Shares(Rules):
        def terminal(self, states):
            ended, value = super().terminal(states)
            return ended, value * np.float32(0.25)

    result = play_match(world, Shares(), Scripted(False, []), Scripted(True, []), 2, 0, seed=1)
    assert result == arena.MatchResult(as_first=(1, 0, 0), as_second=(0, 0, 1))


# evaluations


def settings(game="tictactoe", **more):
    section = {"num_games": 6, "simulations": 8, "rollout_simulations": 16, "solver_positions": 20} | more
    return load.validate({"game": game, "evaluate": section}, "test")


def test_evaluation(world):
    uniform, shown = UniformEvaluator(TICTACTOE), Shown()
    report = evaluate(world, settings(), TICTACTOE, uniform, uniform, 3, shown)
    assert report["iteration"] == 3 and report["simulations"] == 8
    assert list(report["matches"]) == ["best", "random", "rollout"]
    assert report["matches"]["best"]["score"] == 0.5 and report["matches"]["random"]["num_games"] == 6
    assert report["solver"]["num_positions"] == 4520
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert [told[-1] for told in shown.told if told] == [
        *((f"match against {name}", 6, 6, "games") for name in ("best", "random", "rollout")),
        ("comparison with the solver", 17 * 256, 4520, "positions"),
    ]


def test_evaluation_does_what_is_asked_only(world):
    uniform, shown = UniformEvaluator(TICTACTOE), Shown()
    chosen = settings(opponents=["best", "random"], simulations=0, solver_positions=0)
    report = evaluate(world, chosen, TICTACTOE, uniform, None, 0, shown)
    assert list(report["matches"]) == ["random"] and "solver" not in report
    assert report["simulations"] == chosen.search.simulations


def test_the_rollout_opponent_is_the_same_for_every_search():
    game = games.make("hex(size=7)")
    states, moves = positions(game, 6, 3, 0, 12), []
    for search in ({"algorithm": "puct"}, {"algorithm": "gumbel", "gumbel_c_scale": 0.3}, {"c_puct": 9.0}):
        config = load.validate({"game": game.name, "search": search, "evaluate": {"rollout_simulations": 60}}, "test")
        moves.append(opponents(config, game)["rollout"].actions(game, states).tolist())
    assert moves[0] == moves[1] == moves[2]


def test_no_solver_where_one_rank_lacks_it():
    class Lacking(Part):
        def collect(self, item):
            return [item, "not installed there"]

    report = evaluate(Lacking(0, 2), settings(opponents=[]), TICTACTOE, UniformEvaluator(TICTACTOE), None, 0, None)
    assert "solver" not in report


OWN = """
import numpy as np
from az_mpi.evaluate.opponents import Opponent
from az_mpi.evaluate.solver import Solved, Solver

class First(Opponent):
    def __init__(self, last=False):
        self.last = last

    def actions(self, game, states):
        legal = game.legal(states)
        return legal.shape[1] - 1 - legal[:, ::-1].argmax(axis=1) if self.last else legal.argmax(axis=1)

class Start(Solver):
    def __init__(self, game, num=1):
        self.game, self.num = game, num

    def solve(self, num_positions, rank, size, on_progress):
        states = np.repeat(self.game.initial(1), self.num, axis=0)[rank::size]
        legal = self.game.legal(states)
        return Solved(states, legal, np.where(legal, 0, np.nan).astype(np.float32))
"""


def test_an_opponent_and_a_solver_of_ones_own(world, tmp_path):
    """Seven in a row from the left: the first of two such players has a line when it takes the seventh cell."""
    (tmp_path / "own.py").write_text(OWN)
    uniform, own = UniformEvaluator(TICTACTOE), f"{tmp_path}/own.py"
    chosen = settings(opponents=[f"{own}:First", "random", f"{own}:First(last=True)"], solver=f"{own}:Start")
    report = evaluate(world, chosen, TICTACTOE, uniform, None, 0, Shown())
    assert list(report["matches"]) == ["own.py:First", "random", "own.py:First(last=True)"]
    assert all(match["num_games"] == 6 for match in report["matches"].values())
    assert report["solver"]["num_positions"] == 1 and report["solver"]["overall"] == 1.0
    twice = settings(opponents=[], solver=f"{own}:Start(num=2)")
    report = evaluate(world, twice, TICTACTOE, uniform, None, 0, Shown())
    assert report["solver"]["num_positions"] == 2
    first = OPPONENTS.find(f"{own}:First")()
    assert play_match(world, TICTACTOE, first, first, 2, 0, (1,)) == arena.MatchResult((1, 0, 0), (0, 0, 1))
    assert "solver" in evaluate(world, settings(opponents=[], solver="enumerate"), TICTACTOE, uniform, None, 0, Shown())


def test_a_game_that_names_no_solver_has_none(world):
    game = Rules()
    game.solver = ""
    uniform = UniformEvaluator(TICTACTOE)
    assert "solver" not in evaluate(world, settings(opponents=[]), game, uniform, None, 0, None)


def test_a_match_is_watched_by_turns_of_both_players(monkeypatch):
    """One of them may need next to no time: judged by its turns, the other one would hang."""
    said = []
    monkeypatch.setattr(arena.watchdog, "step", lambda: said.append("step"))
    monkeypatch.setattr(arena.watchdog, "tick", lambda: said.append("tick"))
    play_match(Part(0, 1), TICTACTOE, Scripted(False, []), Scripted(True, []), 2, 0, (1,))
    assert said == ["tick", *["tick", "step"] * 3, "tick"]
