"""az_mpi scaling without its jobs: figures, fits and reports of measurements made by hand, resuming, wrong options."""

import csv
import io
import json
import math
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from az_mpi.core.problems import Refusal
from az_mpi.launch import mpi_job
from az_mpi.plan import measured_rank, scaling, scaling_figures, scaling_model, scaling_report, scaling_runs
from az_mpi.plan.scaling_figures import Figure
from az_mpi.report import chart, pdf
from az_mpi.report.picture import Plot, picture

ABOUT = {"configuration": "a", "processor": "<one>"}


def case(num_ranks, seconds, games=100, load=0.5, cores_each=1, num_cores=64, **columns):
    """Return a measurement as `scaling_runs.read` returns it: iterations of these seconds, behind a first one."""
    rows, now = [], 1000.0
    for k, took in enumerate([None, *seconds]):
        now += took or 0.0
        whole = took or 1.0
        row = {"iteration": k + 1, "time": now, "num_games": games, "num_positions": 10 * games, "iteration_s": took}
        row |= {"play_s": 0.6 * whole, "play_idle_s": 0.1 * whole, "exchange_s": 0.05 * whole, "train_s": 0.2 * whole}
        row |= {"sums_s": 0.05 * whole, "broadcast_s": 0.02 * whole, "save_s": 0.03 * whole}
        rows.append(row | {"exchange_bytes": 1000, "broadcast_bytes": 500, "peak_resident_bytes": 2**20})
    ranks = []
    for rank in range(num_ranks):
        cores = [(rank * cores_each + k) % num_cores for k in range(cores_each)]
        known = dict.fromkeys(measured_rank.COLUMNS)
        values = [
            known
            | {"time": row["time"], "cpu_s": load * (row["time"] - 1000), "opened": 10 + row["iteration"]}
            | columns
            for row in rows
        ]
        ranks.append(
            {
                "rank": rank,
                "host": "node1",
                "cores": cores,
                "columns": [[value[name] for name in measured_rank.COLUMNS] for value in values],
            }
        )
    return {"iterations": rows, "ranks": ranks, "files": {}}


CASES = {
    "strong-1-1": case(1, [8.0, 8.0]),
    "strong-1-2": case(1, [8.0, 8.0]),
    "strong-2-1": case(2, [5.0, 5.0]),
    "strong-4-1": case(4, [4.0, 4.0]),
    "weak-2-1": case(2, [10.0, 10.0], games=200),
    "weak-4-1": case(4, [16.0, 16.0], games=400),
}
STATE = {"options": {"smallest": 1, "cores": 1}, "about": ABOUT, "cases": CASES}


def test_a_fit_finds_the_coefficients_of_exact_numbers():
    ranks = [1, 2, 4, 16, 64]
    seconds = [10 / n + 1 + 0.5 * math.log2(n) + 0.01 * n for n in ranks]
    assert scaling_model.fit(ranks, seconds, "wabc") == pytest.approx([10, 1, 0.5, 0.01], rel=1e-6)
    assert scaling_model.fit(ranks, [3.0] * 5, "abc") == pytest.approx([0, 3, 0, 0])


def test_a_fit_has_no_negative_coefficient_and_counts_errors_in_proportion():
    falling = scaling_model.fit([1, 2, 4], [4.0, 3.0, 2.0], "abc")
    assert falling[2] == falling[3] == 0 and 2 < falling[1] < 3
    # a alone with the least sum of ((a - t) / t)^2 is sum(1 / t) / sum(1 / t^2): here 1.5 / 1.25.
    assert scaling_model.fit([1, 2], [2.0, 1.0], "a") == pytest.approx([0, 1.2, 0, 0])


