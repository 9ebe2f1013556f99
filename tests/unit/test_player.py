"""Self-play: what is played and what is recorded of it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import Hashed, by_id, make_config, play_games, policy_of, visits_of
from kinds import plain

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import OwnCodeError
from az_mpi.network.evaluators import Evaluator, UniformEvaluator
from az_mpi.search import choices, tree
from az_mpi.search.puct import Search
from az_mpi.selfplay import player as player_module
from az_mpi.selfplay.player import Player

TICTACTOE, CONNECT4 = games.make("tictactoe"), games.make("connect4")
QUICK = {"simulations": 15, "temperature_plies": 4}


def make_player(game=TICTACTOE, parallel_games=8, rank=0, evaluate=None, search=QUICK, seed=1, max_plies=0, **more):
    selfplay = {"parallel_games": parallel_games, "max_plies": max_plies}
    settings = make_config(game.name, seed=seed, search=search, selfplay=selfplay)
    return Player(settings, game, evaluate or UniformEvaluator(game), rank, **more)


def rows_of_games(record):
    """Yield (game, its positions) of a record."""
    for game, end in zip(record.games, np.cumsum(record.games["length"])):
        yield game, record.positions[end - game["length"] : end]


@pytest.fixture(
    scope="module",
    params=[(TICTACTOE, "puct"), (CONNECT4, "puct"), (CONNECT4, "gumbel")],
    ids=lambda given: f"{given[0].name}-{given[1]}",
)
def played(request):
    """40 games with values that look random, and the game's rules."""
    game, algorithm = request.param
    player = make_player(game, evaluate=Hashed(game), search=QUICK | {"algorithm": algorithm, "temperature_final": 1.0})
    return game, play_games(player, range(40))


def test_positions_follow_each_other_by_the_recorded_moves_from_the_start_to_an_end(played):
    game, record = played
    assert record.games["id"].tolist() == list(range(40))  # in order, whichever ended first
    for row, positions in rows_of_games(record):
        state = game.initial(1)
        for position in positions:
            assert not game.terminal(state)[0][0] and (position["state"] == state[0]).all()
            assert game.legal(state)[0, position["action"]] and position["to_play"] == game.to_play(state)[0]
            state = game.play(state, position["action"][None])
        ended, value = game.terminal(state)
        assert ended[0] and not row["truncated"] and row["length"] == len(positions)
        # Who moves at the end has lost or drawn: the result for the player who began.
        assert row["outcome"] == (value[0] if len(positions) % 2 == 0 else -value[0])


def test_values_are_the_outcome_for_the_player_to_move(played):
    _, record = played
    for row, positions in rows_of_games(record):
        assert positions["value"].tolist() == [row["outcome"] * (-1) ** ply for ply in range(row["length"])]
        if row["outcome"]:
            assert positions["value"][-1] == 1  # only the one who moves last can have won
    assert {-1, 1} <= set(record.games["outcome"].tolist())


def test_policies_are_distributions_over_legal_moves(played):
    game, record = played
    dense = record.dense_policy(game.num_actions)
    assert np.abs(dense.sum(axis=1, dtype=float) - 1).max() < 1e-6 and (record.policy["probability"] > 0).all()
    assert not dense[~game.legal(record.positions["state"])].any()
    assert (record.positions["weight"] == 1).all()


@pytest.mark.parametrize("temperature", [1e-3, 0.0, 1.0])
def test_policies_are_the_searchs_whatever_the_temperature(temperature):
    """Without noise or reuse each search can be repeated alone: its policy is the target, its value the root value."""
    search = {"simulations": 40, "dirichlet_fraction": 0.0, "reuse_tree": False, "temperature_plies": 2}
    search |= {"temperature": 1.0, "temperature_final": temperature}
    record = play_games(make_player(CONNECT4, evaluate=Hashed(CONNECT4), search=search), range(6))
    again = Search(CONNECT4, Hashed(CONNECT4), models.Search(**search), len(record.positions), noise=True)
    slots = np.arange(len(record.positions))
    again.reset(slots, record.positions["state"], slots.astype(np.uint64))
    again.run(slots)
    policy = policy_of(again, slots)
    assert (visits_of(again, slots).sum(axis=1) == 40).mean() > 0.8 and ((policy > 0).sum(axis=1) > 1).mean() > 0.5
    assert (record.dense_policy(7) == policy).all()
    assert (record.positions["root_value"] == again.value(slots)).all()
    late = record.positions["ply"] >= 2
    best = record.positions["action"][late] == np.argmax(policy[late], axis=1)
    top = np.sort(policy[late], axis=1)
    if temperature < 1:
        assert (best | (top[:, -1] == top[:, -2])).all()
    else:
        assert not best.all()


