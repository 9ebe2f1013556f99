"""Ranked reward: thresholds and ranks by hand, the search for ends above a threshold, and what the threshold is of."""

import math

import numpy as np
import pytest
from helpers import callable_by_python, make_config, tree_as_dict
from kinds import Digits, Pig, Sums, Trio, plain
from stand_ins import part_of_run

from az_mpi import games
from az_mpi.config import schema
from az_mpi.core.problems import Refusal
from az_mpi.core.ranks import all_ranked, ranked
from az_mpi.evaluate.evaluation import check_opponents
from az_mpi.mpi.alone import Alone
from az_mpi.network.evaluators import RolloutEvaluator, UniformEvaluator
from az_mpi.run import ranking as run_ranking
from az_mpi.run.run_files import RunFiles
from az_mpi.search import make_search
from az_mpi.selfplay import ranked as ranking
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import Record, game_dtype, position_dtype
from az_mpi.storage import segment, thresholds
from az_mpi.storage.checkpoint import Progress
from az_mpi.telemetry.summary import iteration_line, threshold_text

DIGITS = Digits()
BOTH = pytest.mark.parametrize("algorithm", ["puct", "gumbel"])


def settings(share, num=250):
    return make_config(selfplay={"ranked_reward": share, "ranked_games": num}).selfplay


def of_games(outcomes, ids=None, length=2):
    """Return a record of games of Digits with these results, of `length` positions each."""
    record = Record.empty(DIGITS)
    record.games = np.zeros(len(outcomes), game_dtype(DIGITS))
    record.games["id"] = np.arange(len(outcomes)) if ids is None else ids
    record.games["outcome"], record.games["length"] = outcomes, length
    record.games["score"] = 16 * (record.games["outcome"] + 1)
    record.positions = np.zeros(length * len(outcomes), position_dtype(DIGITS))
    record.positions["game"] = np.repeat(record.games["id"], length)
    record.positions["value"] = np.repeat(record.games["outcome"], length)
    return record


def test_the_threshold_is_the_least_result_that_the_share_does_not_exceed():
    quarters = of_games([0.25, -0.5, 0.5, 0.0]).games
    for share, result in ((0.75, 0.25), (0.76, 0.5), (0.5, 0.0), (0.25, -0.5), (0.1, -0.5), (0.99, 0.5)):
        assert ranking.threshold(quarters, settings(share)) == (result, 16 * (result + 1))
    assert ranking.threshold(quarters[::-1], settings(0.75)).result == 0.25  # games have no order but that of ids
    assert ranking.threshold(quarters, settings(0.5, num=2)).result == 0.0  # of the games 2 and 3 alone
    shuffled = of_games([0.25, -0.5, 0.5, 0.0], ids=[9, 1, 8, 2]).games
    assert ranking.threshold(shuffled, settings(0.5, num=2)).result == 0.25


def test_without_games_or_without_the_option_there_is_no_threshold():
    for found in (
        ranking.threshold(of_games([]).games, settings(0.75)),
        ranking.threshold(of_games([1]).games, settings(0)),
    ):
        assert math.isnan(found.result) and math.isnan(found.score) and ranking.figures(found) == {}
    assert ranking.figures(ranking.Threshold(0.5)) == {"ranked_threshold": 0.5}


def test_results_count_as_1_above_the_threshold_and_as_minus_1_below_it():
    results = np.array([-1, 0.2, 0.25, 0.3, 1], np.float32)
    assert all_ranked(results, 0.25).tolist() == [-1, -1, 0, 1, 1]
    assert all_ranked(results, 1.0).tolist() == [-1, -1, -1, -1, 1]  # nothing is better than 1
    assert all_ranked(results, math.nan) is results
    one = callable_by_python(ranked)
    for threshold in (*results.tolist(), 0.1):
        assert [one(result, threshold) for result in results] == all_ranked(results, threshold).tolist()