def test_an_interval_is_students_of_the_logarithms_and_of_repeats_where_they_differ_more():
    one = scaling_figures.interval(5.0, [[1.0, math.e**2]])  # logarithms 0 and 2: standard error 1, one degree
    assert one.error == pytest.approx(1.0) and one.times == 12.706
    assert (one.low, one.high) == pytest.approx((5 * math.exp(-12.706), 5 * math.exp(12.706)))
    apart = scaling_figures.interval(2.0, [[1.0, 1.0, 1.0], [math.e, math.e, math.e]])  # means 0 and 1
    assert apart.error == pytest.approx(0.5) and apart.times == 2.571
    assert scaling_figures.interval(5.0, [[5.0]]) == Figure(5.0) and Figure(5.0).low is None


def test_the_interval_of_a_ratio_adds_both_errors_and_that_of_a_size_with_itself_is_none():
    alone, other = Figure(4.0, 0.3, 2.0), Figure(6.0, 0.4, 3.0)
    assert other.over(alone, 0.5) == Figure(0.75, 0.5, 3.0)
    assert alone.over(alone) == Figure(1.0, 0.0)
    assert alone.over(Figure(2.0)) == Figure(2.0)


def test_figures_of_a_size_follow_from_its_iterations_without_the_first():
    one = scaling_figures.size("strong", 2, [case(2, [4.0, 6.0], games=100)])
    assert one.games_per_s.value == pytest.approx(200 / 10) and one.positions_per_s.value == pytest.approx(200)
    assert one.iteration_s.value == 5 and (one.num_iterations, one.cores, one.num_hosts) == (2, 2, 1)
    parts = {
        "play": 2.5,
        "tail": 0.5,
        "exchange": 0.25,
        "training": 0.75,
        "sums": 0.25,
        "broadcast": 0.1,
        "write": 0.15,
    }
    assert one.terms == pytest.approx(parts | {"rest": 0.5})
    assert one.used["core_hours"] == pytest.approx(2 * 10 / 3600 / 200 * 1000)
    assert one.used["sent_bytes_per_s"] == pytest.approx(2 * 1500 / 10)
    assert one.used["opened_per_s"] == pytest.approx(2 * 2 / 10) and one.used["opened_at_start"] == 11
    assert one.used["processor_load"] == pytest.approx(0.5) and not one.is_crowded
    assert one.used["kilojoules"] is None and one.used["written_bytes_per_s"] is None


def test_energy_and_bytes_are_those_that_hosts_tell():
    measured = case(2, [4.0, 6.0], games=100)
    joules, written = (measured_rank.COLUMNS.index(name) for name in ("joules", "written_bytes"))
    for rank in measured["ranks"]:
        for k, values in enumerate(rank["columns"]):
            values[joules] = [0.0, 40.0, 100.0][k] if rank["rank"] == 0 else None  # the host's first rank tells it
            values[written] = 1000 * k
    used = scaling_figures.size("strong", 2, [measured]).used
    assert used["kilojoules"] == pytest.approx(10 * 10 / 200)  # 10 W for 10 s and 200 games: 0.5 J a game
    assert used["written_bytes_per_s"] == pytest.approx(2 * 2000 / 10)


def test_ranks_are_crowded_if_they_share_cores_that_are_busy():
    busy, waiting = (scaling_figures.size("weak", 4, [case(4, [4.0] * 3, load=x, num_cores=2)]) for x in (0.45, 0.1))
    assert busy.cores == waiting.cores == 2 and busy.used["processor_load"] == pytest.approx(0.9)
    assert busy.is_crowded and not waiting.is_crowded


def test_ranks_without_samples_count_for_cores_and_hosts():
    """256 ranks on 8 hosts, of which every second one and the first of each host write samples."""
    measured = case(256, [4.0, 6.0], load=0.9, joules=None)
    joules = measured_rank.COLUMNS.index("joules")
    for rank in measured["ranks"]:
        number = rank["rank"]
        rank |= {"host": f"node{number // 32}", "cores": [number % 32], "num_cores": 32}
        for k, values in enumerate(rank["columns"]):
            values[joules] = 100.0 * k if number % 32 == 0 else None
        if number % 2:
            rank["columns"] = []
    older = measured | {"ranks": measured["ranks"][::2]}
    for found in (measured, older):
        one = scaling_figures.size("strong", 256, [found])
        assert (one.cores, one.num_hosts, one.is_crowded) == (256, 8, False)
        assert one.used["processor_load"] == pytest.approx(0.9) and one.used["opened_at_start"] == 11
        assert one.used["kilojoules"] == pytest.approx(8 * 200 / 200)
    for rank in measured["ranks"]:
        rank |= {"cores": [rank["rank"] % 16], "num_cores": 16}
    assert [scaling_figures.size("strong", 256, [found]).cores for found in (measured, older)] == [128, 128]


