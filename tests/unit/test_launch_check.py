"""The check of every host before a job: what is compared, how each problem is reported, and that no file is left."""

import copy
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from az_mpi import __version__
from az_mpi.core.host_facts import HostFacts
from az_mpi.core.problems import Refusal
from az_mpi.launch import check, host_probe, hosts
from az_mpi.launch.mpirun import JobSpec, Mpirun, Networks

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
MPIRUN = Mpirun(str(Path(sys.executable).parent / "mpirun"), "mpirun (Open MPI) 5.0.11", None)

# Stands in for ssh: hosts are this machine with one difference each, named by the host.
SSH = r"""#!/bin/bash
echo "$@" >> NOTES
while [ "$1" != -- ]; do shift; done
host=$2; shift 2
change="s/XXXX/XXXX/"
case $host in
    refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
    denied) echo "root@denied: Permission denied (publickey)." >&2; exit 255 ;;
    unknown) echo "ssh: Could not resolve hostname unknown: Name or service not known" >&2; exit 255 ;;
    newkey) printf 'No ED25519 host key is known for newkey\nHost key verification failed.\n' >&2; exit 255 ;;
    bare) set -- "/none/$*" ;;
    slow) exec sleep 100 ;;
    killed) kill -9 $$ ;;
    rude) printf 'Welcome\033[2J\a to \x9b1m rude\n'; exit 3 ;;
    silent) exit 0 ;;
    torch) change='s/"torch": "[^"]*"/"torch": "1.0\\u001b[2J"/' ;;
    python) change='s/"python": "[^"]*"/"python": "3.9.1"/' ;;
    mpi) change='s/(Open MPI) [0-9.]*/(Open MPI) 4.1.4/' ;;
    version) change='s/"az_mpi": "[^"]*"/"az_mpi": "0.0.9"/' ;;
    content) change='s/\("az_mpi\/loop.py": "\)....../\1ffffff/' ;;
    absent) change='s/"sources": {[^}]*}/"sources": {}/; s/"az_mpi": "[^"]*"/"az_mpi": null/' ;;
    elsewhere) change='s/"token": ""/"token": "another folder"/; s/"cwd": true/"cwd": false/' ;;
    lacking) change='s/"horovod": "[^"]*"/"horovod": null/' ;;
    alias) host=good ;;
esac
echo "a banner"
sh -c "$*" | sed -e "s/\"host\": \"[^\"]*\"/\"host\": \"$host\"/" -e "$change"
exit ${PIPESTATUS[0]}
"""


