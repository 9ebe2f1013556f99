"""az_mpi compare without its jobs: how configurations are named, and what is reported of matches and measurements."""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from az_mpi.core.problems import Refusal
from az_mpi.evaluate import rating
from az_mpi.evaluate.tally import MatchResult, Scores, Shares
from az_mpi.launch import hosts, mpi_job
from az_mpi.plan import compare_command, comparison_page, figures, jobs, variants
from az_mpi.plan.compare_command import main


@pytest.fixture
def file(tmp_path):
    """Return write(name, **keys): the path of a configuration of tic-tac-toe with these keys."""

    def write(name, **keys):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"game": "tictactoe"} | keys))
        return str(path)

    return write


def test_a_configuration_is_a_file_with_changes(file):
    plain, changed = variants.read([file("a"), f"{file('a')} train.replay_ratio=3 seed=7"], ["iterations=4"])
    assert (plain.config.iterations, changed.config.iterations) == (4, 4)
    assert changed.config.train.replay_ratio == 3 and changed.config.seed == 7
    assert changed.label == "a train.replay_ratio=3 seed=7"
    assert changed.run_name(2) == "a_train.replay_ratio=3_seed=7-seed2" and plain.run_name(2) == "a-seed2"


def test_many_changes_make_a_name_of_a_folder_that_file_systems_accept(file, tmp_path):
    many = " ".join(f"evaluate.opponents='[\"{'r' * 40}.py:A{number}\"]'" for number in range(9))
    one, other = (variants.Variant(f"a {many} seed={seed}", Path("a.json"), (), None).run_name(12) for seed in (1, 2))
    assert one != other
    for name in (one, other):
        (tmp_path / name).mkdir()


@pytest.mark.parametrize(
    "wrong",
    [
        ["a.json"],  # alone
        ["a.json", "a.json"],
        ["a.json", "a.json iterations"],
        ["a.json", "a.json iterations=x"],
        ["a.json", "a.json no.such_key=1"],
        ["a.json", "a.json game=connect4"],
        ["a.json", "missing.json"],
        ["a.json", "a.json 'iterations=1"],
    ],
)
def test_mistakes_are_refused_before_anything_is_written(wrong, file, tmp_path, monkeypatch):
    file("a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refusal):
        main([*wrong, "--minutes", "1", "--logdir", "comparison"])
    assert not (tmp_path / "comparison").exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--minutes", "0"],
        ["--minutes", "nan"],
        ["--minutes", "1", "--games", "3"],
        ["--minutes", "1", "--seeds", "0"],
        ["--minutes", "1", "--np", "4", "--hosts", "localhost:2"],
    ],
)
def test_options_are_checked_before_anything_is_written(options, file, tmp_path):
    with pytest.raises(Refusal):
        main([file("a"), file("b"), *options, "--logdir", str(tmp_path / "comparison")])
    assert not (tmp_path / "comparison").exists()


def test_a_folder_with_something_else_is_refused(file, tmp_path):
    (tmp_path / "comparison").mkdir()
    (tmp_path / "comparison" / "mine").write_text("mine")
    with pytest.raises(Refusal, match="something else"):
        main([file("a"), file("b"), "--minutes", "1", "--logdir", str(tmp_path / "comparison")])
    assert [path.name for path in (tmp_path / "comparison").iterdir()] == ["mine"]


def test_a_folder_with_matches_against_another_configuration_is_refused(file, tmp_path):
    """They would be shown as matches against this one."""
    given = [file("a"), file("b"), file("c")]
    configurations = {variant.label: variant.config.model_dump(mode="json") for variant in variants.read(given, [])}
    options = {"minutes": 1.0, "points": 4, "games": 100, "simulations": 100}
    (tmp_path / "compare.json").write_text(
        json.dumps({"options": options, "configurations": configurations, "warm": [], "runs": {}, "matches": {}})
    )
    for wrong in (given[1:], [given[1], given[0]]):
        with pytest.raises(Refusal, match="with a, its first configuration"):
            main([*wrong, "--minutes", "1", "--logdir", str(tmp_path)])