def test_early_moves_are_drawn_and_later_ones_are_the_most_visited():
    search = QUICK | {"temperature_plies": 3, "temperature_final": 0.0}
    record = play_games(make_player(CONNECT4, search=search), range(60))
    dense = record.dense_policy(7)
    best = dense[np.arange(len(dense)), record.positions["action"]] == dense.max(axis=1)
    ply = record.positions["ply"]
    assert best[ply >= 3].all() and all(not best[ply == k].all() for k in range(3))


@pytest.mark.parametrize("search", [QUICK, QUICK | {"algorithm": "gumbel"}], ids=["puct", "gumbel"])
def test_the_same_games_come_out_however_many_are_played_at_once_and_in_any_order(search):
    ids = [7, 2**40 + 3, 0, 1, 2**63 + 5, 12, 99, 4, 50]
    expected = by_id(play_games(make_player(parallel_games=1, search=search), ids))
    assert len(expected) == 9 and len({content[1:] for content in expected.values()}) > 5
    for parallel_games, order in ((3, ids), (16, ids), (4, ids[::-1])):
        player = make_player(parallel_games=parallel_games, rank=2, search=search)
        assert by_id(play_games(player, order)) == expected


@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
@pytest.mark.parametrize(
    "settings",
    [
        {"search": {"temperature": 0.7, "temperature_plies": 9, "temperature_final": 0.3}},
        {"search": {"full_share": 0.4, "fast_simulations": 4}, "selfplay": {"surprise_share": 0.5}},
        {"search": {"reuse_tree": False}, "selfplay": {"resign_threshold": 0.3, "resign_play_on": 0.3}},
        {"search": {}, "selfplay": {"resign_threshold": 0.3, "resign_play_on": 0.3, "max_plies": 15}},
    ],
    ids=[
        "temperatures",
        "fast searches and surprises",
        "resignation without kept trees",
        "ends by limit and resignation",
    ],
)
def test_compiled_code_plays_the_moves_that_the_methods_of_a_search_choose(algorithm, settings, monkeypatch):
    search = {"simulations": 20, "algorithm": algorithm} | settings["search"]
    config = make_config("connect4", search=search, selfplay={"parallel_games": 70} | settings.get("selfplay", {}))
    found = []
    for decided in (choices.DECIDED, set()):
        monkeypatch.setattr(choices, "DECIDED", decided)
        found.append(by_id(play_games(Player(config, CONNECT4, Hashed(CONNECT4), 0, threads=2), range(90))))
    assert found[0] == found[1] and len(found[0]) == 90


def test_another_seed_plays_other_games():
    one, other = (play_games(make_player(seed=seed), range(10)) for seed in (1, 2))
    assert one.positions["action"].tolist() != other.positions["action"].tolist()


def test_a_finished_game_does_not_stain_the_next_one_in_its_slot():
    """Longer and shorter games follow each other in two slots: policy, values and states are those of fresh slots."""
    busy = by_id(play_games(make_player(CONNECT4, 2, evaluate=Hashed(CONNECT4)), range(30, 50)))
    for k in (30, 37, 49):
        alone = by_id(play_games(make_player(CONNECT4, 2, evaluate=Hashed(CONNECT4)), [k]))
        assert alone[k] == busy[k]


@pytest.mark.parametrize("cap", [1, 6, 8])
def test_games_longer_than_the_cap_are_draws_and_say_so(cap):
    """A game that ends by the rules at the cap is no draw and not truncated."""
    record = play_games(make_player(max_plies=cap), range(80))
    results = set()
    for row, positions in rows_of_games(record):
        state = TICTACTOE.play(positions["state"][-1:], positions["action"][-1:])
        ended, value = TICTACTOE.terminal(state)
        assert row["length"] == cap or ended[0]
        assert row["truncated"] == (not ended[0])
        if row["truncated"]:
            assert row["outcome"] == 0 and not positions["value"].any()
        elif value[0]:
            assert positions["value"][-1] == 1
        results.add((bool(row["truncated"]), int(row["length"]) == cap))
    assert (True, True) in results and (cap == 1 or (False, True) in results)


