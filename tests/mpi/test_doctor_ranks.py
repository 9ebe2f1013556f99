"""The doctor on real ranks: where a run would start, and where one of the ranks is broken."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from marks import slow

import az_mpi
from az_mpi.doctor import folder

pytestmark = pytest.mark.mpi

ROOT = Path(__file__).resolve().parents[2]
# Become the command that is meant for this rank.
BECOME = """\
import json, os, sys
command = json.loads(sys.argv[1 + int(os.environ["OMPI_COMM_WORLD_RANK"])])
os.execvp(command[0], command)
"""
DOCTOR = ["-m", "az_mpi", "doctor"]


@pytest.fixture
def different(mpirun):
    """Return run(prefix, *options, status=1): two ranks, the second one started by the command `prefix`."""

    def run(prefix, *options, status=1):
        usual = [str(word) for word in (sys.executable, *DOCTOR, *options)]
        commands = [json.dumps(usual), json.dumps([*map(str, prefix), *usual])]
        return mpirun(2, "-c", BECOME, *commands, status=status, fresh=True)

    return run


@pytest.fixture
def sees(tmp_path):
    """Return sees(name, text): a command prefix that gives a rank a made-up module."""

    def prefix(name, text):
        (tmp_path / "made_up" / name).mkdir(parents=True)
        (tmp_path / "made_up" / name / "__init__.py").write_text(text)
        return ["env", f"PYTHONPATH={tmp_path / 'made_up'}:{ROOT}"]

    return prefix


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("ranks", [slow(1), 2])
def test_doctor_ends_with_0_and_leaves_nothing_where_a_run_would_start(mpirun, tmp_path, ranks):
    done = mpirun(ranks, *DOCTOR, "--logdir", tmp_path / "new" / "runs")
    said = words(done.stdout)
    assert said.endswith("0 problems: a run would start here") and "problem " not in said
    for line in (
        "this job was started by mpirun",
        "Horovod's MPI is mpi4py's: one library is mapped",
        "every rank can write (fsync, rename, fsync",
        "a run starts: every rank played",
    ):
        assert line in said
    assert f": {ranks} rank" in said and done.stdout.count("Shared folder") == 1
    # All lines are in one stream: mpirun may join an unended line to the next line of another stream.
    assert "doctor: playing and training" in said and "doctor: " not in done.stderr
    if ranks == 2:
        assert "every rank has the same" in said and "every rank sees the files of all 2" in said
        assert "ranks 0-1 trained" in said
        assert "broadcast" in said and "MB/s in and out of the busiest rank" in said
    assert list(tmp_path.iterdir()) == []


def test_doctor_predicts_the_hours_of_a_configuration(mpirun, tmp_path):
    options = ["--config_file", "configs/smoke.json", "--set", "selfplay.num_games=2000", "--seconds", 0.5, "--json"]
    options += ["--set", "train.ranks=1"]
    done = mpirun(2, *DOCTOR, *options, "--logdir", tmp_path / "runs")
    made = json.loads(done.stdout)
    assert "doctor: playing and training" in done.stderr
    assert made["would_start"] and made["num_problems"] == 0 and list(tmp_path.iterdir()) == []
    said = made["prediction"]
    assert said["games_per_s"] == pytest.approx(sum(said["games_per_s_by_rank"]))
    assert min(said["games_per_s_by_rank"]) > 0
    assert 5 <= said["mean_length"] <= 9 and said["iterations"] == 2
    assert said["num_steps"] == pytest.approx(2000 * said["mean_length"] * 4 / 32)
    assert said["train_s"] == pytest.approx(said["num_steps"] * said["step_s"])
    assert said["hours"] == pytest.approx(2 * (said["play_s"] + said["train_s"]) / 3600)
    assert [rank["az_mpi"] for rank in made["ranks"]] == [az_mpi.__version__] * 2
    assert {"exchange", "folder", "versions"} <= made.keys()
    [start] = [check for check in made["checks"] if check["name"] == "start"]
    assert "rank 0 trained" in start["text"]


def test_doctor_reports_a_run_of_another_configuration_in_the_folder(mpirun, tmp_path):
    config = json.loads((ROOT / "configs/smoke.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"config": config | {"seed": 7}}))
    done = mpirun(1, *DOCTOR, "--config_file", "configs/smoke.json", "--logdir", tmp_path, status=1)
    assert "seed: 7 in the run, 1 now" in words(done.stdout) and len(list(tmp_path.iterdir())) == 1


def test_doctor_reports_a_rank_without_horovod_and_a_folder_that_cannot_be_written(different, sees):
    done = different(sees("horovod", "raise ImportError('made up')"), "--logdir", "/proc/runs")
    said = words(done.stdout)
    assert "warning horovod cannot be imported on rank 1" in said and "ImportError: made up" in said
    seen = done.stdout.partition("Libraries")[2]
    assert "ranks differ in horovod" in said and "! horovod" in done.stdout, seen
    assert "problem /proc/runs cannot be written to" in said
    assert "4 warnings, 1 problem" in said or "3 warnings, 1 problem" in said  # a busy machine is one more
    assert said.endswith("a run would not start here") and "Traceback" not in done.stdout + done.stderr


def test_doctor_marks_a_rank_of_another_version_and_tries_nothing_more(different, tmp_path):
    shutil.copytree(ROOT / "az_mpi", tmp_path / "other/az_mpi", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "other/az_mpi/__init__.py"
    path.write_text(path.read_text().replace(f'"{az_mpi.__version__}"', '"9.8.7"'))
    elsewhere = ["env", "-C", tmp_path / "other", f"PYTHONPATH={tmp_path / 'other'}"]
    done = different(elsewhere, "--logdir", tmp_path / "runs")
    rows = {line.split("  ")[1].strip(): line.split() for line in done.stdout.splitlines() if line.startswith("  ! ")}
    assert set(rows) == {"! az_mpi", "! sources"} and rows["! az_mpi"][2:] == [az_mpi.__version__, "9.8.7"]
    assert "problem ranks differ in az_mpi, sources" in words(done.stdout)
    assert "Shared folder" not in done.stdout and not (tmp_path / "runs").exists()


def test_a_rank_without_mpi_reports_that_itself(different, sees):
    done = different(sees("mpi4py", "raise ImportError('made up')"))
    assert "rank 1 on " in done.stderr and "MPI cannot be started: ImportError: made up" in done.stderr


def test_the_first_rank_reports_where_no_rank_has_mpi(mpirun, sees, monkeypatch, tmp_path):
    prefix = sees("mpi4py", "raise ImportError('made up')")
    done = mpirun(
        1,
        "-c",
        "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])",
        *prefix,
        sys.executable,
        *DOCTOR,
        "--logdir",
        tmp_path / "runs",
        status=1,
        fresh=True,
    )
    said = words(done.stdout)
    assert "problem MPI cannot be started: ImportError: made up" in said and "would not start here" in said
    assert [path.name for path in tmp_path.iterdir()] == ["made_up"]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A folder of its own for temporary files, so that what is left there shows."""
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    return tmp_path / "t"


