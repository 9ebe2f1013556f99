"""The rules of games of one player, with chance, and of three players: what is checked, and random games of them."""

import numpy as np
import pytest
from helpers import Ways
from kinds import Digits, Pig, Rain, Trio

from az_mpi import games
from az_mpi.core.problems import OwnCodeError
from az_mpi.games import chance
from az_mpi.games.base import CHANCE, Game
from az_mpi.games.chance_check import leaves
from az_mpi.games.guard import guarded
from az_mpi.games.random_games import play_out, random_games

KINDS = pytest.mark.parametrize("kind", [Digits, Pig, Trio, Rain])


def plain(kind):
    game = kind()
    game.compiled = False
    return game


def broken(base, **members):
    """Return a game of a class derived from `base`, not compiled, with other members."""
    return type("Broken", (base,), {"compiled": False, **members})()


def message(game):
    with pytest.raises(AssertionError) as caught:
        games.check(game, 16)
    return str(caught.value)


@KINDS
def test_the_check_accepts_a_game_of_each_kind_compiled_and_not(kind):
    assert games.check(kind(), 32) == [] and games.check(plain(kind), 16) == []


@KINDS
def test_compiled_and_plain_rules_of_each_kind_are_the_same(kind):
    game, other, rng = kind(), plain(kind), np.random.default_rng(3)
    states = game.initial(24)
    assert (states == other.initial(24)).all()
    while len(states):
        mover = game.to_play(states)
        assert (other.to_play(states) == mover).all()
        ended, value = game.terminal(states)
        assert all((one == two).all() for one, two in zip((ended, value), other.terminal(states), strict=True))
        states, mover = states[~ended], mover[~ended]
        due = mover == CHANCE
        if due.any():
            assert (game.chances(states[due]) == other.chances(states[due])).all()
        for name in ("legal", "planes", "canonical_key"):
            one, two = (getattr(each, name)(states[~due]) for each in (game, other))
            assert np.array_equal(one, two)
        moves = rng.random((len(states), max(game.num_actions, game.num_outcomes)))
        actions = np.zeros(len(states), np.int64)
        actions[~due] = np.argmax(moves[~due, : game.num_actions] * game.legal(states[~due]), axis=1)
        if due.any():
            actions[due] = chance.draw(game, states[due], moves[due, 0])
        after = game.play(states, actions)
        assert (after == other.play(states, actions)).all()
        states = after


@KINDS
def test_random_games_yield_states_where_a_player_is_to_move_and_end(kind):
    game = kind()
    seen = list(random_games(game, 20, np.random.default_rng(0)))
    for states, legal in seen:
        assert (game.to_play(states) >= 0).all() and not game.terminal(states)[0].any()
        assert (legal == game.legal(states)).all()
    assert len(seen[0][0]) == 20


def test_the_limit_of_plies_counts_chance_moves():
    class Short(Pig):
        max_plies = 6

    assert len(list(random_games(Short(), 50, np.random.default_rng(0)))) <= 6
    states, plies = Short().initial(200), []
    for _ in range(3):
        plies.append(play_out(Short(), states, np.random.default_rng(1))[1])
    assert plies[0] == plies[1] and plies[0] <= 6 * 200


@KINDS
def test_compiled_play_outs_have_the_results_of_those_in_batches(kind):
    game, other = kind(), plain(kind)
    first = next(random_games(game, 1, np.random.default_rng(5)))[0]
    found = [
        play_out(one, np.repeat(first, num, 0), np.random.default_rng(1)) for one, num in ((game, 4000), (other, 600))
    ]
    assert found[0][0].shape == ((4000, 3) if kind is Trio else (4000,))
    means = [value.mean(axis=0) for value, _ in found]
    spread = found[0][0].std(axis=0) / np.sqrt(600)
    assert (np.abs(means[0] - means[1]) <= 4.5 * spread + 1e-6).all(), means
    assert abs(found[0][1] / 4000 - found[1][1] / 600) < 0.15 * found[0][1] / 4000


