"""python -m az_mpi launch: the mpirun line, what is refused before any host is contacted, and signals to a job."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from az_mpi.__main__ import main as program
from az_mpi.core.problems import Refusal
from az_mpi.launch import hosts, launcher, mpi_job, mpirun

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
AFTER = ["--", "--config_file", str(ROOT / "configs/smoke.json")]


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    """Stand-ins for ssh and mpirun first on PATH, which note that they were called; return the file of notes."""
    tools, notes = tmp_path / "tools", tmp_path / "called"
    tools.mkdir()
    for name in ("ssh", "mpirun", "srun"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {notes}\nexit 255\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    return notes


def words_of(capsys, *options):
    """Return the mpirun line of --dry_run, as a list."""
    assert launcher.main([*options, "--dry_run", *AFTER]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return shlex.split(out)


def test_the_line_for_two_hosts_names_them_their_slots_and_the_network(capsys, recorder):
    words = words_of(capsys, "--hosts", "10.0.0.1:2,node2:2", "--interface", "eth0")
    beside = str(Path(sys.executable).parent)
    assert words[0] == f"{beside}/mpirun" and words[words.index("--prefix") + 1] == str(Path(beside).parent)
    assert words[words.index("-np") + 1] == "4" and words[words.index("-H") + 1] == "10.0.0.1:2,node2:2"
    assert words[words.index("prte_if_include") - 1 :][:3] == ["--prtemca", "prte_if_include", "eth0"]
    assert words[words.index("btl_tcp_if_include") + 1] == "eth0" and "NCCL_SOCKET_IFNAME=eth0" in words
    assert words[words.index("--bind-to") + 1] == "none"
    assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    assert words[-4:] == [sys.executable, str(ROOT / "run_dist.py"), *AFTER[1:]]
    assert not recorder.exists()


def test_a_variable_that_the_user_has_set_keeps_its_value_in_every_rank(capsys, monkeypatch):
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    words = words_of(capsys, "--hosts", "a:1,b:1", "--interface", "eth0")
    assert words[words.index("NCCL_SOCKET_IFNAME") - 1] == "-x" and "GLOO_SOCKET_IFNAME=eth0" in words


def test_ranks_get_the_users_pythonpath(capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/shared/me")
    words = words_of(capsys, "--hosts", "a:1,b:1")
    assert words[words.index("PYTHONPATH") - 1] == "-x"
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in words_of(capsys, "--hosts", "a:1,b:1")


@pytest.mark.parametrize("given, network", [("10.0.0.0/24", "10.0.0.0/24"), ("10.0.0.7/24", "10.0.0.0/24")])
def test_a_network_given_by_an_address_is_used_in_its_cidr_form_and_not_for_libraries(capsys, given, network):
    words = words_of(capsys, "--hosts", "a:1,b:1", "--interface", given)
    assert words.count(network) == 2 and not any("SOCKET" in word for word in words)


def test_hosts_of_a_hostfile_or_of_the_slurm_job_are_in_the_line(capsys, tmp_path, monkeypatch):
    (tmp_path / "hosts").write_text("n1 slots=4\nn2:4\nn3\n")
    words = words_of(capsys, "--hostfile", str(tmp_path / "hosts"), "--gpus", "4", "--nodes", "3", "--np", "10")
    assert words[words.index("-np") : words.index("-np") + 4] == ["-np", "10", "-H", "n1:4,n2:4,n3:4"]
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "3(x2)")
    assert "n1:3,n2:3" in words_of(capsys) and "n1:8,n2:8" in words_of(capsys, "--gpus", "8")


def test_the_line_for_this_machine_alone_has_no_prefix(capsys):
    words = words_of(capsys, "--np", "3")
    assert "--prefix" not in words and " -np 3 -H localhost:3 " in shlex.join(words)


def test_the_line_of_open_mpi_4_uses_its_names_of_parameters():
    four = mpirun.Mpirun("/opt/bin/mpirun", "mpirun (Open MPI) 4.1.4", None)
    networks = mpirun.Networks.of_option("eth0")
    job = mpirun.JobSpec(["x"], hosts.parse("a:1,b:1"), 2, networks=networks, agent="python -m agent")
    words = mpirun.line(four, job)
    text = shlex.join(words)
    assert "--mca oob_tcp_if_include eth0" in text and "--mca plm rsh --mca plm_rsh_agent 'python -m agent'" in text
    assert "--prefix" not in text and "prtemca" not in text


def test_survive_turns_ulfm_on_and_is_refused_by_open_mpi_4(capsys):
    words = words_of(capsys, "--np", "3", "--survive")
    assert words[words.index("--with-ft") + 1] == "ulfm" and "--with-ft" not in words_of(capsys, "--np", "3")
    four = mpirun.Mpirun("/opt/bin/mpirun", "mpirun (Open MPI) 4.1.4", None)
    with pytest.raises(Refusal, match="needs Open MPI 5"):
        mpirun.line(four, mpirun.JobSpec(["x"], hosts.parse("a:1"), 1, survive=True))


@pytest.mark.parametrize(
    "says, refused",
    [
        ("HYDRA build details:", True),
        ("mpirun (Open MPI) 3.1.2", True),
        ("", True),
        ("mpirun (Open MPI) 4.1.4", False),
        ("mpirun (Open MPI) 5.0.11", False),
    ],
)
def test_an_mpirun_of_another_mpi_is_refused(tmp_path, monkeypatch, says, refused):
    (tmp_path / "mpirun").write_text(f"#!/bin/sh\necho '{says}'\n")
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    if refused:
        with pytest.raises(Refusal, match="not of Open MPI 4 or 5"):
            mpirun.find()
    else:
        assert mpirun.find() == (str(tmp_path / "mpirun"), says, None)


def test_a_machine_without_mpirun_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match="there is no mpirun"):
        mpirun.find()


# Options of launch that it refuses, each with a part of the error. Bad lists of hosts are in test_hosts.py.
BAD_OPTIONS = [
    (["--host", "a:2"], "did you mean --hosts?"),
    (["--hostflie", "x"], "did you mean --hostfile?"),
    (["--config_file", "x.json"], "stands after --"),
    (["--learning_rate", "1"], "stands after --"),
    (["a:2"], "stands after --"),
    (["--hosts"], "--hosts"),
    (["--hosts", "a:2", "--hostfile", "f"], "give one of them"),
    (["--hosts", "a b"], "no host was contacted"),
    (["--hosts", ""], "no host was contacted"),
    (["--hosts=-oProxyCommand=touch pwned"], "no host's name"),
    (["--hosts", "$(touch pwned):2"], "no host was contacted"),
    (["--hosts", "a;touch pwned"], "no host was contacted"),
    (["--hosts", "a:2,a:2"], "twice"),
    (["--hostfile", "none.txt"], "cannot be read"),
    (["--hostfile", "."], "--hostfile"),
    (["--hostfile", ""], "cannot be read"),
    (["--hostfile", "/dev/zero"], "not a plain file"),
    (["--np"], "--np"),
    (["--np", "0"], "from 1"),
    (["--np", "-2"], "--np"),
    (["--np", "two"], "from 1"),
    (["--np", "1.5"], "from 1"),
    (["--np", "99999999999"], "from 1"),
    (["--np", ""], "from 1"),
    (["--np", "\u0664"], "from 1"),
    (["--np", "2", "--hosts", "a:1"], "the hosts have 1 slot"),
    (["--gpus", "0"], "from 1 to 1,024"),
    (["--gpus", "1025"], "from 1 to 1,024"),
    (["--gpus", "all"], "from 1 to 1,024"),
    (["--gpus", "2", "--hosts", "a:4"], "--gpus 2 asks for 2 ranks"),
    (["--nodes", "0"], "from 1 to 4,096"),
    (["--nodes", "2"], "the hosts are not known"),
    (["--nodes", "3", "--hosts", "a,b"], "only 2 hosts"),
    (["--interface", ""], "is no interface's name"),
    (["--interface=-x"], "is no interface's name"),
    (["--interface", "eth0;id"], "is no interface's name"),
    (["--interface", "eth0,eth1"], "is no interface's name"),
    (["--interface", "a" * 16], "is no interface's name"),
    (["--interface", "10.0.0.0/33"], "is no network"),
    (["--interface", "10.0.0/24"], "is no network"),
    (["--interface", "fe80::/10"], "is no network"),
    (["--interface", "/"], "is no network"),
    (["--timeout", "0"], "from 1 to 86,400"),
    (["--timeout", "inf"], "from 1"),
    (["--timeout", "-1"], "--timeout"),
    (["--num_nodes", "2"], "goes with --rendezvous"),
    (["--node_index", "0"], "goes with --rendezvous"),
    (["--rendezvous", "meet"], "--num_nodes and --node_index"),
    (["--rendezvous", "meet", "--num_nodes", "2"], "needs --node_index"),
    (["--rendezvous", "meet", "--num_nodes", "2", "--node_index", "2"], "from 0 to 1"),
    (["--rendezvous", "meet", "--num_nodes", "2", "--node_index", "-1"], "--node_index"),
    (["--rendezvous", "meet", "--num_nodes", "0", "--node_index", "0"], "from 1 to 4,096"),
    (["--rendezvous", "meet", "--num_nodes", "2", "--node_index", "x"], "from 0"),
    (["--rendezvous", "meet", "--num_nodes", "1", "--node_index", "0", "--hosts", "a:1"], "--hosts does not go with"),
    (["--rendezvous", "meet", "--num_nodes", "1", "--node_index", "0", "--dry_run"], "--dry_run does not go with"),
    (["--rendezvous", "none/meet", "--num_nodes", "1", "--node_index", "0"], "No such file"),
    (["--rendezvous", "/dev/null", "--num_nodes", "1", "--node_index", "0"], "Not a directory"),
    (["--rendezvous", "", "--num_nodes", "1", "--node_index", "0"], "mode"),
    (["--dry_run=yes"], "--dry_run"),
    (["--no_check", "--no_chek"], "did you mean --no_check?"),
]


@pytest.mark.parametrize("options, says", BAD_OPTIONS, ids=lambda value: ascii(value)[:60])
def test_bad_options_are_refused(options, says, recorder, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "here"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    start = time.monotonic()
    assert program(["launch", *options, *AFTER]) == 2
    assert time.monotonic() - start < 5
    out, error = capsys.readouterr()
    assert out == "" and says in error and "Traceback" not in error and error.isascii()
    assert list(folder.iterdir()) == [] and not recorder.exists()


@pytest.mark.parametrize(
    "after, says",
    [
        ([], "--config_file FILE is needed"),
        (["--"], "--config_file FILE is needed"),
        (["--", "--config_file", "none.json"], "none.json"),
        ([*AFTER, "--batch_sise", "3"], "did you mean --batch_size?"),
        ([*AFTER, "--set", "search.simulation=3"], "search.simulations"),
        ([*AFTER, "--batch_size", "-3"], "train.batch_size"),
    ],
)
def test_what_run_dist_would_refuse_is_refused_before_the_start(after, says, recorder, capsys):
    assert program(["launch", "--hosts", "node1:2", *after]) == 2
    out, error = capsys.readouterr()
    assert out == "" and says in error and not recorder.exists()


@pytest.mark.parametrize("options, says", [BAD_OPTIONS[0], *BAD_OPTIONS[7:12], BAD_OPTIONS[16], BAD_OPTIONS[36]])
def test_the_real_process_refuses_with_status_2_and_changes_nothing(options, says, recorder, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "az_mpi", "launch", *options, *AFTER],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (2, "") and says in done.stderr and "Traceback" not in done.stderr
    assert list(folder.iterdir()) == [] and not recorder.exists()


def test_help_is_that_of_launch_and_after_the_dashes_that_of_run_dist(capsys):
    with pytest.raises(SystemExit) as ended:
        program(["launch", "--help"])
    assert ended.value.code == 0 and "--rendezvous DIR" in capsys.readouterr().out
    assert program(["launch", "--", "--help"]) == 0 and "--config_file FILE" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--check_config"], ["--check_config", "--mode", "fit"]])
def test_a_check_of_a_configuration_is_not_supervised(recorder, monkeypatch, tmp_path, options):
    """It ends with 0 and leaves no status.json, by which a training would count as lost."""
    monkeypatch.setattr(mpirun, "find", lambda: mpirun.Mpirun("true", "mpirun (Open MPI) 5.0.11", None))
    words = [*AFTER, "--logdir", str(tmp_path / "run"), *options]
    assert launcher.main(["--np", "1", "--no_check", "--max_restarts", "0", *words]) == 0


# A job that notes its signals. USR2 ends it with status 75, like run_dist.py; it does not handle TERM.
NOTES = """
import signal, sys, time
path = sys.argv[1]
def note(number, frame):
    with open(path, "a") as file:
        file.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGUSR2 and len(sys.argv) == 2: sys.exit(75)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT): signal.signal(number, note)