def match(first, second):
    return {"as_first": first, "as_second": second, "elo": 10.0}


def test_elo_is_of_the_games_of_all_seeds():
    both = figures.total([match([3, 1, 1], [2, 0, 3]), match([5, 0, 0], [1, 2, 2])])
    assert (both["wins"], both["draws"], both["losses"]) == (11, 3, 6) and both["score"] == 12.5 / 20
    assert both["elo_low"] < both["elo"] < both["elo_high"]


def measured(iteration, share):
    wins = round(10 * share)
    return {
        "minutes": 2.0,
        "iteration": iteration,
        "games": 100 * iteration,
        "simulations": 1e6,
        "complete": False,
        "matches": {"random": rating.summary(MatchResult((wins, 0, 10 - wins), (0, 0, 0)))},
        "solver": {"overall": share, "where_moves_differ": None, "num_positions": 100},
    }


def test_a_row_has_means_over_the_seeds_and_elo_against_the_first(file):
    a, b = variants.read([file("a"), file("b")], [])
    state = {
        "runs": {
            "a-seed1": {"points": [measured(1, 0.1), measured(4, 0.5)]},
            "a-seed2": {"points": [measured(6, 0.7)]},
            "b-seed1": {"points": [measured(2, 0.9)]},
            "b-seed2": {"points": [measured(2, 0.9)]},
        },
        "matches": {"b-seed1": match([5, 0, 0], [5, 0, 0]), "b-seed2": match([0, 0, 5], [0, 0, 5])},
    }
    first, second = figures.rows(state, [a, b], 2)
    assert first["iterations"] == "5 [4, 6]" and first["games"] == "500 [400, 600]"
    assert first["score against random"] == "0.600 [0.500, 0.700]"
    # 12 of 20 games: 400 log10(12 / 8). Wilson's interval, 0.387 to 0.781, makes -80 and +221.
    assert first["Elo against random"] == "+70 [-80, +221], 20 games; by seed +0, +147"
    assert "moves that keep the exact value, where moves differ" not in first  # no such positions
    assert second["Elo"].startswith("+0 [-") and "20 games" in second["Elo"] and "Elo" in first


def test_with_one_seed_a_row_and_its_curves_have_95_percent_intervals(file):
    """Wilson: 50 of 100 positions are 0.404 to 0.596, 5 of 10 games 0.237 to 0.763."""
    a, b = variants.read([file("a"), file("b")], [])
    state = {
        "runs": {
            "a-seed1": {"points": [measured(1, 0.1), measured(4, 0.5)]},
            "b-seed1": {"points": [measured(2, 0.9)]},
        },
        "matches": {},
    }
    row = figures.rows(state, [a, b], 1)[0]
    assert row["moves that keep the exact value"] == "0.500 [0.404, 0.596]"
    assert row["score against random"] == "0.500 [0.237, 0.763]"


def test_of_one_player_scores_and_their_differences_on_the_same_seeds_are_compared(file, tmp_path):
    """Against b a has 2, 0 and 4 more with seed 1, and -1, 1, 0 with seed 2: 1 in the mean."""
    a, b = variants.read([file("a"), file("b")], [])
    (tmp_path / "metrics.jsonl").write_text("")
    seen = [Scores(np.array(scores)) for scores in ([5.0, 7.0, 9.0], [3.0, 7.0, 5.0])]
    found = {"score_name": "points", **rating.score_summary(seen[0])}
    found["matches"] = {"random": rating.versus(*seen)}
    point = figures.point(tmp_path, 60.0, found, True)
    assert "points: mean 7" in figures.line("a", point) and "Elo" not in figures.line("a", point)

    def match(ours, theirs):
        found = rating.score_summary(Scores(np.array(ours)))
        return found | {"other": rating.versus(Scores(np.array(ours)), Scores(np.array(theirs)))}

    state = {
        "runs": {variant.run_name(seed): {"points": [point]} for variant in (a, b) for seed in (1, 2)},
        "matches": {
            "b-seed1": match([5.0, 7.0, 9.0], [3.0, 7.0, 5.0]),
            "b-seed2": match([3.0, 8.0, 5.0], [4.0, 7.0, 5.0]),
        },
    }
    row = figures.rows(state, [a, b], 2)[1]
    assert row["mean score (points)"] == "7 [7, 7]" and row["more than random (points)"] == "2 [2, 2]"
    assert row[figures.DIFFERENCE].startswith("+1 [") and "6 games; by seed +2, +0" in row[figures.DIFFERENCE]
    assert not any("Elo" in name for name in row)
    text = comparison_page.write(
        tmp_path, state | {"options": {"minutes": 1, "points": 1}}, [a, b], page(2)
    ).read_text()
    assert "pairs of games with the same seed" in text and "Elo" not in text