def test_positions_learn_the_ranks_of_their_games_and_ties_are_drawn_by_lot():
    record = of_games([0.5] * 400 + [0.75, 0.25, 1.0])
    found = ranking.ranked(record, 0.5, seed=3)
    counts = found.games["outcome"]
    assert counts[400:].tolist() == [1, -1, 1] and set(counts[:400].tolist()) == {1, -1}
    assert 150 < (counts[:400] == 1).sum() < 250
    assert found.positions["value"].tolist() == np.repeat(counts, 2).tolist()
    assert record.games["outcome"][0] == record.positions["value"][0] == 0.5  # what is stored stays as it is
    assert found.games["score"].tolist() == record.games["score"].tolist()
    chosen = np.arange(403) % 3 == 1  # what one of several ranks has played
    assert ranking.ranked(record.select(chosen), 0.5, seed=3).games.tolist() == found.games[chosen].tolist()
    assert (ranking.ranked(record, 0.5, seed=4).games["outcome"][:400] != counts[:400]).any()
    assert ranking.ranked(record, math.nan, seed=3) is record


def search_above(game, threshold, algorithm, evaluate=UniformEvaluator, simulations=200):
    """Return a search of the state in which digits 110 were written, so that 24 to 27 can be reached."""
    evaluator = evaluate(game)
    evaluator.threshold = threshold
    search = make_search(game, evaluator, schema.Search(algorithm=algorithm, simulations=simulations), 1, noise=False)
    search.reset(np.arange(1), np.array([[3, 6]], np.int32), np.zeros(1, np.uint64), 3)
    search.run(np.arange(1))
    return search


def ends_of(search):
    """Return {digits: what they count} of the ends that a search has reached."""
    trees = search.trees
    ended = np.flatnonzero(trees.ended[0, : trees.tree["nodes_used"][0]])
    return dict(zip(trees.state[0, ended, 1].tolist(), trees.exact_value[0, ended].tolist()))


@BOTH
@pytest.mark.parametrize("best", [26, 27])
def test_a_search_finds_the_ends_above_the_threshold(algorithm, best):
    """The ends differ by a sixteenth; their ranks are -1, 0 and 1. They prove nothing: every simulation is made."""
    search = search_above(DIGITS, (best - 0.5) / 16 - 1, algorithm)
    trees, root, ends = search.trees, search.trees.node[0, 0], ends_of(search)
    assert ends == {end: 1.0 if end >= best else -1.0 for end in ends} and 27 in ends
    assert not root["exact"] and root["visits"] == 201 and not trees.edge_exact[0, :2].any()
    first, second = trees.edge_value_sum[0, :2] / trees.edge_visits[0, :2]
    assert first < 0 < second and search.choose(np.arange(1), np.zeros(1)) == [1]


@BOTH
def test_an_end_at_the_threshold_counts_as_0(algorithm):
    search = search_above(DIGITS, 25 / 16 - 1, algorithm)
    ends = ends_of(search)
    assert ends[25] == 0 and ends.items() <= {24: -1, 25: 0, 26: 1, 27: 1}.items()


@BOTH
def test_the_compiled_loop_ranks_as_steps_of_batches_do(algorithm):
    found = []
    for game in (DIGITS, plain(DIGITS)):
        search = search_above(game, 25.5 / 16 - 1, algorithm, Sums)
        found.append([tree_as_dict(search.trees, 0), [part.tolist() for part in search.policy(np.arange(1))]])
    assert found[0] == found[1]
    without = search_above(DIGITS, math.nan, algorithm)
    assert without.trees.node[0, 0]["exact"] or algorithm == "gumbel"  # results prove
    assert ends_of(without)[27] == 27 / 16 - 1


@pytest.mark.parametrize("best, rank", [(29, 1), (32, -1)])
def test_random_play_outs_are_ranked_too(best, rank):
    """They end with the digits 30 or 31."""
    evaluate, states = RolloutEvaluator(DIGITS, [1]), np.array([[4, 15]] * 9, np.int32)
    assert set((16 * (evaluate(states)[1] + 1)).tolist()) == {30, 31}
    evaluate.threshold = best / 16 - 1
    assert evaluate(states)[1].tolist() == [rank] * 9