open(path, "w").write("ready\\n")
while True: time.sleep(0.05)
"""
RUN = "import sys; from az_mpi.launch import mpi_job; sys.exit(mpi_job.run([sys.executable, '-c', *sys.argv[1:]]))"


@pytest.fixture
def noting(tmp_path):
    """Return start(*more) -> (job.run in a process of its own, a function that waits for the next note)."""
    started = []

    def start(*more):
        notes = tmp_path / f"notes{len(started)}"
        command = [sys.executable, "-c", RUN, NOTES, str(notes), *more]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        started.append(process)
        seen = []

        def note():
            while True:
                lines = notes.read_text().splitlines() if notes.exists() else []
                if len(lines) > len(seen):
                    seen.append(lines[len(seen)])
                    return seen[-1]
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.02)

        assert note() == "ready"
        return process, note

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_the_job_cleanly_with_status_75(hang_ups, noting, number):
    process, note = noting()
    process.send_signal(signal.SIGUSR1)
    assert note() == "SIGUSR1"
    process.send_signal(number)
    assert process.wait(30) == 75
    assert f"launch: {number.name}: stopping cleanly" in process.stderr.read()


def test_under_nohup_a_closed_terminal_does_not_stop_the_run(noting, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does; a child inherits it
    try:
        process, note = noting()
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    assert note() == "SIGUSR1"
    process.send_signal(signal.SIGTERM)
    assert note() == "SIGUSR2" and process.wait(30) == 75


def test_the_second_signal_ends_the_job_at_once(noting):
    process, note = noting("stubborn")
    process.send_signal(signal.SIGINT)
    assert note() == "SIGUSR2"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGTERM


def test_mpirun_ends_when_its_launcher_is_killed(noting, tmp_path):
    process, _ = noting()
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    process.kill()
    process.wait()
    for _ in range(300):
        try:
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("mpirun still runs")


@pytest.mark.parametrize("status", [0, 2, 70, 75])
def test_the_exit_status_is_that_of_mpirun(status):
    assert mpi_job.run([sys.executable, "-c", f"raise SystemExit({status})"]) == status
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    "words",
    [
        ("PRTE has lost communi", "cation with a remote daemon.\n"),
        ("vm: a rank ended before a", "ll had joined: the job ends\n"),
    ],
)
@pytest.mark.parametrize("status, expected", [(0, 70), (1, 1), (75, 75)])
def test_a_job_that_has_lost_a_host_or_rank_does_not_end_with_0(words, status, expected, capfd):
    """Open MPI 5.0.11 ends with status 0 where it has lost a host."""
    text = f"import os, time\nfor word in {words}: os.write(2, word.encode()); time.sleep(0.2)\nos._exit({status})"
    command = [sys.executable, "-c", text]
    assert mpi_job.run(command) == expected and mpi_job.follow(command) == (status, False, True, False)
    assert capfd.readouterr().err == 2 * "".join(words)


# A job that ends with a status once it has got so many signals.
ENDS = """
import pathlib, signal, sys, time
got, (path, number, status) = [], sys.argv[1:]
for name in (signal.SIGUSR2, signal.SIGTERM): signal.signal(name, lambda *_: got.append(1))
pathlib.Path(path).touch()
while len(got) < int(number): time.sleep(0.02)
sys.exit(int(status))
"""


@pytest.mark.parametrize("asked", [(), (signal.SIGUSR2,), (signal.SIGUSR2, signal.SIGTERM)])
@pytest.mark.parametrize("status", [140, 250, 137])
def test_a_job_that_is_stopped_before_it_begins_is_resumable(tmp_path, status, asked):
    """Open MPI 5.0.11 ends with 140 or 250 if USR2 comes while it starts, and with 137 if a rank was killed."""
    ready, left = tmp_path / "ready", list(asked)
    command = [sys.executable, "-c", ENDS, str(ready), str(len(asked)), str(status)]
    early = status != 137 and asked == (signal.SIGUSR2,)
    assert mpi_job.run(command, lambda: [left.pop(0)] if left and ready.exists() else []) == (75 if early else status)


def test_signals_that_tick_returns_are_sent_to_mpirun(tmp_path):
    asked = iter([[], [signal.SIGUSR1], [signal.SIGUSR2]])
    ready = tmp_path / "notes"

    def tick():
        return next(asked, ()) if ready.exists() and ready.read_text() else ()

    assert mpi_job.run([sys.executable, "-c", NOTES, str(ready)], tick) == 75
    assert ready.read_text().split() == ["ready", "SIGUSR1", "SIGUSR2"]


def test_the_printed_line_is_what_is_run(capfd, monkeypatch, tmp_path):
    """A program that prints its arguments takes mpirun's place."""
    show = f'exec {sys.executable} -c "import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(2)" "$@"\n'
    (tmp_path / "mpirun").write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "mpirun (Open MPI) 5.0" && exit\n{show}')
    (tmp_path / "mpirun").chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert launcher.main(["--np", "2", "--no_check", *AFTER, "--logdir", "a b'c"]) == 2
    line, shown = capfd.readouterr().out.strip().split("\n")
    assert shlex.split(line)[1:] == json.loads(shown) and json.loads(shown)[-1] == "a b'c"


