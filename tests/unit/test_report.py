"""The report of a run: well-formed, self-contained, safe against hostile text, and true to the run's files."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from az_mpi import __main__ as commands
from az_mpi import config as configuration
from az_mpi import games
from az_mpi.config import Config
from az_mpi.data import segment
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.report import chart, page, run_data, samples
from az_mpi.report.chart import Series
from az_mpi.selfplay.player import Player
from az_mpi.selfplay.record import game_ids

HOSTILE = "<script>alert('&\"')</script>"


class Page(HTMLParser):
    """A page's `tags` as (name, {attribute: value}), its `texts`, the rows of its `tables`. Unbalanced tags fail."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.tables, self._open = [], [], [], []
        self.feed(text)
        self.close()
        assert self._open == [], f"left open: {self._open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":  # which has no end
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self._open and self._open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data

    def table(self, *head):
        """Return the rows below a heading that begins with `head`."""
        [rows] = [table[1:] for table in self.tables if table[0][: len(head)] == list(head)]
        return rows


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
    """A run's folder: two attempts, of which the second did iteration 2 again, on a host with a hostile name."""
    folder = tmp_path / "a run"
    for name in ("attempts", "games"):
        (folder / name).mkdir(parents=True)
    config = Config(game="tictactoe", iterations=4, train={"batch_size": 64, "ranks": 1})
    about = {"config": json.loads(configuration.to_json(config)), "az_mpi": "0.1", "python": "3.11", "git_commit": None,
             "packages": {"torch": "2"}}
    for number, hosts in ((1, ["n1"]), (2, ["n1", HOSTILE])):
        start = {"started": f"2026-01-01T00:{10 * number}:00+0000", "hosts": hosts}
        (folder / "attempts" / f"{number:03d}.json").write_text(json.dumps(about | start))
    base = 1767225600  # the beginning of that year
    records = []
    for minute, iteration, by_rank in ((11, 1, [10]), (12, 2, [20]), (21, 2, [8, 4]), (22, 3, [16, 1234])):
        seconds = {f"{name}_s": value * iteration for name, value in (("play", 3.5), ("train", 2.0))}
        idle = {f"{name}_{kind}_s": 0.1 for name in ("play", "train") for kind in ("idle", "idle_max")}
        records.append({"kind": "iteration", "time": base + 60 * minute, "step": 10 * iteration, "iteration": iteration,
                        "games_num": sum(by_rank), "positions_num": 8 * sum(by_rank), "mean_length": 7.25 + iteration,
                        "games_per_s": 4.5 * iteration, "simulations_per_s": 1234.5, "steps_num": 10,
                        "first_player_score": 0.6, "games_by_rank": by_rank,
                        "positions_by_rank": [8 * n for n in by_rank], **seconds, **idle})  # fmt: skip
        records.append({"kind": "train", "time": base + 60 * minute, "step": 10 * iteration, "value_loss": 0.5,
                        "policy_loss": 2.0 / minute})
    records.append({"kind": "evaluation", "time": base + 60 * 23, "step": 30, "iteration": 3, "simulations": 7,
                    "matches": {"random": match(0.75)}, "evaluate_s": 1.5, "evaluate_idle_s": 0.0,
                    "evaluate_idle_max_s": 0.0})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    rank = {"device": HOSTILE, "roles": "play"}
    (folder / "status.json").write_text(json.dumps({"attempt": 2, "ranks": [rank, rank]}))
    segment.write(folder / "games", 0, games.make("tictactoe"), played, {})
    return folder


def test_the_tables_hold_the_numbers_of_the_runs_files(run, capsys):
    assert commands.main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    found = Page((run / "report.html").read_text())
    assert found.table("iteration", "games") == [
        ["1", "10", "80", "8.2", "0.600", "4.5", "1,234", "10", "3.50", "2.00"],
        ["2", "12", "96", "9.2", "0.600", "9.0", "1,234", "10", "7.00", "4.00"],  # as the second attempt did it
        ["3", "1,250", "10,000", "10.2", "0.600", "13.5", "1,234", "10", "10.50", "6.00"],
    ]
    assert found.table("rank", "host") == [
        ["0", "n1", HOSTILE, "play", "24", "192", "1.9 %"], ["1", HOSTILE, HOSTILE, "play", "1,238", "9,904", "98.1 %"]]
    differs, every = [t for t in found.tables if t[0] == ["key", "value", "default"]]
    assert differs[1:] == [["game", '"tictactoe"', "(required)"], ["iterations", "4", "40"],
                           ["train.ranks", "1", '"all"'], ["train.batch_size", "64", "1024"]]
    assert len(every) == 1 + len(configuration.KEYS)
    text = "".join(found.texts)
    assert "3 of 4" in text and "1,272" in text and "10,176" in text and "not complete" in text
    assert "against random: 3 won, 1 drawn, 0 lost; score 0.750 [0.650, 0.850], Elo +100 [+50, -]" in text