def test_values_of_play_outs_of_three_players_are_those_of_the_players_from_the_mover_on():
    """Player 0 wins in both games: it is to move in the first one, and next in the second one."""
    for cells, moves, wanted in (
        ([1, 0, 1, 2, 3, 2, 3], 6, [1, -0.5, -0.5]),
        ([1, 0, 1, 0, 2, 3, 2], 5, [-0.5, 1, -0.5]),
    ):
        for game in (Trio(), plain(Trio)):
            states = np.repeat(np.array([[*cells, moves]], np.int8), 20, 0)
            assert play_out(game, states, np.random.default_rng(0))[0].tolist() == [wanted] * 20


def test_one_player_gets_at_the_limit_what_the_game_counts_there():
    class Cut(Digits):
        max_plies = 3

        def result(self, state):
            return False, state[1] / 16.0 - 1

    for game in (Cut(), plain(Cut)):
        value, plies = play_out(game, game.initial(50), np.random.default_rng(0))
        assert plies == 150 and set(value.tolist()) <= {k / 16 - 1 for k in range(8)} and len(set(value.tolist())) > 4


def test_outcomes_of_probability_0_are_never_drawn():
    class Loaded(Pig):
        def outcome_chances(self, state, chances):
            chances[1], chances[4] = 0.5, 0.5

    for game in (Loaded(), plain(Loaded)):
        rolling = np.repeat(np.array([[0, 0, 0, 1]], np.int16), 500, 0)
        for uniform in (np.zeros(500), np.full(500, np.nextafter(1, 0)), np.random.default_rng(0).random(500)):
            assert set(chance.draw(game, rolling, uniform).tolist()) <= {1, 4}
        value, plies = play_out(game, game.initial(200), np.random.default_rng(0))
        assert plies < 400 * 200 and set(value.tolist()) == {-1.0, 1.0}  # no 1 is thrown: each turn adds 2 or 5


def test_the_play_outs_throw_each_side_of_a_die_as_often_as_its_probability():
    """One throw decides the game: a 1 loses it."""

    class Once(Pig):
        goal, most = 2, 0.25

        def legal_actions(self, state, legal):
            legal[0] = True

    value, plies = play_out(Once(), Once().initial(8000), np.random.default_rng(0))
    # The mover wins with the first throw that is no 1 at an even place: 0.75 / (1 - 0.25 ** 2) = 0.8.
    assert abs((value == 1).mean() - 0.8) < 0.02 and abs(plies / 8000 - 2 / 0.75) < 0.06


# What is broken, and what is said of it.

