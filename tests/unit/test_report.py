"""The report of a run: well-formed, self-contained, safe against hostile text, and true to the run's files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers import make_config, play_games
from pages import HOSTILE, Page, numbers

from az_mpi import __main__ as commands
from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config.load import Config
from az_mpi.games.base import board_after
from az_mpi.games.board_data import NO_CELL, NOBODY, Board
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.report import board, curve, html_report, run_data, samples
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import game_ids
from az_mpi.storage import segment

SVG = "{http://www.w3.org/2000/svg}"


def match(score):
    numbers = {name: score for name in ("win_rate", "score")}
    ends = {f"{name}_{end}": value for name in numbers for end, value in (("low", score - 0.1), ("high", score + 0.1))}
    return numbers | ends | {"wins": 3, "draws": 1, "losses": 0, "elo": 100.0, "elo_low": 50.0, "elo_high": None}


@pytest.fixture(scope="module")
def played():
    """Sixteen games of tic-tac-toe as a Record."""
    game = games.make("tictactoe")
    config = Config(game="tictactoe", search={"simulations": 4}, selfplay={"parallel_games": 16})
    player = Player(config, game, UniformEvaluator(game), 0)
    player.start(player.free(), game_ids(0, 1, np.arange(16)), 0)
    while player.live.any():
        player.step()
    return player.take()


@pytest.fixture
def run(tmp_path, played):
    """A run's folder: two starts, of which the second did iteration 2 again, on a host with a hostile name."""
    folder = tmp_path / "a run"
    for name in ("starts", "games"):
        (folder / name).mkdir(parents=True)
    config = Config(game="tictactoe", iterations=4, train={"batch_size": 64, "ranks": 1})
    about = {
        "config": json.loads(configuration.to_json(config)),
        "az_mpi": "0.1",
        "python": "3.11",
        "git_commit": None,
        "packages": {"torch": "2"},
    }
    for number, hosts in ((1, ["n1"]), (2, ["n1", HOSTILE])):
        start = {"started": f"2026-01-01T00:{10 * number}:00+0000", "hosts": hosts}
        (folder / "starts" / f"{number:03d}.json").write_text(json.dumps(about | start))
    base = 1767225600  # the beginning of that year
    records = []
    for minute, iteration, by_rank in ((11, 1, [10]), (12, 2, [20]), (21, 2, [8, 4]), (22, 3, [16, 1234])):
        seconds = {f"{name}_s": value * iteration for name, value in (("play", 3.5), ("train", 2.0))}
        idle = {f"{name}_{kind}_s": 0.1 for name in ("play", "train") for kind in ("idle", "idle_max")}
        records.append(
            {
                "kind": "iteration",
                "time": base + 60 * minute,
                "step": 10 * iteration,
                "iteration": iteration,
                "num_games": sum(by_rank),
                "num_positions": 8 * sum(by_rank),
                "mean_length": 7.25 + iteration,
                "games_per_s": 4.5 * iteration,
                "simulations_per_s": 1234.5,
                "num_steps": 10,
                "first_player_score": 0.6,
                "games_by_rank": by_rank,
                "positions_by_rank": [8 * n for n in by_rank],
                **seconds,
                **idle,
            }
        )
        if minute > 20:  # the first start was made by an older version
            records[-1]["playing_s_by_rank"] = [2.0 * iteration, 100.0 * iteration][: len(by_rank)]
        records.append(
            {
                "kind": "train",
                "time": base + 60 * minute,
                "step": 10 * iteration,
                "value_loss": 0.5,
                "policy_loss": 2.0 / minute,
            }
        )
    records.append(
        {
            "kind": "evaluation",
            "time": base + 60 * 23,
            "step": 30,
            "iteration": 3,
            "simulations": 7,
            "matches": {"random": match(0.75)},
            "evaluate_s": 1.5,
            "evaluate_idle_s": 0.0,
            "evaluate_idle_max_s": 0.0,
        }
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    rank = {"device": HOSTILE, "roles": "play"}
    (folder / "status.json").write_text(json.dumps({"start": 2, "ranks": [rank, rank]}))
    segment.write(folder / "games", 0, games.make("tictactoe"), played, {})
    return folder


def test_the_tables_hold_the_numbers_of_the_runs_files(run, capsys):
    assert commands.main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    found = Page((run / "report.html").read_text())
    assert found.table("iteration", "games") == [
        ["1", "10", "80", "8.2", "0.600", "4.5", "1,234", "10", "3.50", "2.00"],
        ["2", "12", "96", "9.2", "0.600", "9.0", "1,234", "10", "7.00", "4.00"],  # as the second start did it
        ["3", "1,250", "10,000", "10.2", "0.600", "13.5", "1,234", "10", "10.50", "6.00"],
    ]
    assert found.table("rank", "host") == [  # 24 games in 10 s, 1,238 in 500 s
        ["0", "n1", HOSTILE, "play", "24", "192", "1.9 %", "2.4", ""],
        ["1", HOSTILE, HOSTILE, "play", "1,238", "9,904", "98.1 %", "2.48", ""],
    ]
    differs, every = [t for t in found.tables if t[0] == ["key", "value", "default"]]
    assert differs[1:] == [
        ["game", '"tictactoe"', "(required)"],
        ["iterations", "4", "40"],
        ["train.ranks", "1", '"auto"'],
        ["train.batch_size", "64", "1024"],
    ]
    assert len(every) == 1 + len(configuration.KEYS)
    text = "".join(found.texts)
    assert "3 of 4" in text and "1,272" in text and "10,176" in text and "not complete" in text
    assert "against random: 3 won, 1 drawn, 0 lost; score 0.750 [0.650, 0.850], Elo +100 [+50, -]" in text


def test_the_totals_are_those_that_the_newest_iteration_has_stored(run):
    """The records of an iteration that was resumed lack the games that an earlier start played."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    newest = max((record for record in records if record["kind"] == "iteration"), key=lambda each: each["iteration"])
    newest |= {"num_games_stored": 7001, "num_positions_stored": 65432}
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    text = "".join(Page(html_report.write(run).read_text()).texts)
    assert "7,001" in text and "65,432" in text and "1,272" not in text


def test_a_run_that_ended_before_its_last_iteration_is_complete(run):
    """By train.hours, for example: its last job wrote that it had finished."""
    assert "not complete" in html_report.write(run).read_text()
    assert "not complete" not in html_report.write(run, complete=True).read_text()
    (run / "status.json").write_text(json.dumps({"job": "finished"}))
    assert "not complete" not in html_report.write(run).read_text()
    (run / "status.json").write_text(json.dumps({"job": "finished", "phase": "fit"}))
    assert "not complete" in html_report.write(run).read_text()


def test_points_of_the_curves_are_those_of_the_metrics(run):
    text = html_report.render(run_data.load(run))
    for shown in (
        "policy loss, 10: 0.1818",
        "policy loss, 20: 0.09524",
        "policy loss, 30: 0.09091",
        "mean length, 2: 9.25",
        "all ranks, 3: 13.5",
        "play: 10.5",
        "train: 6",
        "evaluate: 1.5",
        "mean of ranks, 1: 3.636",
    ):  # 0.2 of 5.5 s
        assert f"<title>{shown}</title>" in text, shown
    data = run_data.load(run)
    assert data.marks(data.iterations, "iteration") == [(1.5, "start 2")]
    assert text.count("<title>start 2 begins</title>") == 6  # of the charts by iteration or step
    assert numbers(text, "Win rate") == [["against random", "0.75", "[0.65, 0.85]"]]  # judged once: no chart
    assert numbers(text, "Elo difference") == [["against random", "100", "[50, -]"]]


def test_a_run_of_two_players_without_matches_has_the_charts_of_two(run):
    """Only a solver judges it: `evaluate.opponents` is empty."""
    data = run_data.load(run)
    text = html_report.render(data._replace(evaluations=[record | {"matches": {}} for record in data.evaluations]))
    assert "Win rate" in text and "Elo difference" in text and "Share of the points" not in text


def test_a_fit_is_shown_with_what_the_network_knows_of_games_held_out(run):
    assert "Fit to stored games" not in html_report.render(run_data.load(run))
    held = {"num_positions": 1200, "policy_top1": 0.25, "policy_top5": 0.75, "value_error": 0.5}
    held |= {"value_squared_error": 0.4, "calibration_error": 0.1, "calibration": [[3, -0.9, -1.0], [0, 0.0, 0.0]]}
    fits = [
        {
            "kind": "fit",
            "time": 1.0,
            "step": 10 * k,
            "epoch": k,
            "policy_loss": 2.0 / k,
            "held_out": held | {"policy_top1": k / 8},
        }
        for k in (1, 2)
    ]
    with open(run / "metrics.jsonl", "a") as file:
        file.writelines(json.dumps(record) + "\n" for record in fits)
    text = html_report.render(run_data.load(run))
    for shown in ("policy loss, 10: 2", "first choice, 20: 0.25", "among five, 10: 0.75", "of the result, 20: 0.5"):
        assert f"<title>{shown}</title>" in text, shown
    assert "After epoch 2, step 20: in 25.0 % of 1,200 positions" in text
    assert "<title>games, -0.9: -1</title>" in text and "<title>games, 0: 0</title>" not in text
    fits[1]["held_out"] = {}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(fits[1]) + "\n")
    assert "No games were held out" in html_report.render(run_data.load(run))


def test_the_totals_after_an_import_and_a_fit_are_those_of_the_fit(run):
    newest = run_data.load(run).iterations[-1]["time"]
    fit = {"kind": "fit", "step": 40, "epoch": 1, "num_games_stored": 7001, "num_positions_stored": 65432}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(fit | {"time": newest + 60, "held_out": {}}) + "\n")
    text = "".join(Page(html_report.write(run).read_text()).texts)
    assert "7,001" in text and "65,432" in text and "1,272" not in text
    lines = (run / "metrics.jsonl").read_text().replace(f'"time": {newest + 60}', f'"time": {newest - 1}')
    (run / "metrics.jsonl").write_text(lines)
    assert "1,272" in "".join(Page(html_report.write(run).read_text()).texts)


def test_games_a_second_by_host_are_sums_of_its_ranks(run):
    """Three ranks on two hosts: 10 + 20 games in 4 + 6 s, 5 + 15 in 2 + 2 s; 40 + 10 in 5 + 20 s."""
    about = json.loads((run / "starts" / "002.json").read_text()) | {"hosts": ["n1", "n2", "n1"]}
    (run / "starts" / "002.json").write_text(json.dumps(about))
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    late = [r for r in records if r["kind"] == "iteration" and "playing_s_by_rank" in r]
    late[0] |= {"games_by_rank": [10, 40, 5], "positions_by_rank": [0] * 3, "playing_s_by_rank": [4.0, 5.0, 2.0]}
    late[1] |= {"games_by_rank": [20, 10, 15], "positions_by_rank": [0] * 3, "playing_s_by_rank": [6.0, 20.0, 2.0]}
    lines = [json.dumps(record) + "\n" for record in records]
    (run / "metrics.jsonl").write_text("".join(lines))
    found = Page(html_report.render(run_data.load(run)))
    assert [row[-2] for row in found.table("rank", "host")] == ["3", "2", "5"]
    assert found.table("host", "games/s") == [
        ["n1", "8", "2", "3", "5", "50", ""],
        ["n2", "2", "1", "2", "2", "50", ""],
    ]


def test_a_run_of_an_older_version_shows_no_games_a_second_by_rank(run):
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text.replace("playing_s_by_rank", "something_else"))
    found = Page(html_report.render(run_data.load(run)))
    assert found.table("rank", "host")[0] == ["0", "n1", HOSTILE, "play", "24", "192", "1.9 %"]
    assert not [table for table in found.tables if table[0][:2] == ["host", "games/s"]]


def test_the_page_fetches_nothing_and_runs_no_script(run):
    text = (html_report.write(run)).read_text()
    found = Page(text)
    names = {name for tag, attributes in found.tags for name in attributes}
    assert not names & {"src", "href", "xlink:href", "srcset", "data", "action"}
    assert not any(name.startswith("on") for name in names)
    assert not {tag for tag, _ in found.tags} & {"script", "link", "iframe", "object", "embed", "img"}
    assert "url(" not in text and "@import" not in text and "http" not in text
    assert "<script" not in text and text.count("&lt;script&gt;") >= 4


def test_sample_games_are_games_of_the_run(run, played):
    game = games.make("tictactoe")
    chosen = samples.choose(run, "tictactoe")
    lengths = sorted(played.games["length"].tolist())
    assert [len(sample.moves) for sample in chosen] == [lengths[0], lengths[8], lengths[-1]]
    for sample in chosen:
        states, actions = game.initial(1), []
        for position, move in zip(sample.positions, [*sample.moves, None]):
            assert position.text == game.show(states[0])
            assert (position.board.players == game.board(states[0]).players).all()
            if move is not None:
                actions.append(game.text_to_action(states[0], move))
                states = game.play(states, np.array(actions[-1:]))
        ended, value = game.terminal(states)
        assert ended[0] and len(sample.positions) == len(sample.moves) + 1
        assert sample.shown[-1] == len(sample.moves) and len(sample.shown) <= 6
        loser_moves = "first" if game.to_play(states)[0] else "second"
        assert ("drawn" if value[0] == 0 else f"the {loser_moves} player won") in sample.title
        # An action of tic-tac-toe is its cell, so the numbers must follow from the actions.
        assert sample.numbers() == {divmod(action, 3): k for k, action in enumerate(actions, 1)}


def test_the_newest_segment_is_the_one_with_the_highest_number(tmp_path, played):
    game, folder = games.make("tictactoe"), tmp_path / "games"
    folder.mkdir()
    for index, number in ((1000, 1), (2, 2), (999, 3)):
        segment.write(
            folder,
            0,
            game,
            played.select(played.games["id"] == played.games["id"][number]),
            {},
            folder / f"000000-{index:03d}.h5",
        )
    newest = [sample for sample in samples.choose(tmp_path, "tictactoe") if "newest" in sample.title]
    actions = played.positions["action"][played.positions["game"] == played.games["id"][1]]
    assert newest and all(
        sample.numbers() == {divmod(int(action), 3): k for k, action in enumerate(actions, 1)} for sample in newest
    )


def test_a_sample_that_began_elsewhere_counts_its_moves_from_the_initial_position(tmp_path):
    game = games.make("tictactoe")
    config = make_config(search={"simulations": 4}, selfplay={"parallel_games": 16, "random_plies": 4})
    record = play_games(Player(config, game, UniformEvaluator(game), 0), range(16))
    begins = record.positions["ply"][np.append(0, np.cumsum(record.games["length"])[:-1])]
    (tmp_path / "games").mkdir()
    segment.write(tmp_path / "games", 0, game, record.select(begins > 0), {})
    chosen = samples.choose(tmp_path, "tictactoe")
    assert len(chosen) > 1
    for sample in chosen:
        first, plies = sample.positions[0].ply, [position.ply for position in sample.positions]
        assert plies == list(range(first, first + len(sample.moves) + 1)) and 1 <= first <= 4
        assert plies == [int((position.board.players >= 0).sum()) for position in sample.positions]
        assert sorted(sample.numbers().values()) == plies[1:]
        assert f'<ol start="{first + 1}">' in board.game(sample)


def pieces(svg, step, left=1.0):
    """Return {(row, column): (player, text)} of a picture of square cells, by where the discs lie."""
    found = re.findall(r'<g class="piece p(\d)">.*?<circle cx="([^"]*)" cy="([^"]*)"[^>]*/>(?:<text[^>]*>(.*?)<)?', svg)
    return {
        (int((float(y) - 1) // step), int((float(x) - left) // board.CELL)): (int(player), text)
        for player, x, y, text in found
    }


def test_a_board_shows_whose_piece_lies_where():
    game = games.make("connect4")
    states, before = game.initial(1), None
    for action in (3, 3, 0):
        before, states = states[0], game.play(states, np.array([action]))
    found = board_after(game, before, states[0])
    assert found.last == ((5, 0),)
    svg = board.draw(found, "x", 20, {(5, 3): 1, (4, 3): 2, (5, 0): 3})
    assert pieces(svg, 24) == {(5, 3): (0, "1"), (4, 3): (1, "2"), (5, 0): (0, "3")}
    assert svg.count('class="cell"') == 42
    assert re.findall(r'class="last" points="([^ "]*)', svg) == ["1.0,121.0"]  # the fifth row begins 5 * 24 below 1
    assert re.findall(r"<text[^>]*>(\d)</text>", svg)[3:] == list("1234567")  # after the three on the pieces


def test_a_board_of_hexagons_leans_to_the_right_and_kinds_of_pieces_are_letters():
    hexagons = Board(np.array([[0, -1], [-1, 1]], np.int8), ("K ", " q"), "hex", tuple("ab"), tuple("12"))
    svg = board.draw(hexagons, "x", 20, {(0, 0): 1})
    places = re.findall(r'<circle cx="([^"]*)" cy="([^"]*)"', svg)
    (x0, y0), (x1, y1) = [tuple(map(float, place)) for place in places]
    assert (x1 - x0, y1 - y0) == pytest.approx((36.0, 20.8), abs=0.15)  # a cell and a half; sqrt(3) / 2 of a cell
    assert re.findall(r'piece p(\d)">.*?>([Kq])<', svg) == [("0", "K"), ("1", "q")]
    assert "first player, a1<" in svg and "second player, b2<" in svg


def test_edges_chains_figures_and_blocks_are_drawn():
    """A chain of Hex from the top to the bottom; a white king and a black pawn; an arrow of Amazons."""
    hexagons = Board(np.array([[0, -1], [0, 1]], np.int8), shape="hex", edges=(0, 1), won=((0, 0), (1, 0)))
    svg = board.draw(hexagons, "x", 20)
    assert re.findall(r'class="border (p\d)"', svg) == ["p0", "p0", "p1", "p1"] and svg.count('class="won"') == 2
    box = [float(number) for number in re.search(r'viewBox="([^"]*)"', svg)[1].split()]
    corners = [pair.split(",") for path in re.findall(r'points="([^"]*)"', svg) for pair in path.split()]
    assert all(2 < float(x) < box[2] - 2 and 2 < float(y) < box[3] - 2 for x, y in corners)  # an edge is 10 wide
    figures = {"K": "M0 0h1z", "p": "M0 0v1z"}
    svg = board.draw(Board(np.array([[0, 1]], np.int8), ("Kp",), figures=figures, light=0), "x", 20)
    assert re.findall(r'<g class="piece (p\d)">.*?<path d="([^"]*)"', svg) == [("p1", "M0 0h1z"), ("p0", "M0 0v1z")]
    assert svg.count('class="cell odd"') == 1
    svg = board.draw(Board(np.array([[NOBODY, NO_CELL, -1]], np.int8), ("#  ",)), "x", 20)
    assert svg.count('class="cell"') == 2 and svg.count('class="block"') == 1 and "<circle" not in svg


def test_pieces_of_further_players_are_polygons_of_their_own_and_strokes_join_cells():
    row = Board(np.array([[0, 1, 2, 3, 4, 8, NOBODY]], np.int8), ("      #",), strokes=((0, 0, 0, 2),))
    svg = board.draw(row, "x", 20)
    assert re.findall(r'<g class="piece (\w+)">', svg) == ["p0", "p1", "p2", "p3", "p4", "p2", "nobody"]
    shapes = re.findall(r'<g class="piece p[2-9]">.*?<polygon points="([^"]*)"', svg)
    assert [len(shape.split()) for shape in shapes] == [3, 4, 5, 5]
    assert "third player" in svg and "player 4" in svg and "blocked" in svg
    [line] = re.findall(r'<line class="stroke" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', svg)
    assert (float(line[2]) - float(line[0]), line[1]) == (48.0, line[3])  # two cells of 24
    assert row.text() == "X O A B C G #"


def stones(text):
    return np.array([["XO".find(cell) for cell in row.split()] for row in text.strip().splitlines()], np.int8)


@pytest.mark.parametrize(
    "before, after, symbols, filled",
    [
        (". X O .", "X X O .", None, [(0, 0)]),
        (". X O .", ". X X X", None, [(0, 3)]),  # Othello: the piece that was turned over is no move
        ("X O . .", ". X . .", None, [(0, 1)]),  # chess: a capture
        ("X . . O", "X . . O", ("P  k", "Q  k"), [(0, 0)]),  # a piece that has become another kind
        ("X O . .", "X O . .", None, []),  # a pass
        ("X . O X", "X X . X", None, [(0, 1)]),  # go: a captured stone is gone
    ],
)
def test_filled_since_returns_the_cells_that_the_move_put_pieces_on(before, after, symbols, filled):
    symbols = symbols or ((), ())
    old, new = (Board(stones(text), (kinds,) if kinds else ()) for text, kinds in zip((before, after), symbols))
    assert new.filled_since(old) == filled


def test_a_game_without_boards_is_shown_as_text(run, monkeypatch):
    monkeypatch.setattr("az_mpi.games.mnk.Rules.board", lambda self, state: None)
    monkeypatch.setattr("az_mpi.games.mnk.Rules.show", lambda self, state: "<X> . .")
    monkeypatch.setattr("az_mpi.games.mnk.Rules.action_to_text", lambda self, state, action: f"<{action}>")
    text = (html_report.write(run)).read_text()
    assert "<pre>&lt;X&gt; . .</pre>" in text and 'class="board"' not in text and "&lt;4&gt; <small>" in text


def test_a_run_that_has_only_begun_has_a_report(run):
    for path in (*run.glob("games/*"), run / "metrics.jsonl", run / "status.json"):
        path.unlink()
    text = "".join(Page((html_report.write(run)).read_text()).texts)
    assert "0 of 4" in text and "None yet." in text and "not been evaluated" in text and "nothing yet" in text


def test_a_report_of_a_run_with_a_damaged_segment_lacks_the_sample_games_only(run):
    next(run.glob("games/*.h5")).write_bytes(b"no segment")
    text = "".join(Page((html_report.write(run)).read_text()).texts)
    assert "None: " in text and "1,272" in text


@pytest.mark.parametrize("damage", ["missing", "empty", "start"])
def test_a_folder_without_a_run_is_refused_with_one_block(run, tmp_path, capsys, damage):
    folder = {"missing": tmp_path / "nothing", "empty": tmp_path / "empty", "start": run}[damage]
    (tmp_path / "empty").mkdir()
    if damage == "start":
        for name, text in (("001.json", "[]"), ("002.json", "{")):
            (run / "starts" / name).write_text(text)
    assert commands.main(["report", str(folder)]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("report: error: ") == 1 and not (folder / "report.html").exists()


@pytest.mark.parametrize("damaged, whole", [("001.json", 2), ("002.json", 1)])
def test_a_start_that_is_damaged_is_left_out(run, damaged, whole):
    """The page says so, and the marks of the others stay."""
    (run / "starts" / damaged).write_text("{")
    data = run_data.load(run)
    assert [start["number"] for start in data.starts] == [whole]
    assert [text for _, text in data.marks(data.iterations, "iteration")] == ["start 2"] * (whole - 1)
    assert f"Left out: starts/{damaged}: " in "".join(Page(html_report.write(run).read_text()).texts)


def test_a_start_that_cannot_be_read_now_is_an_error(run, capsys):
    (run / "starts/001.json").unlink()
    (run / "starts/001.json").mkdir()
    assert commands.main(["report", str(run)]) == 2
    assert "001.json: cannot be read: not a plain file" in capsys.readouterr().err


def test_the_learning_curve_is_one_picture_with_all_its_colours_in_it(run):
    assert commands.main(["report", str(run), "--svg"]) == 0
    text = (run / curve.NAME).read_text()
    texts = ["".join(element.itertext()) for element in ElementTree.fromstring(text).iter(SVG + "text")]
    assert {"policy loss", "value loss", "against random", "nothing recorded"} <= set(texts)  # no solver judged it
    for shown in ("policy loss, 10: 0.1818", "policy loss, 30: 0.09091", "against random, 3: 0.75"):
        assert f"<title>{shown}</title>" in text, shown
    assert "var(" not in text and "url(" not in text and "<script" not in text


def test_a_run_without_metrics_yet_has_a_picture_too(run):
    (run / "metrics.jsonl").unlink()
    assert commands.main(["report", str(run), "--svg"]) == 0
    assert (run / curve.NAME).read_text().count("nothing recorded") == 3


@pytest.mark.parametrize("name", ["metrics.jsonl", "status.json"])
@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(run, capsys, name):
    (run / name).unlink()
    os.mkfifo(run / name)
    assert commands.main(["report", str(run)]) == 2
    assert re.search(rf"{name}: cannot be read: not a plain file\n", capsys.readouterr().err)


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_segment_leaves_out_the_sample_games(run):
    os.mkfifo(run / "games/000001-000.h5")
    assert commands.main(["report", str(run)]) == 0
    assert "000001-000.h5: not a plain file" in (run / "report.html").read_text()


def test_json_that_is_nested_too_deeply_is_no_record_and_no_status(run, capsys):
    with open(run / "metrics.jsonl", "a") as file:
        file.write("[" * 100_000 + "\n")
    assert commands.main(["report", str(run)]) == 0
    (run / "status.json").write_text("[" * 100_000)
    assert commands.main(["report", str(run)]) == 2
    assert "status.json: cannot be read: it is nested too deeply" in capsys.readouterr().err


def test_a_file_whose_json_is_no_object_is_refused(run, capsys):
    (run / "status.json").write_text("[]")
    assert commands.main(["report", str(run)]) == 2
    assert "status.json: cannot be read: no " in capsys.readouterr().err


NAME = "ä 中文 $x ".encode() + b"\xff"


@pytest.mark.parametrize(
    "locale",
    [{"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8:strict"}],
    ids=["ASCII", "UTF-8"],
)
@pytest.mark.parametrize("command", ["az_mpi report", "az_mpi verify", "az_mpi report --svg"])
def test_a_run_folder_may_have_any_name_in_any_locale(run, command, locale):
    folder = os.fsencode(run.parent) + b"/" + NAME
    os.rename(run, folder)
    environment = {**os.environ, **locale, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-m", *command.split(), folder], capture_output=True, env=environment)
    assert done.returncode == (command == "az_mpi verify") and b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.stdout.startswith(folder)  # byte for byte
    if command == "az_mpi report --svg":
        picture = Path(os.fsdecode(folder), "learning_curve.svg").read_text(encoding="utf-8")
        assert "<title>ä 中文 $x �</title>" in picture
    if command == "az_mpi report":
        text = Path(os.fsdecode(folder), "report.html").read_text(encoding="utf-8")
        assert "<h1>ä 中文 $x �</h1>" in text


def test_the_report_draws_a_ladder_if_one_was_played(run):
    """The networks of iterations 1, 2 and 4, of which the last is 50 above the first."""
    title = "Elo by the ladder"
    assert title not in html_report.write(run).read_text()
    rows = [
        {"iteration": k, "elo": elo, "elo_low": elo - 20.0, "elo_high": elo + 20.0}
        for k, elo in ((1, 0.0), (2, 30.0), (4, 50.0))
    ]
    (run / "ladder.json").write_text(json.dumps({"simulations": 50, "ratings": rows}))
    pictures = [about for name, about in Page(html_report.write(run).read_text()).tags if name == "svg"]
    assert any(about.get("aria-label", "").startswith(title) for about in pictures)


class Looked(dict):
    """A record that counts how often it is looked through."""

    times = 0

    def __iter__(self):
        Looked.times += 1
        return super().__iter__()


def test_shares_of_waiting_look_at_each_of_many_records_once():
    found = {}
    for n in (10, 1000):
        Looked.times = 0
        records = [Looked(iteration=k, play_s=2.0, play_idle_s=0.5) for k in range(n)]
        assert run_data.RunData(Path(), {}, [], records, [], [], {}, {}).idle_shares("idle") == [0.25] * n
        found[n] = Looked.times
    assert found == {10: 10, 1000: 1000}
