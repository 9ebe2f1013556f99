"""Stored games of one player, with chance, and of three players: as samples in the report, and on the page."""

import re

import numpy as np
import pytest
from helpers import loaded_player, play_games
from kinds import Digits, Pig, Rain, Sums, Trio

from az_mpi.config import schema
from az_mpi.games.base import CHANCE, after, results
from az_mpi.games.board_data import NO_CELL, Board
from az_mpi.play.run_views import RunViews
from az_mpi.play.web_game import WebGame
from az_mpi.player.limits import Limit
from az_mpi.player.session import Session
from az_mpi.report import board, html_report, samples
from az_mpi.selfplay.player import Player
from az_mpi.storage import segment

ALL = pytest.mark.parametrize("game", [Digits(), Pig(), Rain(), Trio()], ids=lambda game: game.name)


def stored(game, folder, num_games=12, **selfplay):
    """Store games of self-play as those of a run in `folder`; return their Record."""
    selfplay = schema.Selfplay(parallel_games=8, **selfplay)
    search = schema.Search(simulations=16)
    settings = schema.Config(game="connect4", seed=3, search=search, selfplay=selfplay)
    record = play_games(Player(settings, game, Sums(game), 0), np.arange(num_games))
    (folder / "games").mkdir()
    segment.write(folder / "games", 0, game, record, {})
    return record


@ALL
def test_the_moves_of_a_stored_game_lead_from_its_beginning_to_its_end(game, tmp_path):
    record = stored(game, tmp_path)
    for row in record.games:
        moves = record.moves(row["id"])
        assert [ply for ply, _, _ in moves] == list(range(len(moves)))
        state = after(game, [action for _, _, action in moves])[None]
        assert results(game, state)[0][0] and results(game, state)[1][0, 0] == row["outcome"]
        assert sum(mover != CHANCE for _, mover, _ in moves) == row["length"]


@ALL
@pytest.mark.parametrize("random_plies", [0, 3])
def test_a_sample_has_what_was_drawn_before_each_position_and_the_last_board(game, tmp_path, random_plies):
    record = stored(game, tmp_path, random_plies=random_plies)
    for sample in samples.choose(tmp_path, f"kinds:{type(game).__name__}"):
        assert sample.num_players == game.num_players and len(sample.positions) == len(sample.moves) + 1
        texts = {game.show(state) for state in record.positions["state"]}
        assert all(position.text in texts for position in sample.positions[:-1])
        assert all(len(position.drawn) <= 2 for position in sample.positions)
        if random_plies == 0:
            assert sample.positions[0].ply == 0 and "begun after" not in sample.title
            assert len(sample.positions[0].drawn) == {"rain": 2}.get(game.name, 0)
        if game.name == "rain":
            state = np.fromstring(sample.positions[-1].text.strip("[]"), np.int8, sep=" ")
            assert game.terminal(state[None])[0][0]
            assert all(len(position.drawn) == 1 for position in sample.positions[1:-1])


def test_samples_say_the_score_of_one_player_and_each_result_of_several(tmp_path):
    for game in (Rain(), Trio()):
        folder = tmp_path / game.name
        folder.mkdir()
        record = stored(game, folder)
        titles = [sample.title for sample in samples.choose(folder, f"kinds:{type(game).__name__}")]
        if game.num_players == 1:
            scores = {f", drops {score:g};" for score in record.games["score"]}
            assert all(any(score in title for score in scores) for title in titles)
        else:
            ends = [re.findall(r"(\w+) player ([-+][\d.]+)", title) for title in titles]
            assert all([name for name, _ in end] == ["first", "second", "third"] for end in ends)
            assert all(
                sorted(value for _, value in end) in (["+1.00", "-0.50", "-0.50"], ["+0.00"] * 3) for end in ends
            )


def test_values_of_three_players_are_those_of_the_player_to_move(tmp_path):
    record = stored(Trio(), tmp_path)
    lengths = record.games["length"]
    shortest = record.games["id"][np.argsort(lengths, kind="stable")[0]]
    rows = record.positions[record.positions["game"] == shortest]
    sample = samples.choose(tmp_path, "kinds:Trio")[0]
    assert [position.value for position in sample.positions] == [*rows["root_value"].tolist(), None]
    page = board.game(sample)
    assert page.count('aria-label="third player"') >= len(rows) // 3


def test_the_report_names_every_player_and_none_of_one_player(tmp_path):
    for game, num in ((Digits(), 0), (Pig(), 2), (Trio(), 3)):
        folder = tmp_path / game.name
        folder.mkdir()
        stored(game, folder)
        about = html_report._about_games(samples.choose(folder, f"kinds:{type(game).__name__}"))
        assert re.findall(r"</svg> (\w+) player", about) == ["first", "second", "third"][:num]
        assert ("drawn" in about) == (game.name == "pig")


def test_a_board_with_a_gap_between_its_halves_is_drawn_with_the_names_of_its_columns():
    """As in backgammon."""
    players = np.array([[0, -1, NO_CELL, 1], [-1, -1, NO_CELL, -1]], np.int8)
    picture = board.draw(Board(players, columns=("4/5", "3/6", "", "2/7")), "a board", 20)
    assert re.findall(r">([^<>]+)</text>", picture) == ["4/5", "3/6", "2/7"] and picture.count('class="cell"') == 6


@ALL
def test_a_stored_game_is_stepped_through_on_the_page_with_what_was_drawn(game, tmp_path):
    name = f"kinds:{type(game).__name__}"
    record = stored(game, tmp_path)
    views = RunViews(tmp_path)
    page = WebGame(lambda _: Session(loaded_player(name)), "newest", Limit(1), {}, views.requests)
    rows = views.games(page, None)
    assert [row["score"] for row in rows] == [
        float(row["score"]) if game.score_name else None for row in record.games[::-1]
    ]
    for row in record.games:
        views.open(page, str(row["id"]))
        moves = record.moves(row["id"])
        positions = record.positions[record.positions["game"] == row["id"]]
        assert (page.session.state == positions["state"][0]).all() and page.stored["num_before"] == 0
        begun = int(positions["ply"][0])
        for position in positions:
            page._do_goto(int(position["ply"]) - begun)
            assert (page.session.state == position["state"]).all()
        page._do_goto(len(page.line))
        assert page.session.over and page.line == [action for ply, _, action in moves if ply >= begun]
        assert page.stored["score"] == page.session.score
        assert all(0 <= at < len(page.line) for at, _ in page.stored["values"])