BROKEN = {
    "probabilities that miss 1": (
        Pig,
        {"outcome_chances": lambda self, state, chances: chances.fill(0.166)},
        "chances returned probabilities from 0.166 to 0.166, whose sum is 0.996",
    ),
    "a negative probability": (
        Pig,
        {"outcome_chances": lambda self, state, chances: chances.__setitem__(slice(2), (1.5, -0.5))},
        "chances returned probabilities from -0.5 to 1.5",
    ),
    "chance in a game without outcomes": (Pig, {"num_outcomes": 0}, "to_play returned -1"),
    "a third player of two": (Pig, {"current_player": lambda self, state: 2}, "to_play returned 2"),
    "one player who becomes another": (
        Digits,
        {"current_player": lambda self, state: state[0] % 2},
        "a game of one player never changes the player",
    ),
    "a fourth player of three": (Trio, {"current_player": lambda self, state: state[7] % 4}, "to_play returned 3"),
    "chance where the game is over": (
        Pig,
        {"result": lambda self, state: (state[3] & 1 == 1, 0.0)},
        "it is chance's move in a state where the game is over",
    ),
    "a value above 1 of one of three": (
        Trio,
        {"results": lambda self, state, values: values.fill(1.5) or state[7] == 7},
        r"terminal \(value\) returned \[1.5 1.5 1.5\]",
    ),
    "a value of three before the end": (
        Trio,
        {"results": lambda self, state, values: values.fill(0.5) or state[7] == 7},
        "expected: 0 where the game is not over",
    ),
    "a value above 1 before the end": (
        Digits,
        {"result": lambda self, state: (state[0] == 5, 1.5 if state[0] < 5 else 0.0)},
        r"terminal \(value\) returned 1.5",
    ),
    "a score in another order": (
        Digits,
        {"score": lambda self, states: -states[:, 1].astype(np.float32)},
        "score and terminal have different orders",
    ),
    "a floor above the result": (Digits, {"floor_plane": 0}, "floor_plane is 0, and that plane shows more than the"),
    "a floor that falls": (
        Digits,
        {"floor_plane": 1, "observe": lambda self, state, planes: planes.fill(-state[0] / 5)},
        "floor_plane is 1, and that plane shows less than earlier",
    ),
    "a floor of two players": (Pig, {"floor_plane": 0}, "floor_plane is 0\n  allowed: the number of a plane, in games"),
    "a score without a name": (Digits, {"score_name": ""}, "score_name is empty"),
    "a score that is not finite": (
        Digits,
        {"score": lambda self, states: np.full(len(states), np.inf, np.float32)},
        "score returned",
    ),
    "a score of two players": (
        Pig,
        {"score": lambda self, states: states[:, 0].astype(np.float32)},
        "score returned numbers\n  expected: None, as num_players is 2",
    ),
    "points of three players": (
        Trio,
        {"lead": lambda self, states: states[:, 0].astype(np.float32)},
        "lead returned numbers\n  expected: None, as num_players is 3",
    ),
    "two outcomes of one name": (
        Pig,
        {"outcome_to_text": lambda self, state, outcome: "die"},
        "outcomes 0 and 1 are both",
    ),
    "an outcome of two words": (
        Pig,
        {"outcome_to_text": lambda self, state, outcome: f"a {outcome}"},
        "'a 0', not one word",
    ),
    "more plies than it says": (Pig, {"max_plies": 9}, "longer than max_plies"),
    "chance that never stops": (
        Pig,
        {"current_player": lambda self, state: CHANCE, "result": lambda self, state: (False, 0.0)},
        "longer than max_plies: chance moves on",
    ),
    "chance that does not turn with the board": (
        Rain,
        {"outcome_chances": lambda self, state, chances: chances.__setitem__(int(np.argmin(state[:5])), 1)},
        "a symmetry does not map what chance does",
    ),
}


@pytest.mark.parametrize("base, members, said", BROKEN.values(), ids=BROKEN)
def test_each_broken_rule_is_named(base, members, said):
    with pytest.raises(AssertionError, match=said):
        games.check(broken(base, **members), 32)


def test_probabilities_that_change_between_two_calls_are_found():
    class Fickle(Pig):
        compiled, calls = False, 0

        def chances(self, states):
            type(self).calls += 1
            made = super().chances(states)
            return (
                made if self.calls % 2 else made[:, ::-1] * np.float32(0.5) + np.float32(0.5) * np.eye(6)[0].astype("f")
            )

    assert "chances gives two answers for the same state" in message(Fickle())


@pytest.mark.parametrize(
    "members, said",
    [
        ({"num_players": 0}, "num_players is 0; allowed: a whole number from 1 to 16"),
        ({"num_players": 17}, "num_players is 17"),
        ({"num_players": 2.0}, "num_players is 2.0"),
        ({"num_outcomes": -1}, "num_outcomes is -1; allowed: a whole number from 0 to 32,767"),
        (
            {"num_players": 3},
            "results is not written: result is\n  allowed: result for one or two players, results for",
        ),
    ],
)
def test_a_kind_that_does_not_fit_the_methods_is_refused_in_one_block(members, said):
    with pytest.raises(OwnCodeError, match=said):
        guarded(broken(Pig, **members))


def test_methods_that_a_kind_needs_must_be_written():
    with pytest.raises(OwnCodeError, match="and result is not written: results is"):
        guarded(broken(Trio, num_players=2))
    with pytest.raises(OwnCodeError, match="num_outcomes is 3, and outcome_chances is not written"):
        guarded(broken(Digits, num_outcomes=3))

    class Batches(Ways):
        num_outcomes = 3

    with pytest.raises(OwnCodeError, match="num_outcomes is 3, and chances is not written"):
        guarded(Batches(3))
    with pytest.raises(OwnCodeError, match="other_view in games of two players"):
        guarded(broken(Trio, other_view=np.arange(7)))


