"""The doctor as a process: what hangs or is killed, wrong options, and environments in which things are missing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from az_mpi.core.problems import Refusal
from az_mpi.doctor import command, folder

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def test_a_step_that_hangs_ends_the_process_and_is_named():
    program = "import time\nfrom az_mpi.doctor import job\nwith job.watch('waiting', limit_s=0.3): "
    hangs, ends = ([sys.executable, "-c", program + rest] for rest in ("time.sleep(60)", "0\ntime.sleep(1)"))
    done = subprocess.run(hangs, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1 and "waiting: no end after 0.3 s" in done.stderr and "btl_tcp_if_include" in done.stderr
    assert subprocess.run(ends, cwd=ROOT, timeout=50).returncode == 0


def test_files_of_the_doctor_are_removed_even_if_it_is_killed(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("")
    program = (
        "import os\nfrom az_mpi.doctor.scratch import removed_at_end\n"
        f"with removed_at_end({str(tmp_path / 'a/b')!r}, "
        f"[{str(tmp_path / 'a')!r}]):\n    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=50).returncode == -9
    folder.wait_for(lambda: not (tmp_path / "a").exists())
    assert tmp_path.exists()


@pytest.mark.parametrize(
    "options, said",
    [
        (["--jason"], "there is no option --jason; did you mean --json?"),
        (["--seconds", "0"], "no number above 0"),
        (["--seconds", "nan"], "no number above 0"),
        (["--logdir", ""], "the name is empty"),
        (["--set", "seed=1"], "give --config_file"),
        (["--config_file", "x.json", "--set", "seed"], "is not KEY=VALUE"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(Refusal, match=said):
        command.parse(options)


def test_values_of_set_are_json_or_words():
    options = command.parse(["--config_file", "x", "--set", "seed=3", "--set", "network.engine=uniform"])
    assert dict(options.set) == {"seed": 3, "network.engine": "uniform"}


def doctor(*options, **variables):
    """Run the doctor alone and return the finished process."""
    command = [sys.executable, "-m", "az_mpi", "doctor", *map(str, options)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=250)


def module(folder, name, text):
    """Make a folder with one made-up module, for PYTHONPATH."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    return str(folder)


def test_a_wrong_configuration_is_refused_before_anything_is_tried(tmp_path):
    done = doctor("--config_file", "configs/smoke.json", "--set", "train.batch_sice=3", "--logdir", tmp_path / "runs")
    assert done.returncode == 2 and "did you mean train.batch_size?" in done.stderr and done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_missing_horovod_and_a_read_only_folder_are_reported(tmp_path):
    path = module(tmp_path / "m", "horovod", "raise ImportError('made up')")
    done = doctor("--logdir", "/proc/runs", PYTHONPATH=path)
    said = " ".join(done.stdout.split())
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert "warning horovod cannot be imported on rank 0" in said and "ImportError: made up" in said
    assert "problem /proc/runs cannot be written to" in said and "cure: --logdir on a file system" in said
    assert "not tried, because of the problems above" in said
    assert said.endswith(" 1 problem: a run would not start here")


def test_without_mpi_and_torch_the_other_checks_are_still_made(tmp_path):
    module(tmp_path / "m", "torch", "raise OSError('libtorch.so: made up')")
    path = module(tmp_path / "m", "mpi4py", "raise ImportError('made up')")
    done = doctor("--json", "--logdir", tmp_path / "runs", PYTHONPATH=path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    made = json.loads(done.stdout)
    by_name = {check["name"]: check for check in made["checks"]}
    assert not made["would_start"] and by_name["mpi"]["level"] == by_name["torch"]["level"] == "problem"
    assert "MPI cannot be started: ImportError: made up" in by_name["mpi"]["text"]
    assert "libtorch.so: made up" in by_name["torch"]["text"]
    assert by_name["files"]["level"] == "ok" and made["folder"]["write_mb_per_s"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    "variables, said",
    [
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
            "2 ranks were started, MPI sees 1: the launcher is of another MPI",
        ),
        (
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"},
            "srun started 2 tasks, MPI sees one rank: each would be a job of its own srun --mpi=pmix joins them",
        ),
    ],
)
def test_the_first_rank_reports_a_launcher_of_another_mpi(variables, said):
    done = doctor("--logdir", "/proc/runs", **variables)
    assert done.returncode == 1 and said in " ".join(done.stdout.split())