@pytest.mark.parametrize("num,result", [(1, 0.25), (2, 0.0), (3, 0.0), (4, -0.5), (100, -0.5)])
def test_the_threshold_of_an_iteration_is_of_the_newest_games_before_it(tmp_path, num, result):
    """They may be of several segments of several iterations. A damaged segment counts as one without games."""
    for iteration, number, outcomes in ((0, 0, [-0.5] * 3), (1, 1, [0.0, 0.25]), (1, 0, [0.5]), (2, 0, [0.75] * 9)):
        ids = np.arange(len(outcomes)) + (iteration << 40) + 10 * number
        path = segment.path_of(tmp_path, iteration, number)
        segment.write(tmp_path, iteration, DIGITS, of_games(outcomes, ids), {}, path)
    config = make_config(selfplay={"ranked_reward": 0.25, "ranked_games": num})

    def of(iteration):
        return thresholds.of_iteration(tmp_path, config, DIGITS, iteration).result

    assert of(2) == result and of(1) == -0.5 and math.isnan(of(0))
    for name in ("000001-000.h5", "000001-001.h5"):
        (tmp_path / name).write_bytes(b"damaged")
    assert of(2) == -0.5
    assert math.isnan(thresholds.of_iteration(tmp_path / "nowhere", config, DIGITS, 2).result)


def test_a_run_ranks_games_by_those_of_earlier_iterations(tmp_path):
    """Iteration 2 is under way, and its network has learned by the threshold of iteration 1. What is dealt again after
    a resumption is ranked by the threshold of its own iteration."""
    (tmp_path / "games").mkdir()
    for iteration, outcomes in ((0, [-0.5, 0.25]), (1, [0.5, 0.75, -0.75])):
        record = of_games(outcomes, np.arange(len(outcomes)) + (iteration << 40))
        segment.write(
            tmp_path / "games", iteration, DIGITS, record, {}, segment.path_of(tmp_path / "games", iteration, 0)
        )
    run = part_of_run(
        world=Alone(),
        setup={"config": make_config(selfplay={"ranked_reward": 0.5, "ranked_games": 3}), "game": DIGITS},
        files=RunFiles(tmp_path, DIGITS, 600.0),
        playing={"evaluate": UniformEvaluator(DIGITS), "player": None, "threshold": ranking.Threshold()},
        progress=Progress(iteration=2),
        report={"status": None},
    )
    run.report.status = part_of_run()
    run.playing.player = make_player("puct", run.playing.evaluate)
    run_ranking.renew(run)
    assert run.playing.threshold == (0.5, 24) and run.playing.evaluate.threshold == 0.5
    assert run.report.status.threshold == "units 24"
    assert run_ranking.of_network(run, 2) == -0.5 and math.isnan(run_ranking.of_network(run, 1))
    rank = run_ranking.ranker(run)
    assert rank(of_games([0.25, 0.75]), 2).games["outcome"].tolist() == [-1, 1]
    assert rank(of_games([0.25, -0.75]), 1).games["outcome"].tolist() == [1, -1]
    assert rank(of_games([0.25]), 0).games["outcome"].tolist() == [0.25]
    line = iteration_line(
        {"num_games": 1, "num_positions": 2, "num_steps": 3, **ranking.figures(run.playing.threshold)}
    )
    assert ", ranked by score 24;" in line and threshold_text({"ranked_threshold": 0.25}) == "result +0.250"


def make_player(algorithm, evaluate):
    search = {"algorithm": algorithm, "simulations": 20, "full_share": 0.5, "fast_simulations": 6}
    return Player(make_config(search=search, selfplay={"parallel_games": 6}), DIGITS, evaluate, 0)