@pytest.fixture
def run_check(tmp_path, monkeypatch):
    """Return run_check(hosts, timeout_s=60): check.check over the stand-in for ssh. The file run_check.notes has the
    calls of that."""
    tools, runs = tmp_path / "tools", tmp_path / "runs"
    tools.mkdir()
    runs.mkdir()
    (tools / "ssh").write_text(SSH.replace("NOTES", str(tmp_path / "notes")))
    (tools / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def run(text, timeout_s=60):
        try:
            chosen, _ = hosts.choose(hosts.parse(text))
            return check.check(chosen, MPIRUN, runs / "a" / "b", check.ssh(timeout_s), timeout_s)
        finally:
            assert list(runs.iterdir()) == [], "the token, or a run's folder, is left"

    run.notes = tmp_path / "notes"
    return run


def test_hosts_that_answer_alike_pass_and_horovod_may_be_missing(run_check):
    answers = run_check(
        "good:2,better:1,lacking:1,localhost:1"
    )  # the last but one lacks Horovod; the run itself refuses that if it needs it
    assert {name: answer["facts"].host for name, answer in answers.items() if name in ("good", "better")} == {
        "good": "good",
        "better": "better",
    }
    here = answers[None]
    assert answers["localhost"] is here and here["token"] == "" and here["cwd"] and here["facts"].cores
    assert here["facts"] == HostFacts.look(ROOT) and "az_mpi/launch/check.py" in here["facts"].sources
    calls = run_check.notes.read_text().splitlines()
    assert len(calls) == 3 and all("BatchMode=yes" in call and "ConnectTimeout=60" in call for call in calls)


# host -> (a part of its problem, a part of its cure)
PROBLEMS = {
    "refused": ("Connection refused", "no sshd listens there"),
    "denied": ("Permission denied", "ssh-copy-id denied"),
    "unknown": ("Could not resolve hostname", "/etc/hosts"),
    "newkey": ("Host key verification failed", "ssh newkey true, and answer yes"),
    "bare": (f"cannot run {sys.executable}", "under the same path"),
    "killed": ("failed with status", "try: ssh killed true"),
    "rude": ("failed with status 3: (it said nothing)", "try: ssh rude true"),
    "silent": ("failed with status 0", "try: ssh silent true"),
    "torch": (r"torch is 1.0\u001b[2J, here ", "install the same on every host"),
    "python": ("python is 3.9.1, here 3.", "install the same on every host"),
    "mpi": ("mpirun is mpirun (Open MPI) 4.1.4, here mpirun (Open MPI) ", "install the same on every host"),
    "version": (f"az_mpi is 0.0.9 in {ROOT}, here {__version__}", "the same path and content"),
    "content": (f"other sources in {ROOT}: az_mpi/loop.py", "bring both to the same commit"),
    "absent": ("az_mpi is missing", "the same path and content"),
    "elsewhere": ("the run's folder: another folder", "a file system that every host shares"),
}


def test_every_problem_of_every_host_is_in_one_block_with_its_cure(run_check):
    """Each is under its host, whatever the order in which the hosts answer."""
    with pytest.raises(Refusal) as refused:
        run_check(",".join(["good", *PROBLEMS]))
    text = str(refused.value)
    assert text.startswith(f"launch: {len(PROBLEMS)} hosts cannot take part; nothing was started\n")
    assert all(line.isascii() and line.isprintable() for line in text.split("\n"))
    sections = dict(re.findall(r"^  (\S+):\n((?:    .*\n?)+)", text, re.MULTILINE))
    assert sections.keys() == PROBLEMS.keys()
    for host, (what, cure) in PROBLEMS.items():
        assert what in sections[host] and cure in sections[host], host


def test_a_host_that_does_not_answer_in_time_is_refused(run_check):
    with pytest.raises(Refusal, match="slow:\n    did not answer within 8 s\n        try: ssh slow true"):
        run_check("slow", timeout_s=8)


def test_one_machine_under_two_names_is_refused(run_check):
    with pytest.raises(Refusal, match="alias:\n    calls itself good, and so does good"):
        run_check("good,alias")


def test_a_run_folder_that_cannot_be_made_or_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match="file is not a folder"):
        with check.token(tmp_path / "file" / "run"):
            pass
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o555)
        with pytest.raises(Refusal, match="cannot be written to"):
            with check.token(tmp_path / "closed" / "run"):
                pass


def test_a_host_sees_the_run_folder_only_if_it_reads_the_launchers_token_there(tmp_path, monkeypatch):
    monkeypatch.setattr(host_probe, "PAUSE_S", 0.01)
    with check.token(tmp_path / "runs" / "a") as (path, text):
        assert Path(path).parent == tmp_path and host_probe._token(path, text) == ""
        assert "does not appear" in host_probe._token(path, "another")
        assert "does not appear" in host_probe._token(path + "x", text)
    assert "there is no folder" in host_probe._token(str(tmp_path / "none" / "x"), text)
    assert list(tmp_path.iterdir()) == []