def test_points_of_the_curves_are_those_of_the_metrics(run):
    text = page.render(run_data.load(run))
    for shown in ("policy loss, 10: 0.1818", "policy loss, 20: 0.09524", "policy loss, 30: 0.09091",
                  "against random, 3: 0.75", "against random, 3: 100", "mean length, 2: 9.25", "all ranks, 3: 13.5",
                  "play: 10.5", "train: 6", "evaluate: 1.5", "mean of ranks, 1: 3.636"):  # 0.2 of 5.5 s
        assert f"<title>{shown}</title>" in text, shown
    data = run_data.load(run)
    assert data.marks(data.iterations, "iteration") == [(1.5, "attempt 2")]
    assert text.count("<title>attempt 2 begins</title>") == 6  # of the charts by iteration or step


def test_nothing_is_fetched_and_nothing_runs(run):
    text = (page.write(run)).read_text()
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
    assert [len(sample.actions) for sample in chosen] == [lengths[0], lengths[8], lengths[-1]]
    for sample in chosen:
        states, drawn = game.initial(1), []
        for ply, action in enumerate([*sample.actions, None]):
            drawn.append((ply, game.show(states[0])))
            if action is not None:
                states = game.play(states, np.array([action]))
        ended, value = game.terminal(states)
        assert ended[0] and len(sample.drawings) == min(8, len(drawn))
        shown = [(int(caption.split()[0]), drawing) for caption, drawing in sample.drawings]
        assert set(shown) <= set(drawn) and shown[-1] == drawn[-1]
        loser_moves = "first" if game.to_play(states)[0] else "second"
        assert ("drawn" if value[0] == 0 else f"the {loser_moves} player won") in sample.title


def test_a_run_that_has_only_begun_has_a_report(run):
    for path in (*run.glob("games/*"), run / "metrics.jsonl", run / "status.json"):
        path.unlink()
    text = "".join(Page((page.write(run)).read_text()).texts)
    assert "0 of 4" in text and "None yet." in text and "not been judged" in text and "nothing yet" in text


def test_a_damaged_segment_costs_the_samples_alone(run):
    next(run.glob("games/*.h5")).write_bytes(b"no segment")
    text = "".join(Page((page.write(run)).read_text()).texts)
    assert "None: " in text and "1,272" in text