@pytest.mark.parametrize(("number", "local", "samples"), [(4, 1, True), (5, 0, True), (5, 1, False)])
def test_each_rank_tells_where_it_runs_and_some_what_they_use(number, local, samples, tmp_path):
    """measured_rank with a run that only shows its help."""
    words = [sys.executable, "-m", "az_mpi.plan.measured_rank", str(tmp_path), "1", "2", "--help"]
    mine = {"OMPI_COMM_WORLD_RANK": f"{number}", "OMPI_COMM_WORLD_LOCAL_RANK": f"{local}"}
    subprocess.run(words, env=os.environ | mine, stdout=subprocess.DEVNULL, check=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "samples").mkdir()
    path = tmp_path / f"rank-0000{number}.jsonl"
    path.rename(tmp_path / "samples" / path.name)
    [rank] = scaling_runs.read(tmp_path)["ranks"]
    assert rank["rank"] == number and len(rank["cores"]) == 1 and ("at_start" in rank) == samples


def test_the_smallest_size_counts_for_both_kinds():
    strong, weak = (scaling_figures.sizes(CASES, kind, 1) for kind in ("strong", "weak"))
    assert [one.num_ranks for one in strong] == [one.num_ranks for one in weak] == [1, 2, 4]
    assert strong[0].games_per_s == weak[0].games_per_s and strong[0].num_repeats == 2
    assert scaling_figures.sizes({"strong-1-1": CASES["strong-1-1"]}, "weak", 1) == []
    efficiencies = [[scaling_report.efficiency(one, sizes[0]).value for one in sizes] for sizes in (strong, weak)]
    assert efficiencies == [pytest.approx([1, 0.8, 0.5]), pytest.approx([1, 0.8, 0.5])]


def test_useful_ranks_are_the_most_above_the_wanted_efficiency():
    """T = 8 / N + 1: the efficiency is 9 / (8 + N), which is 0.5 on 10 ranks."""
    sizes = [scaling_figures.size("strong", n, [case(n, [8 / n + 1] * 3)]) for n in (1, 2, 4, 8)]
    model = scaling_model.model(sizes)
    assert model.coefficients == pytest.approx([8, 1, 0, 0], abs=1e-6)
    assert model.efficiency(10) == pytest.approx((0.5, 0.5, 0.5))
    useful = model.useful(0.5)
    assert 9 <= useful.num_ranks <= 10 and not useful.is_beyond and (useful.low, useful.high) == (useful.num_ranks,) * 2
    assert model.useful(0.01).is_beyond and model.useful(0.01).num_ranks <= 32
    assert scaling_model.model(sizes[:1]) is None


def test_the_interval_of_useful_ranks_is_wider_where_sizes_vary():
    vary = [
        scaling_figures.size("strong", n, [case(n, [x * (8 / n + 1) for x in (0.9, 1, 1.1)])]) for n in (1, 2, 4, 8)
    ]
    useful = scaling_model.model(vary).useful(0.5)
    assert useful.low < useful.num_ranks < useful.high


def test_losses_are_what_terms_take_beyond_their_share_of_the_smallest_size():
    sizes = scaling_figures.sizes(CASES, "strong", 1)
    lost = dict(scaling_model.losses(sizes))
    # 4 ranks: every term takes half of its seconds on one rank, and a quarter would be its share.
    assert lost["play"] == pytest.approx((0.5 * 4 - 0.5 * 8 / 4) / 4) and sum(lost.values()) == pytest.approx(0.5)
    assert list(lost)[0] == "play"
    assert set(scaling_model.CURES) == set(scaling_figures.TERMS)