def renewed(player, threshold, monkeypatch):
    """Let games continue with this threshold as a run does, which had none before or that of the evaluator."""
    before, found = ranking.Threshold(player.search.evaluate.threshold), ranking.Threshold(threshold)
    monkeypatch.setattr(run_ranking, "of_iteration", lambda run, iteration: found)
    playing = {"evaluate": player.search.evaluate, "player": player, "threshold": before}
    run = part_of_run(progress={"iteration": 1}, playing=playing, report={"status": part_of_run()})
    run.setup = part_of_run(game=DIGITS)
    run_ranking.renew(run)


def under_way(algorithm, threshold=math.nan):
    """Return a player in whose games some moves were made, paused."""
    evaluate = UniformEvaluator(DIGITS)
    evaluate.threshold = threshold
    player = make_player(algorithm, evaluate)
    player.start(player.free(), np.arange(6, dtype=np.uint64), 0)
    while player.ply.max() < 3:
        player.step()
    player.pause()
    return player


@BOTH
@pytest.mark.parametrize("before, now", [(math.nan, 0.6), (0.2, 0.6), (0.6, math.nan)])
def test_with_another_threshold_the_trees_of_games_under_way_start_again(algorithm, before, now, monkeypatch):
    """Trees with ends by both thresholds would mix results and ranks, and what was proven without one holds no more."""
    player = under_way(algorithm, before)
    slots, trees = np.flatnonzero(player.live), player.search.trees
    assert trees.nodes_used[slots].max() > 3 and (not math.isnan(before) or trees.exact[slots].any())
    games_before = [player.ids.copy(), player.ply.copy(), trees.state[slots, 0].copy(), player._moves.states.copy()]
    renewed(player, now, monkeypatch)
    trees = player.search.trees
    assert (trees.nodes_used[slots] == 1).all() and not trees.exact[slots, 0].any()
    assert (trees.root_ply[slots] == player.ply[slots]).all()
    games_after = [player.ids, player.ply, trees.state[slots, 0], player._moves.states]
    assert all((one == other).all() for one, other in zip(games_before, games_after))
    seen = set()
    while player.live.any():
        player.step()
        for b in np.flatnonzero(player.live):
            ended = np.flatnonzero(trees.ended[b, : trees.nodes_used[b]])
            found, digits = trees.exact_value[b, ended], trees.state[b, ended, 1]
            assert (found == all_ranked((digits / 16 - 1).astype(np.float32), now)).all()
            seen |= set(found.tolist())
    assert seen and (math.isnan(now) or seen <= {-1.0, 0.0, 1.0})
    record = player.take()
    assert sorted(record.games["id"].tolist()) == list(range(6)) and (record.games["length"] == 5).all()


@BOTH
@pytest.mark.parametrize("threshold", [math.nan, 0.6])
def test_with_the_same_threshold_the_trees_of_games_under_way_are_kept(algorithm, threshold, monkeypatch):
    player = under_way(algorithm, threshold)
    before = [tree_as_dict(player.search.trees, b) for b in np.flatnonzero(player.live)]
    renewed(player, float(np.float64(threshold)), monkeypatch)
    assert [tree_as_dict(player.search.trees, b) for b in np.flatnonzero(player.live)] == before


@BOTH
def test_games_continue_with_their_own_random_numbers_where_their_trees_start_again(algorithm, monkeypatch):
    """Beside other games, on another rank, a game plays the same moves."""
    found = []
    for alone in (False, True):
        player = under_way(algorithm)
        player.live[1:] &= not alone
        renewed(player, 0.6, monkeypatch)
        while player.live[0]:
            player.step()
        player.pause()
        games_played = player.take()
        first = games_played.select(games_played.games["id"] == 0)
        found.append([first.positions.tobytes(), first.policy.tobytes()])
    assert found[0] == found[1] and found[0][0]


@pytest.mark.parametrize("game", [Pig(), Trio(), games.make("tictactoe")], ids=lambda game: game.name)
def test_results_of_several_players_are_not_ranked(game):
    with pytest.raises(Refusal, match="ranked_reward = 0.75: .*game of (two|3) players.*one player") as found:
        check_opponents(make_config(selfplay={"ranked_reward": 0.75}), game)
    assert "allowed: 0" in str(found.value)