def test_a_score_against_an_opponent_with_arguments_is_shown_as_a_share(file, tmp_path, monkeypatch):
    """Its name ends with a parenthesis, as that of a score in the game's unit does."""
    a, b = variants.read([file("a"), file("b")], [])
    point = measured(1, 0.5)
    point["matches"] = {"mcts_bot(simulations=100)": point["matches"]["random"]}
    state = {"runs": {variant.run_name(1): {"points": [point]} for variant in (a, b)}, "matches": {}}
    assert figures.rows(state, [a, b], 1)[0]["score against mcts_bot(simulations=100)"] == "0.500 [0.237, 0.763]"
    drawn = {}

    def lines(name, axis, y_label, series, limits):
        drawn[name] = y_label, limits
        return ""

    monkeypatch.setattr(comparison_page.chart, "lines", lines)
    comparison_page.write(tmp_path, state | {"options": {"minutes": 1, "points": 1}}, [a, b], page(1))
    assert drawn["score against mcts_bot(simulations=100)"] == ("share", (0, 1))


def page(seeds):
    return argparse.Namespace(minutes=1, points=1, seeds=seeds, simulations=2, games=6)


def test_of_three_players_shares_of_the_points_are_compared(file, tmp_path):
    a, b = variants.read([file("a"), file("b")], [])
    match = rating.summary(Shares(*[np.array([[1, 0, 0.5], [1, 1, 0]])] * 3))
    point = {"minutes": 1.0, "iteration": 1, "complete": True, "games": 9, "simulations": 5.0, "solver": None}
    state = {
        "runs": {variant.run_name(1): {"points": [point | {"matches": {"random": match}}]} for variant in (a, b)},
        "matches": {"b-seed1": match},
    }
    row = figures.rows(state, [a, b], 1)[1]
    assert row[figures.SHARE].startswith("0.583 [") and "(of equal players 0.333), 6 games" in row[figures.SHARE]
    assert row["score against random"].startswith("0.583 [") and not any("Elo" in name for name in row)
    text = comparison_page.write(
        tmp_path, state | {"options": {"minutes": 1, "points": 1}}, [a, b], page(1)
    ).read_text()
    assert "each seat is taken once" in text and "Elo" not in text


def test_matches_with_dice_of_all_seeds_have_the_interval_of_their_pairs():
    parts = [([1, 0, 1], [1, 0, 1], [0.5, 0.5]), ([2, 0, 0], [1, 0, 1], [1.0, 0.5])]
    found = figures.total([match(first, second) | {"sets": sets} for first, second, sets in parts])
    assert (found["score_low"], found["score_high"]) == rating.interval_of_sets([0.5, 0.5, 1, 0.5])
    assert found["score"] == 5 / 8 and found["elo_low"] == pytest.approx(rating.elo(found["score_low"]))


def where(**options):
    """Return options that name this machine and one rank."""
    parser = argparse.ArgumentParser()
    hosts.add_options(parser)
    return argparse.Namespace(**vars(parser.parse_args(["--np", "1"])) | {"games": 2, "simulations": 2} | options)