@pytest.fixture
def written(tmp_path):
    """Return the folder of a report of STATE."""
    paths = scaling_report.write(tmp_path, STATE, 0.7)
    assert paths[-1].name == "scaling.html"
    return tmp_path


def test_a_stored_measurement_becomes_tables(written):
    rows = list(csv.DictReader(io.StringIO((written / "scaling.csv").read_text())))
    assert [(row["scaling"], row["ranks"]) for row in rows] == [(k, n) for k in ("strong", "weak") for n in "124"]
    assert [float(row["efficiency"]) for row in rows] == [1, 0.8, 0.5] * 2
    assert float(rows[2]["play_s"]) == pytest.approx(2.0) and rows[0]["kilojoules"] == ""
    text = (written / "scaling.md").read_text()
    assert "| 4 | 1 | 4 | 2 in 1 run |" in text and "## Weak scaling" in text
    assert "<one>" not in (written / "scaling.html").read_text()


def test_the_page_loads_nothing_and_says_what_to_change(written):
    page = (written / "scaling.html").read_text()
    assert "http" not in page.replace("http://www.w3.org", "") and page.count("<figure") == 4
    assert "up to 2 ranks" in page and scaling_model.CURES["play"] in page.replace("&#x27;", "'")


def test_pictures_are_whole_files_of_their_own(written):
    for name in ("scaling", "time"):
        root = ElementTree.parse(written / f"{name}.svg").getroot()
        assert "var(" not in (written / f"{name}.svg").read_text() and float(root.attrib["width"]) > 800
        data = (written / f"{name}.pdf").read_bytes()
        start = int(re.search(rb"startxref\n(\d+)", data)[1])
        assert data[start:].startswith(b"xref\n0 5\n")
        for number, place in enumerate(re.findall(rb"^(\d{10}) 00000 n", data[start:], re.MULTILINE), 1):
            assert data[int(place) :].startswith(b"%d 0 obj" % number)


def test_a_pdf_has_the_lines_areas_and_texts_of_its_picture():
    series = [chart.Series("a (b)", [0, 1], [0.5, 1.0], [0.4, 0.9], [0.6, 1.0])]
    svg = picture("Title", [Plot("Plot", chart.plot("x", "y", series, limits=(0, 1)))])
    packed = re.search(rb"stream\n(.*)\nendstream", pdf.pdf(svg), re.DOTALL)[1]
    content = zlib.decompress(packed).decode("cp1252")
    texts = re.findall(r"\((.*?)\) Tj", content)
    assert {"Title", "Plot", "x", "y", "0.4", r"a \(b\)"} <= set(texts)
    assert content.count("q\n") == content.count("Q\n") + content.endswith("Q") and "/S0 gs" in content
    assert " c f" in content and "-1 0 0 1" not in content


def test_axes_of_doublings_show_the_numbers_themselves():
    body, names = chart.plot("ranks", "games/s", [chart.Series("a", [0, 5], [3, 6])], doubling="xy")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", body)
    assert [text for text in texts if text.isdigit()] == ["8", "16", "32", "64", "1", "2", "4", "8", "16", "32"]
    assert "a, 32: 64" in body and names == {0: "a"}


def test_samples_are_read_between_two_on_a_straight_line():
    samples = [[10.0, 1.0, None], [20.0, 3.0, 5.0]]
    assert scaling_runs.at(samples, 15.0) == [15.0, 2.0, None]
    assert scaling_runs.at(samples, 5.0) == samples[0] and scaling_runs.at(samples, 25.0) == samples[1]


def test_energy_counts_on_where_its_counter_begins_again(tmp_path):
    place = tmp_path / "intel-rapl:0"
    place.mkdir()
    for name, text in {"name": "package-0", "max_energy_range_uj": "1000000", "energy_uj": "900000"}.items():
        (place / name).write_text(text)
    core = tmp_path / "intel-rapl:0:0"
    core.mkdir()
    (core / "name").write_text("core")  # a part of the package
    energy = measured_rank.Energy(tmp_path)
    (place / "energy_uj").write_text("100000")
    assert energy.joules() == pytest.approx(0.2)
    assert measured_rank.Energy(tmp_path / "nothing").joules() is None