def test_output_of_mpirun_is_passed_on_without_its_zero_bytes(capfd):
    """Open MPI ends each of its own messages with one."""
    text = "import os; os.write(2, b'one\\n\\0two\\n\\0'); os.write(1, b'out\\0\\n')"
    assert mpi_job.run([sys.executable, "-c", text]) == 0
    assert capfd.readouterr() == ("out\n", "one\ntwo\n")


# A job that prints lines and makes a file at its end, and a program that runs it as launch does.
PRINTS = "import sys, time\nfor k in range(200): print(k, flush=True); time.sleep(0.002)\nopen(sys.argv[1], 'w')"
OUTLIVED = "from az_mpi.core import printing; printing.prepare(); printing.outlive_output(); " + RUN


@pytest.mark.parametrize("redirection, status", [("| head -1", 141), (">/dev/full", 75), (">&- 2>&- <&-", 0)])
def test_a_job_continues_to_its_end_where_its_output_cannot_be_written(tmp_path, redirection, status):
    script = f'set -o pipefail; "$@" {redirection}'
    done = subprocess.run(
        ["bash", "-c", script, "bash", sys.executable, "-c", OUTLIVED, PRINTS, tmp_path / "end"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status and (tmp_path / "end").exists()
    assert done.stderr.count("\n") == bool(status) and "Traceback" not in done.stderr