def test_the_token_is_removed_when_the_launcher_is_stopped(tmp_path, run_check):
    command = [
        sys.executable,
        "-m",
        "az_mpi",
        "launch",
        "--hosts",
        "slow:1,good:1",
        "--",
        "--config_file",
        "configs/smoke.json",
        "--logdir",
        str(tmp_path / "runs/a"),
    ]
    process = subprocess.Popen(command, cwd=ROOT)
    while not (run_check.notes.exists() and "slow" in run_check.notes.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    assert len(list((tmp_path / "runs").iterdir())) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert list((tmp_path / "runs").iterdir()) == []


def answers_of(quotas=None, **networks):
    """Return answers of hosts with 8 cores. quotas: {group: cores} of each of them. networks: {host: its networks}."""
    return {
        name: {"facts": SimpleNamespace(host=name, networks=found, cores=list(range(8)), quotas=quotas or {})}
        for name, found in networks.items()
    }


LAN, BRIDGE, FAST = "10.0.0.0/24", "172.17.0.0/16", "192.168.5.0/24"


@pytest.mark.parametrize(
    "found, names, expected",
    [
        ({"a": [["10.0.0.1", LAN]], "b": [["10.0.0.2", LAN]]}, "ab", (LAN,)),
        # The bridge of a container engine has the same address everywhere: MPI must not try it.
        (
            {"a": [["10.0.0.1", LAN], ["172.17.0.1", BRIDGE]], "b": [["10.0.0.2", LAN], ["172.17.0.1", BRIDGE]]},
            "ab",
            (LAN,),
        ),
        (
            {
                "a": [["10.0.0.1", LAN], ["192.168.5.1", FAST]],
                "b": [["10.0.0.2", LAN], ["192.168.5.2", FAST]],
                "c": [["10.0.0.3", LAN]],
            },
            "ab",
            (LAN, FAST),
        ),
        (
            {
                "a": [["10.0.0.1", LAN], ["192.168.5.1", FAST]],
                "b": [["10.0.0.2", LAN], ["192.168.5.2", FAST]],
                "c": [["10.0.0.3", LAN]],
            },
            "abc",
            (LAN,),
        ),
        ({"a": [["10.0.0.1", LAN]], "b": [["192.168.5.2", FAST]]}, "ab", ()),
        ({"a": [["10.0.0.1", "10.0.0.1/32"]], "b": [["10.0.0.2", "10.0.0.2/32"]]}, "ab", ()),
        ({"a": [["10.0.0.1", LAN]], "b": []}, "ab", ()),
    ],
)
def test_shared_networks_are_those_in_which_all_hosts_have_different_addresses(found, names, expected):
    assert check.shared_networks(answers_of(**found), list(names)) == expected


def test_threads_are_the_cores_for_each_rank_of_the_host_with_the_fewest():
    answers = answers_of(a=[], b=[])
    answers[None] = answers["a"]
    for text, threads in (("a:2,b:3", 2), ("a:20,b:1", 1), ("a:4", 2)):
        assert check.fitted(JobSpec(["x"], hosts.parse(text), 1), answers).threads == threads
    assert check.fitted(JobSpec(["x"], hosts.parse("a:4"), 1, threads=7), answers).threads == 7  # the job's own


@pytest.mark.parametrize(
    "quotas, slots, threads", [({"g": 2.5}, 1, 2), ({"g": 20.0}, 1, 8), ({"g": 5.0, "h": 6}, 2, 2)]
)
def test_threads_are_no_more_than_a_quota_has_cores_for_each_rank(quotas, slots, threads):
    answers = answers_of(quotas, a=[])
    answers[None] = answers["a"]
    assert check.fitted(JobSpec(["x"], hosts.parse(f"a:{slots}"), slots), answers).threads == threads


def test_a_job_gets_the_networks_that_its_hosts_share_unless_it_names_its_own():
    """mpirun runs on "a", which has one of the two networks that "b" and "c" share."""
    answers = answers_of(
        a=[["10.0.0.1", LAN]],
        b=[["10.0.0.2", LAN], ["192.168.5.2", FAST]],
        c=[["10.0.0.3", LAN], ["192.168.5.3", FAST]],
    )
    answers[None] = answers["a"]
    job = JobSpec(["x"], hosts.parse("b:1,c:1"), 2)
    assert check.fitted(job, answers).networks == Networks(runtime=(LAN,), messages=(LAN, FAST))
    named = replace(job, networks=Networks.of_option("eth0"))
    assert check.fitted(named, answers).networks == Networks(("eth0",), ("eth0",), ("eth0",))
    assert Networks.of_option("10.0.0.0/24") == Networks((LAN,), (LAN,)), "NCCL and Gloo take names only"
    assert check.fitted(JobSpec(["x"], hosts.parse("a:2"), 2), answers).networks == Networks(), "one host, this one"


def test_a_host_with_fewer_gpus_than_slots_has_a_problem(run_check):
    here = run_check("localhost:1")[None]
    there = copy.deepcopy(here) | {"gpus": 1}
    asked = {"checkout": "", "cwd": "", "mpirun": ""}
    assert list(check.compare(here, there, asked, 1)) == []
    assert [found[0] for found in check.compare(here, there, asked, 4)] == ["torch sees 1 GPU of 4 (--gpus)"]


def test_the_wait_for_hosts_is_reported_with_their_number(run_check, capsys, monkeypatch):
    monkeypatch.setattr(check, "SAY_EVERY_S", 0.05)
    with pytest.raises(Refusal, match="did not answer within"):
        run_check("slow:1", timeout_s=2)
    said = re.findall(r"waiting for (\d+) of (\d+)", capsys.readouterr().err)
    assert said and all(0 < int(left) <= int(total) == 2 for left, total in said)


def test_a_machine_without_an_ssh_client_is_refused_unless_it_needs_none(run_check, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match="ssh is not on PATH") as refused:
        run_check("good:1,better:1")
    assert refused.value.status == 2 and "apt install openssh-client" in str(refused.value)
    assert "localhost" in run_check("localhost:1")  # which needs none
