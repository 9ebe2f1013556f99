"""Games of self-play that begin elsewhere than at the initial position."""

import numpy as np
import pytest
from helpers import CONNECT4, Corridor, Hashed, by_id, make_config, play_games, positions
from kinds import Digits, Trio, plain
from runners import Race

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.core.problems import OwnCodeError
from az_mpi.games.guard import guarded
from az_mpi.search import streams
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.starts import Archive, begin

TICTACTOE = games.make("tictactoe")


def stones(states):
    """Return the number of stones, which is the number of moves before a position."""
    return CONNECT4.planes(states).sum(axis=(1, 2, 3))


def archive(num=40):
    """Return positions of Connect Four, 1 to 6 moves into games, and their plies."""
    states = positions(num, seed=3)
    return Archive(states, stones(states).astype(np.int32))


def words(num):
    return streams.keyed(1, np.arange(num, dtype=np.uint64))


def test_by_default_games_begin_at_the_initial_position_and_nothing_is_drawn():
    drawn = words(9)
    states, plies = begin(CONNECT4, models.Selfplay(), archive(), 42, drawn)
    assert (states == CONNECT4.initial(9)).all() and not plies.any() and (drawn == words(9)).all()


def test_a_share_of_the_games_begins_at_positions_of_the_archive_all_equally_likely():
    """Of 4,000 games with a share of 0.75, 3,000 begin there, with a standard deviation of 27. Chi-square with up to 39
    degrees of freedom exceeds 80 once in 8,000 times."""
    settings, given = models.Selfplay(start_share=0.75), archive()
    states, plies = begin(CONNECT4, settings, given, 42, words(4000))
    assert (stones(states) == plies).all() and set(plies.tolist()) == {0, 1, 2, 3, 4, 5, 6}
    assert abs((plies > 0).sum() - 3000) < 5 * 27
    different, num = np.unique(given.states, axis=0, return_counts=True)
    drawn = np.array([(states == state).all(axis=1).sum() for state in different])
    expected = (plies > 0).sum() * num / num.sum()
    assert ((drawn - expected) ** 2 / expected).sum() < 80
    for none in (None, Archive(given.states[:0], given.plies[:0])):
        states, plies = begin(CONNECT4, settings, none, 42, words(50))
        assert (states == CONNECT4.initial(50)).all() and not plies.any()


def test_each_number_of_random_moves_up_to_the_setting_is_equally_likely():
    states, plies = begin(CONNECT4, models.Selfplay(random_plies=4), None, 42, words(2000))
    assert (stones(states) == plies).all()
    assert (np.abs(np.bincount(plies) - 400) < 6 * 18).all()
    firsts = CONNECT4.planes(states[plies == 1])[:, 1, 5]  # the stone of the one who moved lies in the lowest row
    assert (np.abs(firsts.sum(axis=0) - len(firsts) / 7) < 6 * 7).all()


@pytest.mark.parametrize("cap", [9, 4])
def test_no_game_begins_at_a_terminal_position_or_at_the_cap(cap):
    """Nine random moves end every game of tic-tac-toe, so fewer are made; and fewer than the cap."""
    states, plies = begin(TICTACTOE, models.Selfplay(random_plies=9), None, cap, words(500))
    assert not TICTACTOE.terminal(states)[0].any() and plies.max() == min(cap, 9) - 1
    given = archive()
    states, plies = begin(CONNECT4, models.Selfplay(start_share=1.0), given, 3, words(200))
    assert plies.max() == 2 and (stones(states) == plies).all()  # a run may be resumed with a lower cap


@pytest.mark.parametrize("game", [TICTACTOE, CONNECT4, Digits(), Trio()], ids=lambda game: game.name)
@pytest.mark.parametrize("cap", [4, 42])
def test_compiled_rules_make_the_random_moves_that_rules_as_python_make(game, cap):
    drawn = words(60), words(60)
    found = [
        begin(rules, models.Selfplay(random_plies=9), None, cap, to) for rules, to in zip((game, plain(game)), drawn)
    ]
    for one, other in zip(*found):
        assert one.tobytes() == other.tobytes()
    assert (drawn[0] == drawn[1]).all() and found[0][1].max() > 1