@pytest.mark.parametrize("name, cap", [("backgammon", 1), ("2048(size=2)", 1), ("2048(size=2)", 2)])
@pytest.mark.parametrize("random_plies", [0, 5])
def test_a_cap_that_the_first_moves_of_chance_reach_is_refused(name, cap, random_plies):
    config = make_config(name, search=QUICK, selfplay={"max_plies": cap, "random_plies": random_plies})
    player = Player(config, game := games.make(name), UniformEvaluator(game), 0, num_games=4)
    with pytest.raises(OwnCodeError, match=f"has {cap} moves? of chance before a player moves"):
        play_games(player, range(4))


def test_no_cap_is_as_long_as_the_game():
    record = play_games(make_player(), range(60))
    assert record.games["length"].max() == 9 and not record.games["truncated"].any()


def test_take_gives_each_game_once():
    player = make_player()
    first = play_games(player, range(5))
    assert first.games["id"].tolist() == [0, 1, 2, 3, 4] and player.num_finished == 5
    empty = player.take()
    assert len(empty.games) == len(empty.positions) == len(empty.policy) == 0
    assert empty.positions.dtype == first.positions.dtype
    assert play_games(player, [9, 8]).games["id"].tolist() == [8, 9] and player.num_finished == 7


def test_games_under_way_are_finished_later_and_keep_their_iteration():
    """Half-played games, carried into the next iteration, end as they would have without the break."""
    player = make_player(parallel_games=6)
    player.start(player.free(), range(6), 3)
    while not player.finished:
        player.step()
    early = player.take()
    carried = np.flatnonzero(player.live)
    assert len(carried) and set(player.free()) == set(range(6)) - set(carried)
    late = play_games(player, [100, 101], iteration=4)
    assert sorted([*early.games["id"], *late.games["id"]]) == [0, 1, 2, 3, 4, 5, 100, 101]
    iterations = dict(zip(late.games["id"].tolist(), late.games["iteration"].tolist()))
    assert {iterations.pop(100), iterations.pop(101)} == {4} and set(iterations.values()) == {3}
    unbroken = by_id(play_games(make_player(parallel_games=6), range(6), iteration=3))
    assert {**by_id(early), **by_id(late)}.items() >= unbroken.items()


def test_one_game_alone_is_counted_by_the_simulation():
    """Without reuse each position takes the root's evaluation and 15 simulations; two plies end no search early."""
    player = make_player(search=QUICK | {"reuse_tree": False}, max_plies=2)
    record = play_games(player, range(3))
    assert len(record.positions) == 6 and player.num_simulations == 16 * 6


def test_rank_is_written_down():
    assert play_games(make_player(rank=5), [1, 2]).games["rank"].tolist() == [5, 5]


# batches in the background and threads


def test_the_number_of_games_at_once_is_the_configurations_unless_another_is_given():
    assert [len(make_player(parallel_games=n).live) for n in (0, 8)] == [256, 8]
    player = make_player(num_games=500, num_groups=3)
    assert len(player.live) == 500 and player.batch_max == 167


class InBackground(Evaluator):
    """Evaluates in another thread, as a GPU would."""

    def __init__(self, evaluate):
        self.evaluate, self.thread, self.log = evaluate, ThreadPoolExecutor(1), []

    def begin(self, states):
        self.log.append("begin")
        result = self.thread.submit(self.evaluate, states)

        def complete():
            self.log.append("complete")
            return result.result()

        return complete


@pytest.mark.parametrize("threads", [1, 2])
def test_two_groups_and_several_threads_play_the_same_games(threads):
    ids = range(30)
    expected = by_id(play_games(make_player(CONNECT4, evaluate=Hashed(CONNECT4)), ids))
    evaluate = InBackground(Hashed(CONNECT4))
    player = make_player(CONNECT4, 7, evaluate=evaluate, threads=threads, num_groups=2)
    assert by_id(play_games(player, ids)) == expected
    # From the second on, a batch is begun before the one before it is asked for.
    assert evaluate.log[:6] == ["begin", "begin", "complete", "begin", "complete", "begin"]


