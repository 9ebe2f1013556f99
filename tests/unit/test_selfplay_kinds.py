"""Self-play and records of games of one player, with chance, and of three players."""

import numpy as np
import pytest
from helpers import play_games
from kinds import Digits, Pig, Rain, Trio
from test_search_kinds import Sums, plain

from az_mpi.config import schema
from az_mpi.games.base import results
from az_mpi.network.heads.value import Value
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import CHANCE_MOVE, Record
from az_mpi.storage import segment

ALL = pytest.mark.parametrize("game", [Digits(), Pig(), Rain(), Trio()], ids=lambda game: game.name)


def played(game, num_games=10, at_once=8, threads=1, num_groups=1, **selfplay):
    settings = schema.Config(
        game="connect4",
        seed=3,
        search=schema.Search(simulations=16),
        selfplay=schema.Selfplay(parallel_games=at_once, **selfplay),
    )
    player = Player(settings, game, Sums(game), 0, threads=threads, num_groups=num_groups)
    return play_games(player, np.arange(num_games))


def same(one, other):
    return all(part.tobytes() == part_too.tobytes() for part, part_too in zip(one.parts, other.parts))


@ALL
def test_the_same_games_come_of_any_number_at_once_threads_groups_and_of_rules_as_python(game):
    first = played(game)
    assert len(first.games) == 10 and same(first, played(game, at_once=3, threads=2, num_groups=2))
    assert same(first, played(plain(game), at_once=4))


@ALL
def test_a_stored_game_can_be_replayed_from_its_moves_and_chance_moves(game, tmp_path):
    record = played(game)
    read = segment.read(segment.write(tmp_path, 0, game, record, {}).path, game)
    assert same(record, read)
    for row in read.games:
        rows, drawn = (part[part["game"] == row["id"]] for part in (read.positions, read.chance))
        moves = dict(zip(rows["ply"].tolist(), rows["action"].tolist()))
        moves |= dict(zip(drawn["ply"].tolist(), drawn["outcome"].tolist()))
        assert sorted(moves) == list(range(len(rows) + len(drawn)))
        state = game.initial(1)
        for ply in sorted(moves):
            if ply in rows["ply"]:
                assert (state == rows["state"][rows["ply"] == ply]).all()
            state = game.play(state, np.array([moves[ply]]))
        ended, result = results(game, state)
        assert ended[0] and row["outcome"] == result[0, 0] and not row["truncated"]
        if game.score_name:
            assert row["score"] == game.score(state)[0]
        for position in rows:
            seen = np.roll(result[0], -int(position["to_play"]))  # of the player to move first
            assert (np.atleast_1d(position["value"]) == seen[: np.size(position["value"])]).all()


def test_chance_moves_are_no_positions_and_go_with_their_games():
    record = played(Pig())
    assert (record.positions["to_play"] >= 0).all() and len(record.chance)
    chosen = np.arange(10) % 2 == 0
    some = record.select(chosen)
    assert set(some.chance["game"]) == set(some.games["id"]) == {0, 2, 4, 6, 8}
    joined = Record.join(Pig(), [some, record.select(~chosen)])
    assert len(joined.chance) == len(record.chance) and joined.chance.dtype == CHANCE_MOVE


def test_a_segment_of_a_game_of_two_without_chance_has_what_earlier_versions_read(tmp_path):
    """No new group or column: segments of such games are as they were."""
    import h5py

    from az_mpi import games

    game = games.make("tictactoe")
    path = segment.write(tmp_path, 0, game, played(game), {}).path
    with h5py.File(path, "r") as file:
        assert set(file) == {"games", "positions", "policy"} and "score" not in file["games"]


def test_a_segment_whose_chance_moves_are_of_no_game_or_no_outcome_is_refused(tmp_path):
    record = played(Pig())
    for name, value in (("game", 99), ("outcome", 6)):
        wrong = Record(*record.parts[:3], record.chance.copy())
        wrong.chance[name][0] = value
        with pytest.raises(segment.SegmentError, match="chance move"):
            segment.read(segment.write(tmp_path, 0, Pig(), wrong, {}).path, Pig())


def test_random_first_moves_of_a_game_with_chance_lead_to_positions_with_a_choice():
    record = played(Pig(), num_games=20, random_plies=4)
    first = record.positions[np.unique(record.positions["game"], return_index=True)[1]]
    assert (first["ply"] > 0).any() and (Pig().to_play(first["state"]) >= 0).all()


def test_a_game_of_one_player_that_a_limit_cuts_counts_what_it_has_then():
    record = played(Digits(), max_plies=2)
    assert record.games["truncated"].all()
    number = record.positions["state"][1::2, 1] * 2 + record.positions["action"][1::2]
    assert record.games["outcome"].tolist() == (number / 16 - 1).tolist()


def test_the_value_head_of_three_players_has_a_target_of_each():
    game = Trio()
    head = Value(game, channels=4)
    record = played(game)
    target = head.target(record, game, schema.Train())
    assert target.shape == (len(record.positions), 3) and head.target_dtype.shape == (3,)
    assert (target == record.positions["value"]).all()