@pytest.mark.parametrize("damage", ["missing", "empty", "attempt"])
def test_no_run_is_one_clear_block(run, tmp_path, capsys, damage):
    folder = {"missing": tmp_path / "nothing", "empty": tmp_path / "empty", "attempt": run}[damage]
    (tmp_path / "empty").mkdir()
    if damage == "attempt":
        (run / "attempts" / "002.json").write_text("{")
    assert commands.main(["report", str(folder)]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("report: error: ") == 1 and not (folder / "report.html").exists()


def points(figure):
    [path] = re.findall(r'<polyline[^>]* points="([^"]*)"', figure)
    return [tuple(map(float, pair.split(","))) for pair in path.split()]


def test_where_points_lie_by_hand():
    """The plot is 378 by 200 units, from (52, 210) to (430, 10); y grows upwards, from 0."""
    figure = chart.lines("t", "x", "y", [Series("a", [0, 5, 10], [0, 4, 2])])
    assert points(figure) == [(52.0, 210.0), (241.0, 10.0), (430.0, 110.0)]
    figure = chart.lines("t", "x", "y", [Series("a", [0, 10], [0.5, 2.0])], limits=(0, 1))
    assert points(figure) == [(52.0, 110.0), (430.0, 10.0)]  # what is beyond a limit is cut off
    figure = chart.lines("t", "x", "y", [Series("a", [3], [1.0])])
    assert points(figure) == [(241.0, 10.0)]  # a lone point


def test_bars_stand_on_each_other():
    figure = chart.stacked("t", "x", "y", [1, 2], {"a": [1.0, 3.0], "none": [0, 0], "b": [3.0, 1.0]})
    boxes = re.findall(r'<rect x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"', figure)
    left, top, width, height = zip(*(map(float, box) for box in boxes))
    assert left == (52.0, 262.0, 52.0, 262.0) and set(width) == {168.0}
    assert height == (50.0, 150.0, 150.0, 50.0) and top == (160.0, 60.0, 10.0, 10.0)
    assert ">none<" not in figure


def test_long_lines_are_means_of_neighbours():
    x = list(range(1200))
    figure = chart.lines("t", "x", "y", [Series("a", x, [float(i % 3) for i in x])])
    assert len(points(figure)) == 400 and len({y for _, y in points(figure)}) == 1  # each the mean of 0, 1, 2
    bars = chart.stacked("t", "x", "y", x, {"a": [1.0] * 1200})
    assert bars.count("<rect") == 120


def test_a_missing_bound_leaves_a_gap_and_a_missing_point_none():
    series = Series("a", [1, 2, 3, 4], [1, None, 3, 4], [0, None, 2, 3], [2, None, None, 5])
    figure = chart.lines("t", "x", "y", [series])
    assert len(points(figure)) == 3
    [band] = re.findall(r'<polygon[^>]* points="([^"]*)"', figure)
    assert len(band.split()) == 4  # of 1 and 4


@pytest.mark.parametrize("low, high, expected", [
    (0, 10, [0, 2, 4, 6, 8, 10]), (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (-200, 600, [-200, 0, 200, 400, 600]),
    (3, 17, [5, 10, 15]), (0.5, 1.5, [0.6, 0.8, 1.0, 1.2, 1.4]),
])  # fmt: skip
def test_ticks_are_round(low, high, expected):
    assert chart.ticks(low, high) == pytest.approx(expected)


def test_names_in_charts_are_escaped():
    figure = chart.lines(HOSTILE, HOSTILE, HOSTILE, [Series(HOSTILE, [1, 2], [1, 2])] * 2, [(1.5, HOSTILE)])
    assert "<script" not in figure
    assert Page(figure).texts.count(HOSTILE) == 5  # title, two names, two axes; points and marks say more


@pytest.mark.parametrize("name", ["attempts/002.json", "metrics.jsonl", "status.json"])
@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(run, capsys, name):
    (run / name).unlink()
    os.mkfifo(run / name)
    assert commands.main(["report", str(run)]) == 2
    assert re.search(rf"{name}: cannot be read: not a plain file\n", capsys.readouterr().err)


@pytest.mark.timeout(60)
def test_a_pipe_in_place_of_games_leaves_them_out(run):
    os.mkfifo(run / "games/000001-000.h5")
    assert commands.main(["report", str(run)]) == 0
    assert "000001-000.h5: not a plain file" in (run / "report.html").read_text()


def test_nesting_that_python_does_not_read_is_no_record(run, capsys):
    with open(run / "metrics.jsonl", "a") as file:
        file.write("[" * 100_000 + "\n")
    assert commands.main(["report", str(run)]) == 0
    (run / "status.json").write_text("[" * 100_000)
    assert commands.main(["report", str(run)]) == 2
    assert "status.json: cannot be read: it is nested too deeply" in capsys.readouterr().err


NAME = "ä 中文 $x ".encode() + b"\xff"


@pytest.mark.parametrize("locale", [
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8:strict"},
], ids=["ASCII", "UTF-8"])  # fmt: skip
@pytest.mark.parametrize("command", ["az_mpi report", "az_mpi verify", "az_mpi.report.curve"])
def test_a_folder_may_have_any_name_in_any_locale(run, command, locale):
    folder = os.fsencode(run.parent) + b"/" + NAME
    os.rename(run, folder)
    environment = {**os.environ, **locale, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-m", *command.split(), folder], capture_output=True, env=environment)
    assert done.returncode == (command == "az_mpi verify") and b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.stdout.startswith(folder)  # byte for byte
    if command == "az_mpi report":
        text = Path(os.fsdecode(folder), "report.html").read_text(encoding="utf-8")
        assert "<h1>ä 中文 $x �</h1>" in text