@pytest.mark.parametrize("threads", [1, 2])
def test_games_that_wait_to_be_collected_and_trees_that_grow_change_no_game(threads, monkeypatch):
    search = {"simulations": 16, "algorithm": "gumbel", "full_share": 0.6, "fast_simulations": 4}
    expected = by_id(play_games(make_player(CONNECT4, 12, evaluate=Hashed(CONNECT4), search=search), range(30)))
    monkeypatch.setattr(player_module, "TOGETHER", 1)  # not before all games are over, or for STEPS_MAX steps
    monkeypatch.setattr(tree, "EDGES_PER_NODE", 1)
    more = {"threads": threads, "num_groups": 2}
    player = make_player(CONNECT4, 12, evaluate=Hashed(CONNECT4), search=search, **more)
    ids, waited, step = np.arange(30, dtype=np.uint64), 0, 0
    while len(ids) or player.num_unfinished:
        slots = player.free()[: len(ids)]
        if len(slots):
            player.start(slots, ids[: len(slots)], 0)
            ids = ids[len(slots) :]
        player.step()
        step += 1
        waited += player.num_unfinished - player.live.sum()
        if step % 20 == 0:
            player.pause()
    assert by_id(player.take()) == expected and waited > 0
    assert player.search.trees.edge.shape[1] > 17  # of 16 simulations and the root


def test_pause_completes_what_is_under_way():
    evaluate = InBackground(Hashed(TICTACTOE))
    player = make_player(evaluate=evaluate, num_groups=2)
    player.start(player.free(), range(8), 0)
    for _ in range(5):
        player.step()
    assert evaluate.log.count("begin") == evaluate.log.count("complete") + 2
    player.pause()
    assert evaluate.log.count("begin") == evaluate.log.count("complete")
    visits = player.search.trees.visits[:, 0]
    assert visits.sum() == player.num_simulations and set(visits.tolist()) == {2, 3}
    # The next step is the first group's, also if it was another's turn: a resumed run begins so too.
    before = visits.copy()
    player.step()
    player.pause()
    assert (visits - before).tolist() == [1, 0] * 4


OWN_SEARCH = """
from az_mpi.search.puct import Search

class Leftmost(Search):
    '''Plays the first legal move whatever was found.'''

    def __init__(self, game, evaluate, settings, num_trees, noise, threads, last=False):
        super().__init__(game, evaluate, settings, num_trees, noise, threads)
        self.last = last

    def choose(self, slots, temperature):
        legal = self.game.legal(self.trees.state[slots, 0])
        return legal.shape[1] - 1 - legal[:, ::-1].argmax(axis=1) if self.last else legal.argmax(axis=1)
"""


def test_a_search_of_ones_own_is_what_games_are_played_with(tmp_path):
    (tmp_path / "own.py").write_text(OWN_SEARCH)
    for arguments, actions in (("", [0, 1, 2, 3, 4, 5, 6]), ("(last=True)", [8, 7, 6, 5, 4, 3, 2])):
        settings = make_config(
            search={"algorithm": f"{tmp_path}/own.py:Leftmost{arguments}", "simulations": 3},
            selfplay={"parallel_games": 2},
        )
        record = play_games(Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), 0), [5])
        assert record.positions["action"].tolist() == actions


def test_a_search_of_ones_own_whose_policies_do_not_fit_its_counts_is_refused(tmp_path):
    (tmp_path / "own.py").write_text(
        OWN_SEARCH
        + """
    def policy(self, slots):
        nums, actions, probabilities = super().policy(slots)
        return nums + 1, actions, probabilities
"""
    )
    settings = make_config(search={"algorithm": f"{tmp_path}/own.py:Leftmost", "simulations": 3})
    with pytest.raises(OwnCodeError, match="as the counts add up to"):
        play_games(Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), 0), [5])


