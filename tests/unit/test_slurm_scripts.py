"""slurm/common.sh after the end of mpirun, with stand-ins for mpirun and scontrol; tests/cluster has real ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SCRIPT = "source slurm/common.sh; run_dist --config_file configs/smoke.json --logdir run "


@pytest.fixture
def batch(tmp_path):
    """Return run(script, mpirun) -> (exit status, output): a batch script in tmp_path, whose mpirun is that script."""
    for name in ("az_mpi", "configs", "slurm"):
        (tmp_path / name).symlink_to(ROOT / name)
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "activate").write_text(f"PATH={tools}:$PATH")
    (tmp_path / "run").mkdir()

    def run(script, mpirun, **variables):
        for name, text in {"mpirun": mpirun, "scontrol": 'echo "scontrol $*"', "sleep": "exit 0"}.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        environment = {"PATH": "PYTHON:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "job", **variables}
        environment["PATH"] = environment["PATH"].replace("PYTHON", str(Path(sys.executable).parent))
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def says(job, start=2):
    return f"""echo '{json.dumps({"start": start, "job": job})}' >run/status.json"""


@pytest.mark.parametrize(
    "mpirun, expected",
    [
        (says("finished"), 0),
        (says("running"), 75),
        ("true", 75),
        ("rm run/status.json", 75),
        (says("finished") + "; exit 70", 70),
        (says("stopped") + "; exit 75", 75),
        ("exit 2", 2),
    ],
)
def test_the_script_ends_as_the_runs_record_says(batch, tmp_path, mpirun, expected):
    """An earlier start was finished, of a run that now has more to do."""
    subprocess.run(["sh", "-c", says("finished", start=1)], cwd=tmp_path, check=True)
    status, said = batch(SCRIPT, mpirun)
    assert status == expected and ("scontrol requeue 7" in said) == (expected == 75), said
    assert ("a node was lost" in said) == (expected == 75 and "75" not in mpirun)


def test_a_lost_node_counts_towards_the_cap(batch):
    status, said = batch(SCRIPT, "true", SLURM_RESTART_COUNT="3", REQUEUES_MAX="3")
    assert status == 75 and "not queued again after 3 times" in said and "scontrol" not in said


def test_a_job_that_is_queued_again_resumes_its_run(batch):
    script = SCRIPT + "--fresh --set 'game=go(size=5, komi=7)'"
    _, first = batch(script, 'echo "$*"; exit 75')
    _, again = batch(script, 'printf "<%s>" "$@"; exit 75', SLURM_RESTART_COUNT="1")
    assert "--fresh" in first and "--fresh" not in again and "<game=go(size=5, komi=7)>" in again


def test_the_program_is_that_of_the_folder_else_the_installed_command(batch, tmp_path):
    command = tmp_path / ".venv/bin/run_dist.py"
    command.write_text("#!/bin/sh\n")  # as `pip install` of a wheel makes it
    command.chmod(0o755)
    _, installed = batch(SCRIPT, 'echo "$*"; exit 75')
    (tmp_path / "run_dist.py").write_text("")
    _, checkout = batch(SCRIPT, 'echo "$*"; exit 75')
    assert f" python {command} --config_file" in installed and " python run_dist.py --config_file" in checkout


@pytest.mark.parametrize("options", ["--mode eval", "--mode selfplay", "--check_config", "--help_config", "--version"])
def test_what_does_not_train_leaves_no_status_and_is_done(batch, options):
    assert batch(SCRIPT + options, "true")[0] == 0


@pytest.mark.parametrize("words", ["--logdir ''", "--logdir=", "--logdir"])
def test_an_array_without_a_folder_is_refused(batch, words):
    status, said = batch(f"source slurm/array_seeds.sh {words}", "echo started", SLURM_ARRAY_TASK_ID="3")
    assert status == 2 and "the name is empty" in said and "started" not in said


def test_a_task_of_an_array_is_queued_again_alone(batch):
    """One of them has the number of the array, which means all of them."""
    _, said = batch(SCRIPT, "exit 75", SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID="3")
    assert "scontrol requeue 7_3\n" in said


def test_a_warning_before_mpirun_runs_does_not_end_the_script(batch):
    status, said = batch(f"source slurm/common.sh; kill -USR1 $$; {SCRIPT}", says("finished"))
    assert status == 0 and said.count("USR1 before mpirun was started") == 1


def test_a_job_of_another_mode_is_not_queued_again(batch):
    listens = "until grep -qE '^SigCgt:.*[2367abef]..$' /proc/$PPID/status; do /bin/sleep 0.05; done"
    told = f"trap 'exit 140' USR2; {listens}; kill -USR1 $PPID; while :; do /bin/sleep 0.05; done"
    status, said = batch(SCRIPT + "--mode eval", told)
    assert status == 140 and "requeue" not in said


@pytest.mark.parametrize("status, expected", [(140, 75), (250, 75), (137, 137)])
def test_a_stop_before_the_run_began_is_resumable(batch, status, expected):
    listens = "until grep -qE '^SigCgt:.*[2367abef]..$' /proc/$PPID/status; do /bin/sleep 0.05; done"  # to USR1
    told = f"trap 'exit {status}' USR2; {listens}; kill -USR1 $PPID; while :; do /bin/sleep 0.05; done"
    assert batch(SCRIPT, told)[0] == expected
    assert batch(SCRIPT, f"exit {status}")[0] == status  # nobody asked


def test_a_scaling_with_wrong_options_ends_and_is_not_queued_again(batch):
    """The script passes its options on, besides its own."""
    status, said = batch("source slurm/scaling.sh --config_file missing.json --ranks 1,2", "", SLURM_CPUS_PER_TASK="2")
    assert status == 2 and "missing.json" in said and "Traceback" not in said and "requeue" not in said, said


def test_a_scaling_that_is_asked_to_stop_is_queued_again(batch):
    """The script turns a warning of the time limit into USR2 to the command."""
    stop = "(until [ -e out/scaling.json ]; do command -p sleep 0.1; done; kill -USR1 $$) & "
    words = "--config_file configs/smoke.json --ranks 1,2 --logdir out"
    status, said = batch(f"{stop}source slurm/scaling.sh {words}", "command -p sleep 60")
    assert status == 75 and "scontrol requeue 7" in said, said