class Trap(Race):
    """A race whose rules fail where a runner is on one of two fields."""

    def apply(self, state, action):
        if state[state[2]] == 4 or state[state[2]] == 5:
            raise ValueError("a trap")
        state[state[2]] += action + 1
        state[2] = 1 - state[2]


def test_random_moves_that_compiled_rules_fail_at_end_as_with_rules_as_python():
    """Each seed makes the same moves either way, or the same failure: none continues from a game that had begun."""
    game = guarded(Trap(length=30))
    found = []
    for rules in (game, plain(game)):
        found.append([])
        for seed in range(30):
            try:
                starts = begin(rules, models.Selfplay(random_plies=8), None, 60, streams.keyed(seed, np.arange(2)))
                found[-1].append([part.tolist() for part in starts])
            except OwnCodeError:
                found[-1].append("a trap")
    assert found[0] == found[1] and 5 < found[0].count("a trap") < 30


class Keeping(Corridor):
    """Returns rows of an array that it keeps, or its one row as often as there are games."""

    def __init__(self, repeats):
        super().__init__(9)
        self.repeats, self.kept = repeats, Corridor(9).initial(50)

    def initial(self, n):
        return np.broadcast_to(self.kept[0], (n, 2)) if self.repeats else self.kept[:n]


@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("settings", [{"random_plies": 2}, {"start_share": 1.0}], ids=["random", "archive"])
def test_the_initial_position_of_a_game_that_keeps_it_stays_as_it_is(repeats, settings):
    game, first = Keeping(repeats), Corridor(9).initial(50)
    given = Archive(Corridor(9).play(first[:1], np.zeros(1, np.int64)), np.ones(1, np.int32))
    states, plies = begin(game, models.Selfplay(**settings), given, 6, words(50))
    assert plies.any() and (states != first).any() and (game.initial(50) == first).all()
    states[:] = 0  # the caller may write into what it got, too
    assert (game.initial(50) == first).all()


def player(parallel_games=8, given=True, **settings):
    settings = {"parallel_games": parallel_games, "start_share": 0.6, "random_plies": 3} | settings
    made = Player(make_config("connect4", search={"simulations": 6}, selfplay=settings), CONNECT4, Hashed(CONNECT4), 0)
    made.archive = archive() if given else None
    return made


@pytest.mark.parametrize("cap", [0, 12])
def test_records_of_games_show_where_they_began_and_follow_the_rules(cap):
    made = player(max_plies=cap)
    record, begins = play_games(made, range(30)), []
    assert by_id(record) and len(record.games) == 30 and not made.live.any()
    for game in record.games:
        rows = record.positions[record.positions["game"] == game["id"]]
        assert len(rows) == game["length"] and (stones(rows["state"]) == rows["ply"]).all()
        after = CONNECT4.play(rows["state"], rows["action"])
        assert (after[:-1] == rows["state"][1:]).all()
        assert (rows["to_play"] == rows["ply"] % 2).all()
        ended, value = CONNECT4.terminal(after[-1:])
        assert bool(ended[0]) != game["truncated"] and (ended[0] or rows["ply"][-1] == cap - 1)
        assert game["outcome"] == (value[0] if CONNECT4.to_play(after[-1:])[0] == 0 else -value[0])
        assert (rows["value"] == game["outcome"] * (1 - 2.0 * rows["to_play"])).all()
        begins.append(int(rows["ply"][0]))
    assert min(begins) <= 1 and max(begins) > 6


def test_openings_of_games_depend_neither_on_how_many_are_played_at_once_nor_on_their_order():
    ids = [7, 2**40 + 3, 0, 1, 2**63 + 5, 12, 99, 4, 50]
    expected = by_id(play_games(player(1), ids))
    assert by_id(play_games(player(4), ids[::-1])) == by_id(play_games(player(16), ids)) == expected
    assert by_id(play_games(player(4, given=False), ids)) != expected


def test_moves_of_games_under_way_are_counted_from_where_they_began():
    made = player(parallel_games=4, start_share=1.0)
    made.start(made.free(), range(4), 0)
    assert made.ply.any() and made.num_unfinished_moves == 0