def test_a_rank_samples_what_its_process_uses(tmp_path):
    sampler = measured_rank.Sampler(local_rank=1)
    before = sampler.sample()
    (tmp_path / "a").write_text("b")
    after = dict(zip(measured_rank.COLUMNS, sampler.sample()))
    assert after["opened"] > before[measured_rank.COLUMNS.index("opened")] and after["joules"] is None
    assert after["cpu_s"] > 0 and after["resident_bytes"] > 2**20


@pytest.fixture
def words(tmp_path):
    """Return a valid command line, without --logdir."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"game": "tictactoe", "selfplay": {"num_games": 60}, "train": {"batch_size": 32}}))
    return ["--config_file", str(file), "--ranks", "1,2,4", "--cores", "1"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--ranks", "4"],
        ["--ranks", "1,x"],
        ["--ranks", "0,1"],
        ["--kinds", "strange"],
        ["--minutes", "0"],
        ["--efficiency", "1.5"],
        ["--set", "no.such_key=1"],
        ["--hosts", "node1:2"],  # four ranks do not fit
        ["--config_file", "missing.json"],
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(wrong, words, tmp_path):
    with pytest.raises(Refusal):
        scaling.main([*words, *wrong, "--logdir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.fixture
def measure(monkeypatch):
    """Replace the jobs; return the names of the cases that were measured."""
    done = []

    def measured(runs, one):
        done.append(one.name)
        return case(one.num_ranks, [8.0 / one.num_ranks] * 3)

    monkeypatch.setattr(scaling_runs.Runs, "try_largest", lambda runs: done.append("try"))
    monkeypatch.setattr(scaling_runs.Runs, "measure", measured)
    return done


def test_sizes_that_are_complete_are_not_run_again(words, tmp_path, measure, capsys):
    folder = ["--logdir", str(tmp_path / "out")]
    assert scaling.main([*words, *folder, "--repeats", "1"]) == 0
    assert measure == ["try", "strong-1-1", "strong-2-1", "strong-4-1", "weak-2-1", "weak-4-1"]
    assert "5 jobs left" in capsys.readouterr().err
    scaling.main([*words, *folder, "--repeats", "1", "--minutes", "9"])
    assert len(measure) == 6
    scaling.main([*words, *folder, "--repeats", "1", "--ranks", "1,2,4,8"])
    assert measure[6:] == ["try", "strong-8-1", "weak-8-1"]
    assert Path(capsys.readouterr().out.splitlines()[-1]).name == "scaling.html"


@pytest.mark.parametrize("change", [["--set", "search.simulations=3"], ["--cores", "2"], ["--ranks", "2,4"]])
def test_a_folder_of_another_scaling_is_refused(change, words, tmp_path, measure):
    folder = ["--logdir", str(tmp_path / "out"), "--repeats", "1"]
    scaling.main([*words, *folder])
    before = (tmp_path / "out/scaling.json").read_bytes()
    with pytest.raises(Refusal, match="holds a scaling"):
        scaling.main([*words, *folder, *change])
    assert (tmp_path / "out/scaling.json").read_bytes() == before


def test_a_folder_of_something_else_is_refused(words, tmp_path, measure):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("")
    with pytest.raises(Refusal, match="something else"):
        scaling.main([*words, "--logdir", str(tmp_path / "out")])
    assert measure == []


def test_games_and_batch_grow_with_the_ranks_in_weak_scaling_alone(words, tmp_path):
    given = scaling.parser().parse_args([*words, "--logdir", str(tmp_path / "out")])
    runs = scaling_runs.Runs(given, scaling.variants.read_one(given.config_file, []))
    strong, weak = (runs.settings(scaling_runs.Case(kind, 4, 1))[:2] for kind in ("strong", "weak"))
    assert strong == ["selfplay.num_games=60", "train.batch_size=32"]
    assert weak == ["selfplay.num_games=240", "train.batch_size=128"]


@pytest.mark.parametrize(
    "listed, ranks, cores",
    [
        ("node1:32,node2:32", "2,4,8", 8),
        ("node1:32,node2:32", "2,32", 2),
        ("node1:32,node2:32", "2,64", 2),
        ("node1:2,node2:32", "2,8", 10),  # six ranks on the second host
        ("node1,node2", "1,2", 64),
        (None, "1,16", 4),
    ],
)
def test_cores_by_default_are_those_of_a_host_divided_by_its_ranks_at_the_largest_size(
    listed, ranks, cores, words, tmp_path, monkeypatch
):
    monkeypatch.setattr(scaling_runs.os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    words = [*words[:2], "--ranks", ranks, "--logdir", str(tmp_path / "out"), *(["--hosts", listed] if listed else [])]
    given = scaling.parser().parse_args(words)
    assert scaling_runs.Runs(given, scaling.variants.read_one(given.config_file, [])).cores == cores


def test_the_largest_size_is_tried_as_it_will_be_measured(words, tmp_path, monkeypatch):
    """With strong scaling the batch does not grow with the ranks, which 64 ranks cannot share if it has 32 samples."""
    tried = []
    for kinds in ("weak", "strong,weak"):
        given = scaling.parser().parse_args([*words, "--ranks", "1,64", "--logdir", str(tmp_path), "--kinds", kinds])
        runs = scaling_runs.Runs(given, scaling.variants.read_one(given.config_file, []))
        monkeypatch.setattr(runs, "_run", lambda case, settings: tried.append(settings[1]))
        (tmp_path / "jobs" / f"{kinds.split(',')[0]}-64-0").mkdir(parents=True)
        runs.try_largest()
    assert tried == ["train.batch_size=2048", "train.batch_size=32"]


def test_a_job_that_ended_before_its_third_iteration_is_refused(words, tmp_path, monkeypatch):
    given = scaling.parser().parse_args([*words, "--logdir", str(tmp_path / "out")])
    runs = scaling_runs.Runs(given, scaling.variants.read_one(given.config_file, []))
    monkeypatch.setattr(runs, "_run", lambda *what: None)
    monkeypatch.setattr(scaling_runs, "read", lambda place: case(1, [3.0]))
    with pytest.raises(Refusal, match="ended after 2 iterations"):
        runs.measure(scaling_runs.Case("strong", 1, 1))


def test_a_job_that_has_measured_enough_gets_usr2_once(tmp_path):
    program = "trap 'echo told; exit 75' USR2; echo {}; while :; do sleep 0.05; done"
    asked = []
    ended = mpi_job.run_child(["bash", "-c", program], tmp_path / "log", lambda: asked.append(1) or len(asked) > 2)
    assert (ended.status, ended.output.split(), ended.result) == (75, ["{}", "told"], {}) and len(asked) == 3


def test_intervals_of_the_model_come_from_the_same_draws_each_time():
    sizes = [scaling_figures.size("weak", n, [case(n, [5, 5.5, 6])]) for n in (1, 2, 4)]
    one, other = scaling_model.model(sizes), scaling_model.model(sizes)
    np.testing.assert_array_equal(one.draws, other.draws)


SIGNALLED_IN_A_FORK = """
import os, signal, sys
from az_mpi.core.signals import handling
from az_mpi.launch import mpi_job

def ask_to_stop():
    os.kill(os.getpid(), signal.SIGUSR2)
    for _ in range(1000):
        pass

def leave(*_):
    raise SystemExit(75)

os.register_at_fork(after_in_parent=ask_to_stop)
with handling({signal.SIGUSR2: leave}):
    mpi_job.run_child(["sleep", "300"])
"""


@pytest.mark.process
def test_a_signal_that_comes_while_a_job_is_started_is_not_lost():
    """Python drops what a handler raises in a function that runs at a fork, such as one of the module `random`."""
    done = subprocess.run([sys.executable, "-c", SIGNALLED_IN_A_FORK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (75, "")