@pytest.mark.parametrize("action", [0, 9, -3, 10**6])  # 0 is no longer legal in the second move
@pytest.mark.parametrize("of_policy", [False, True])
def test_a_search_of_ones_own_whose_actions_are_not_legal_is_refused(tmp_path, action, of_policy):
    chosen = f"""
    def choose(self, slots, temperature):
        return np.full(len(slots), {action})
"""
    targets = f"""
    def policy(self, slots):
        nums, actions, probabilities = super().policy(slots)
        return nums, np.full_like(actions, {action}), probabilities
"""
    (tmp_path / "own.py").write_text("import numpy as np\n" + OWN_SEARCH + (targets if of_policy else chosen))
    settings = make_config(
        search={"algorithm": f"{tmp_path}/own.py:Leftmost", "simulations": 3}, selfplay={"surprise_share": 0.5}
    )
    of = "policy" if of_policy else "choose"
    with pytest.raises(OwnCodeError, match=rf"Leftmost\.{of} returned an action that is not legal"):
        play_games(Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), 0), [5])


OWN_METHODS = """
import numpy as np
from az_mpi.search.puct import Search

class Plain(Search):
    pass

class LargestFirst(Search):
    def policy(self, slots):
        nums, actions, probabilities = super().policy(slots)
        rows = np.repeat(np.arange(len(slots)), nums)
        order = np.lexsort((-probabilities, rows))
        return nums, actions[order], probabilities[order]

class Counted(Search):
    calls = 0

class Begin(Counted):
    def begin(self, slots):
        self.calls += 1
        return super().begin(slots)

class Step(Counted):
    def step(self, slots):
        self.calls += 1
        super().step(slots)

class Done(Counted):
    def done(self, slots):
        self.calls += 1
        return super().done(slots)

class Without:
    def __init__(self, game, evaluate, settings, num_trees, noise):
        self.inner, self.game = Search(game, evaluate, settings, num_trees, noise), game

class Delegating(Without):
    calls = 1

    def __getattr__(self, name):
        if name in ("inner", "evaluate", "rule", "root_noise"):
            raise AttributeError(name)
        return getattr(self.inner, name)

class FarTarget(Search):
    def _begin_search(self, slots):
        super()._begin_search(slots)
        self.target[slots] = 2 * self.settings.simulations

class NeverDone(Search):
    def done(self, slots):
        return np.zeros(len(slots), bool)
"""


def player_of(folder, name, game=TICTACTOE, **selfplay):
    """Return a player whose search is a class of OWN_METHODS."""
    (folder / "own.py").write_text(OWN_METHODS)
    search = {"algorithm": f"{folder}/own.py:{name}", "simulations": 10}
    config = make_config(search=search, selfplay={"parallel_games": 2} | selfplay)
    return Player(config, game, Hashed(game), 0)


def test_the_order_of_the_entries_of_a_policy_of_ones_own_changes_no_weight(tmp_path):
    """An action is looked up among the root's edges, wherever it is."""
    plain_one, other = (
        play_games(player_of(tmp_path, name, surprise_share=0.5), range(3)).positions
        for name in ("Plain", "LargestFirst")
    )
    assert (plain_one["action"] == other["action"]).all() and np.ptp(plain_one["weight"]) > 0.1
    assert other["weight"] == pytest.approx(plain_one["weight"], rel=1e-4)


@pytest.mark.parametrize("name", ["Begin", "Step", "Done", "Delegating"])
def test_the_methods_of_a_search_of_ones_own_are_called_where_rules_are_compiled(tmp_path, name):
    player = player_of(tmp_path, name)
    assert by_id(play_games(player, range(3))) == by_id(play_games(player_of(tmp_path, "Plain"), range(3)))
    assert player.game.has_entries and player.search.calls


def test_a_search_of_ones_own_that_lacks_what_self_play_needs_is_refused_by_name(tmp_path):
    with pytest.raises(OwnCodeError, match=r"own.py:Without\"\n  Without has no trees, streams, target, reset, begin,"):
        player_of(tmp_path, "Without")


@pytest.mark.parametrize("name", ["FarTarget", "NeverDone"])
@pytest.mark.parametrize("game", [TICTACTOE, plain(TICTACTOE)], ids=["compiled", "plain"])
def test_a_search_of_ones_own_cannot_run_more_simulations_than_its_trees_have_room_for(tmp_path, name, game):
    with pytest.raises(OwnCodeError, match=f"{name} runs more simulations in a tree than the 10 that it has room for"):
        play_games(player_of(tmp_path, name, game), range(2))