def test_results_of_a_guarded_game_have_the_shapes_of_its_kind():
    game = guarded(Trio())
    assert game.terminal(game.initial(0))[1].shape == (0, 3) and game.terminal(game.initial(2))[1].shape == (2, 3)
    dice = guarded(Pig())
    assert dice.chances(dice.initial(0)).shape == (0, 6) and dice.chances(dice.initial(0)).dtype == np.float32
    assert guarded(Digits()).score(Digits().initial(0)).shape == (0,)


def test_the_value_of_one_player_before_the_end_stays():
    game = guarded(Digits())
    assert game.terminal(np.array([[1, 1], [5, 31]], np.int32))[1].tolist() == [1 / 16 - 1, 31 / 16 - 1]


def test_three_players_of_whom_one_never_moves_have_a_warning():
    [warning] = games.check(broken(Trio, current_player=lambda self, state: state[7] % 2, observe=_all_of), 16)
    assert warning.startswith("player 2 never moves\n  expected: moves of all players, 0 to 2, as num_players says")


def _all_of(self, state, planes):
    for cell in range(7):
        if state[cell]:
            planes[state[cell] - 1, 0, cell] = 1


def test_planes_of_three_players_that_hide_the_mover_have_a_warning():
    """The planes show nothing."""
    [warning] = games.check(broken(Trio, observe=lambda self, state, planes: planes.fill(1)), 64)
    assert warning.startswith("planes do not show who is to move") and warning.count("values") >= 2


def test_leaves_of_chance_have_the_product_of_the_probabilities():
    game = Rain()
    states, weights = leaves(game, game.initial(1)[0])
    assert len(states) == 20 and weights.sum() == pytest.approx(1)
    ends = states[:, 2] & states[:, 0]  # the outer cell, then the middle one, or the other way round
    assert weights[ends > 0].sum() == pytest.approx(1 / 6 * 2 / 5 + 2 / 6 * 1 / 4)


def test_a_game_in_batches_with_chance_is_checked_and_played():
    class Coin(Game):
        """Each of two players throws two coins and keeps one or both for a point each; more points win."""

        name, num_actions, num_outcomes, max_plies = "coin", 2, 3, 4
        planes_shape, state_size, state_dtype = (1, 1, 4), 4, np.dtype(np.int8)
        symmetry_cells, symmetry_actions = np.arange(4, dtype=np.int32)[None], np.arange(2, dtype=np.int32)[None]

        def initial(self, n):
            return np.zeros((n, 4), np.int8)  # the points, the throw of this turn, the plies

        def play(self, states, actions):
            after = states.copy()
            thrown = states[:, 3] % 2 == 0
            after[thrown, 2] = actions[thrown]
            rows = np.flatnonzero(~thrown)
            after[rows, states[rows, 3] // 2] += np.where(actions[rows] == 1, states[rows, 2], 1).astype(np.int8)
            after[rows, 2] = 0
            after[:, 3] += 1
            return after

        def to_play(self, states):
            chances = (states[:, 3] % 2 == 0) & (states[:, 3] < 4)
            return np.where(chances, CHANCE, np.where(states[:, 3] == 4, 0, states[:, 3] // 2)).astype(np.int8)

        def chances(self, states):
            return np.tile(np.array([0.25, 0.5, 0.25], np.float32), (len(states), 1))

        def legal(self, states):
            return np.ones((len(states), 2), bool)

        def terminal(self, states):
            value = np.sign(states[:, 0].astype(np.float32) - states[:, 1])
            return states[:, 3] == 4, np.where(states[:, 3] == 4, value, 0).astype(np.float32)

        def planes(self, states):
            planes = np.zeros((len(states), 1, 1, 4), np.uint8)
            planes[:, 0, 0, :4] = states
            return planes

    game = Coin()
    assert games.check(game, 32) == []
    first = next(random_games(game, 3000, np.random.default_rng(0)))[0]
    assert abs((first[:, 2] == 1).mean() - 0.5) < 0.05
    value, plies = play_out(game, first, np.random.default_rng(1))
    assert plies == 3 * 3000 and abs(value.mean()) < 0.06