@pytest.mark.parametrize("no_check", [True, False])
def test_hosts_are_checked_unless_no_check_is_given(file, tmp_path, monkeypatch, no_check):
    started = []
    monkeypatch.setattr(
        jobs.mpi_job, "run_child", lambda command, log: started.append(command) or mpi_job.Child(0, "", "")
    )
    variant = variants.read([f"{file('a')} seed=7", file("b")], [])[0]
    jobs.Jobs(where(no_check=no_check), tmp_path).train(variant, tmp_path / "run", 2, [])
    assert ("--no_check" in started[0][: started[0].index("--")]) == no_check
    assert [word for word in started[0] if word.startswith("seed=")][-1] == "seed=8"  # the second from its own on


def test_a_job_that_fails_is_refused_with_the_end_of_what_it_said(tmp_path, monkeypatch):
    """The end includes its standard error, and nothing that earlier jobs have left in the log."""
    (tmp_path / "jobs.log").write_text("an earlier job\n")
    text = "import sys; print('progress', file=sys.stderr, flush=True); print('no room'); sys.exit(3)"
    monkeypatch.setattr(jobs.check, "checked_line", lambda *_: [sys.executable, "-c", text])
    with pytest.raises(Refusal, match="status 3") as refused:
        jobs.Jobs(where(), tmp_path).match(Path("a"), Path("b"))
    assert "\nprogress\nno room\n" in str(refused.value) and "earlier" not in str(refused.value)
    assert (tmp_path / "jobs.log").read_text() == "an earlier job\nprogress\nno room\n"


@pytest.mark.parametrize("said, result", [('told\n{"a": 1}\nbye\n', {"a": 1}), ('games {"a": 1}\n', None), ("", None)])
def test_a_job_without_a_result_is_refused_and_its_words_are_kept(said, result, tmp_path, monkeypatch):
    made = jobs.Jobs(where(), tmp_path)
    monkeypatch.setattr(jobs.check, "checked_line", lambda *_: [sys.executable, "-c", f"print({said!r}, end='')"])
    if result:
        assert made.match(Path("a"), Path("b")) == result
    else:
        with pytest.raises(Refusal, match="jobs.log"):
            made.match(Path("a"), Path("b"))
    assert (tmp_path / "jobs.log").read_text() == said