OPENVINO = """
from unittest.mock import MagicMock
__version__, Model, opset15 = "1.0", MagicMock(), MagicMock()
"""  # it describes every network, and has no Core


def test_a_rank_that_fails_in_the_doctors_trial_ends_the_job_with_its_reason(scratch, different, sees, tmp_path):
    done = different(sees("openvino", OPENVINO), "--logdir", tmp_path / "runs")
    assert "the trial fails on rank 1 on " in done.stderr and "AttributeError" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "runs").exists()
    folder.wait_for(lambda: not list(scratch.glob("doctor-*")))  # it raises where they stay


def can_mount():
    done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True)
    return done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare") or not can_mount(), reason="mounts need root")
@pytest.mark.parametrize(
    "rank, script, said",
    [
        (1, 'hostname node9; mount -t tmpfs none "$0"; exec "$@"', "problem rank 1 on node9 does not see the folder"),
        (0, 'mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"; exec "$@"', "written to: Read-only file system"),
    ],
)
def test_doctor_reports_ranks_that_do_not_share_a_folder_or_cannot_write(different, tmp_path, rank, script, said):
    prefix = ["unshare", "--mount", "--uts", "sh", "-c", script, tmp_path]
    if rank == 0:  # root is the one that makes the folder
        prefix = [*prefix, sys.executable, *DOCTOR, "--logdir", tmp_path / "runs"]
        done = subprocess.run(list(map(str, prefix)), cwd=ROOT, capture_output=True, text=True, timeout=240)
        assert done.returncode == 1, done.stderr
    else:
        done = different(prefix, "--logdir", tmp_path / "runs")
    assert said in words(done.stdout) and "would not start here" in done.stdout and list(tmp_path.iterdir()) == []