class FakeJobs:
    """Jobs whose networks only draw."""

    stops = 0  # how many trainings leave by SystemExit, as when compare is stopped
    recorded_s = None  # the time of their last record, in seconds after their start; None: they have recorded nothing
    asked = []  # (name of the run, settings) of each training

    def __init__(self, where, folder):
        pass

    def num_ranks(self):
        return 1

    def train(self, variant, run, seed, settings, least_s=0.0):
        FakeJobs.asked.append((run.name, settings))
        if run.name != "trial" and FakeJobs.stops:
            FakeJobs.stops -= 1
            if FakeJobs.recorded_s is not None:
                run.mkdir()
                (run / "metrics.jsonl").write_text(json.dumps({"kind": "step", "time": time.time() + self.recorded_s}))
            raise SystemExit(75)
        run.mkdir(exist_ok=True)
        row = {
            "kind": "iteration",
            "iteration": 0,
            "num_games": 5,
            "simulations_per_s": 10,
            "play_s": 3,
            "meanwhile_simulations_per_s": 7,
            "train_s": 2,
            "time": 0,
        }
        (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        return 60.0, True

    def measure(self, variant, run):
        found = {
            "num_games": 2,
            "as_first": [0, 1, 0],
            "as_second": [0, 1, 0],
            "wins": 0,
            "draws": 2,
            "losses": 0,
            "score": 0.5,
            "score_low": 0.1,
            "score_high": 0.9,
            "elo": 0.0,
            "elo_low": -9.0,
            "elo_high": 9.0,
        }
        return {"matches": {name: found for name in variant.config.evaluate.opponents}}

    def match(self, first, second):
        return {"as_first": [0, 1, 0], "as_second": [0, 1, 0], "elo": 0.0}


@pytest.fixture
def fake_jobs(monkeypatch):
    monkeypatch.setattr(compare_command, "Jobs", FakeJobs)
    monkeypatch.setattr(FakeJobs, "stops", 0)
    monkeypatch.setattr(FakeJobs, "recorded_s", None)
    monkeypatch.setattr(FakeJobs, "asked", [])


def test_configurations_with_different_opponents_share_one_table(file, tmp_path, fake_jobs, capsys):
    both = [file("a", evaluate={"opponents": ["random", "rollout"]}), file("b", evaluate={"opponents": ["random"]})]
    for names, folder in ((both, tmp_path / "ab"), (both[::-1], tmp_path / "ba")):
        assert main([*names, "--minutes", "1", "--points", "1", "--logdir", str(folder)]) == 0
        table = (folder / "compare.html").read_text().partition("</table>")[0]
        head, *rows = [line for line in table.split("<tr>") if "</tr>" in line]
        heads = head.split("</t")
        place = next(k for k, cell in enumerate(heads) if "against rollout" in cell)
        cells = {row.split("</t")[0].rpartition(">")[2]: row.split("</t")[place].rpartition(">")[2] for row in rows}
        assert cells == {"a": "0.500 [0.100, 0.900]", "b": "-"}
        assert json.loads((folder / "compare.json").read_text())["runs"]["a-seed1"]["points"][0]["simulations"] == 44


def test_a_training_that_was_stopped_before_its_first_record_is_resumed(file, tmp_path, fake_jobs, monkeypatch):
    monkeypatch.setattr(FakeJobs, "stops", 1)
    command = [file("a"), file("b"), "--minutes", "1", "--points", "1", "--logdir", str(tmp_path / "comparison")]
    with pytest.raises(SystemExit):
        main(command)
    assert main(command) == 0


def test_what_a_killed_training_had_recorded_counts_as_its_time(file, tmp_path, fake_jobs, monkeypatch):
    """20 of its 60 seconds, so 40 are left."""
    monkeypatch.setattr(FakeJobs, "stops", 1)
    monkeypatch.setattr(FakeJobs, "recorded_s", 20)
    command = [file("a"), file("b"), "--minutes", "1", "--points", "1", "--logdir", str(tmp_path / "comparison")]
    with pytest.raises(SystemExit):
        main(command)
    assert main(command) == 0
    hours = [
        float(setting.removeprefix("max_hours="))
        for name, settings in FakeJobs.asked
        if name == "a-seed1"
        for setting in settings
        if setting.startswith("max_hours=")
    ]
    assert [3600 * each for each in hours] == pytest.approx([60, 40], abs=1)


def test_a_first_start_that_fails_can_be_repeated(file, tmp_path, fake_jobs, monkeypatch):
    command = [file("a"), file("b"), "--minutes", "1", "--points", "1", "--logdir", str(tmp_path / "comparison")]
    with monkeypatch.context() as patch:
        patch.setattr(FakeJobs, "train", lambda *_: (tmp_path / "comparison" / "jobs.log").write_text("no") / 0)
        with pytest.raises(ZeroDivisionError):
            main(command)
    assert main(command) == 0


def test_a_changed_configuration_is_not_shown_with_old_results(file, tmp_path, fake_jobs):
    folder = tmp_path / "comparison"
    command = [file("a"), file("b"), "--minutes", "1", "--points", "1", "--logdir", str(folder)]
    assert main(command) == 0
    with pytest.raises(Refusal, match="train.learning_rate"):
        main([*command, "--set", "train.learning_rate=0.5"])
    before = json.loads((folder / "compare.json").read_text())
    (folder / "compare.json").write_text(json.dumps({k: v for k, v in before.items() if k != "configurations"}))
    assert main(command) == 0  # of a version that kept no configurations


def test_a_training_that_ends_too_early_is_refused_and_not_measured(file, tmp_path, monkeypatch):
    made = jobs.Jobs(where(), tmp_path)
    ended = mpi_job.Child(75, "", "no room on the disk")
    monkeypatch.setattr(jobs.mpi_job, "run_child", lambda *_: ended)
    variant = variants.read([file("a"), file("b")], [])[0]
    assert made.train(variant, tmp_path / "run", 1, ())[1] is False
    with pytest.raises(Refusal, match="jobs.log"):
        made.train(variant, tmp_path / "run", 1, (), 60.0)
