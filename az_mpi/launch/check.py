"""A check of every host before a job: does it answer, does it have the same programs, does it see the run's folder?"""

import ipaddress
import json
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from az_mpi.core import files, host_facts, room
from az_mpi.core.files import parse_json
from az_mpi.core.host_facts import HostFacts
from az_mpi.core.host_names import is_here
from az_mpi.core.printing import counted
from az_mpi.core.problems import NotNow, Refusal, escape
from az_mpi.launch import host_probe, mpi_job, mpirun
from az_mpi.launch.hosts import Host
from az_mpi.launch.mpirun import JobSpec, Mpirun, Networks
from az_mpi.mpi import cores
from az_mpi.storage import run_folder

ANSWER_S = 30  # that a host has to answer, unless --timeout says otherwise
AT_ONCE = 64  # so many hosts are asked at the same time
ANSWER_BYTES_MAX = 2**20
FILES_SHOWN = 4
SAY_EVERY_S = 10  # that hosts are waited for
Answers = dict[str | None, dict[str, Any]]  # by host's name; None: this machine
Shell = Callable[[str, list[str]], list[str]]  # (host's name, words) -> the command that runs words there


class Problem(NamedTuple):
    """What is wrong with a host, and how to fix it."""

    host: str
    message: str
    cure: str


def check(
    hosts: Sequence[Host], mpirun: Mpirun, logdir: str | Path, shell: Shell, timeout_s: float, gpus: bool = False
) -> Answers:
    """Return {host's name: its answer} of the Hosts; None stands for this machine, which is asked as well. An answer is
    what `host_probe.look` returns, with the HostFacts as "facts".

    logdir: the run's folder, which need not exist. gpus: whether each host must have a GPU for each slot. Raises
    Refusal, which lists every problem.
    """
    answers, problems = ask(hosts, mpirun, logdir, shell, timeout_s, gpus)
    if problems:
        raise Refusal(block(problems))
    return answers


def ask(
    hosts: Sequence[Host],
    mpirun: Mpirun,
    logdir: str | Path,
    shell: Shell,
    timeout_s: float,
    gpus: bool = False,
    end: str | None = None,
) -> tuple[Answers, list[Problem]]:
    """Return (answers as `check` does, Problems). Raises Refusal if the run's folder cannot be used.

    end: id of a launch whose ranks are killed wherever they are found, see `host_probe.LAUNCH`.
    """
    checkout = str(Path(__file__).resolve().parents[2])
    with token(logdir) as seen:
        asked = {
            "checkout": checkout,
            "cwd": os.getcwd(),
            "mpirun": mpirun.path,
            "token": seen,
            "gpus": gpus,
            "end": end,
        }
        own = {host.name for host in hosts if is_here(host.name)}
        names = [None, *(host.name for host in hosts if host.name not in own)]
        answers, problems = ask_each(names, asked, shell, timeout_s)
    here = answers.get(None)
    if here is None:  # nothing to compare with
        return {}, problems
    answers |= dict.fromkeys(own, here)
    for host in hosts:
        if host.name in answers:
            problems += [Problem(host.name, *found) for found in compare(here, answers[host.name], asked, host.slots)]
    problems += same_machine(hosts, answers)
    return answers, problems


def ssh(timeout_s: float) -> Shell:
    """Return a function (host's name, words) -> the command that runs words there over ssh, without any prompt."""

    def command(name, words):
        options = ["-x", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, int(timeout_s))}"]
        return ["ssh", *options, "--", name, shlex.join(words)]

    return command


@contextmanager
def token(logdir: str | Path) -> Iterator[tuple[str, str]]:
    """A context manager: within its block the run's folder, or the nearest one above it that exists, holds a file.
    Gives (its path, its content). A host that reads the same content there sees the same folder."""
    folder = Path(os.path.abspath(logdir))
    try:
        while not folder.is_dir():
            if folder.exists():
                raise Refusal(f"--logdir {escape(str(logdir))}: {escape(str(folder))} is not a folder")
            folder = folder.parent
        path = folder / f".az_mpi-{secrets.token_hex(8)}.tmp"  # if it is left, a run removes it
        text = secrets.token_hex(16)
        files.create(path, text.encode())
    except OSError as error:
        kind = NotNow if files.passes(error) and run_folder.holds_run(logdir) else Refusal
        raise kind(f"--logdir {escape(str(logdir))}: {folder} cannot be written to: {error.strerror}") from error
    try:
        yield str(path), text
    finally:
        with suppress(OSError):
            path.unlink()


def ask_each(
    names: Sequence[str | None], asked: dict[str, Any], shell: Shell, timeout_s: float
) -> tuple[Answers, list[Problem]]:
    """Ask hosts, AT_ONCE at a time and each for at most timeout_s; return ({name: answer}, Problems)."""
    answers, problems = {}, []
    waiting, running = list(names), {}
    text = "\n".join(
        [
            *(Path(module.__file__).read_text() for module in (host_facts, host_probe)),
            f"asked = json.loads({json.dumps(asked)!r})",
            'answer(HostFacts.look(asked["checkout"]).to_dict(), asked)',
            "",
        ]
    )
    say_at = time.monotonic() + SAY_EVERY_S
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                name = waiting.pop(0)
                running[name] = _Probe(name, text, shell, time.monotonic() + timeout_s)
            for name, probe in list(running.items()):
                if probe.ended():
                    del running[name]
                    answer, found = probe.outcome(timeout_s)
                    if found:
                        problems.append(found)
                    else:
                        answers[name] = answer
            if running and time.monotonic() >= say_at:
                mpi_job.say(f"waiting for {len(waiting) + len(running)} of {len(names)} machines")
                say_at += SAY_EVERY_S
            time.sleep(0.02)
    finally:
        for probe in running.values():
            probe.kill()
    return answers, problems


class _Probe:
    """The program of `host_probe`, running on one host. name: the host's, None for this machine."""

    def __init__(self, name: str | None, text: str, shell: Shell, deadline: float):
        self.name = name
        self.deadline = deadline
        self.output = files.in_memory()
        self.errors = files.in_memory()
        words = [sys.executable, "-"]
        with files.in_memory() as program:
            program.write(text.encode())
            program.seek(0)
            # In /, so that no file of the current folder is taken for a module.
            where, words = ("/", words) if name is None else (None, shell(name, words))
            try:
                self.process = subprocess.Popen(words, stdin=program, stdout=self.output, stderr=self.errors, cwd=where)
            except FileNotFoundError as error:
                raise Refusal(NO_SSH if words[0] == "ssh" else f"{words[0]}: {error.strerror}") from error

    def ended(self):
        return self.process.poll() is not None or time.monotonic() > self.deadline

    def kill(self):
        self.process.kill()
        self.process.wait()

    def outcome(self, timeout_s):
        """Return (answer, None) or (None, Problem)."""
        if self.process.poll() is None:
            self.kill()
            return None, Problem(
                self.name or "this machine",
                f"did not answer within {timeout_s:g} s",
                _try(self.name) + "; for a slow host or file system start launch with a longer --timeout",
            )
        for line in _text(self.output).splitlines():
            if line.startswith(host_probe.MARK):
                try:
                    answer = parse_json(line[len(host_probe.MARK) :])
                    return answer | {"facts": HostFacts(**answer["facts"])}, None
                except (ValueError, TypeError, KeyError):
                    break
        return None, explain(self.name, self.process.returncode, _text(self.errors))


def _text(file):
    file.seek(0)
    return file.read(ANSWER_BYTES_MAX).decode(errors="replace")


def _try(name):
    return f"try: ssh {name} true" if name else "try to run this Python"


NO_SSH = """\
launch: ssh is not on PATH: launch checks the other hosts and starts ranks there with it; nothing was started
  apt install openssh-client here, and openssh-server on the other hosts
  without ssh: --rendezvous needs only a folder that all nodes share; in a Slurm job --no_check needs neither"""
CURES = {  # words of ssh or of the remote shell -> the cure
    "Could not resolve": "fix the name, or add it to DNS or to /etc/hosts",
    "Name or service not known": "fix the name, or add it to DNS or to /etc/hosts",
    "Connection refused": "no sshd listens there: start it; without ssh, use --rendezvous",
    "No route to host": "is the host up, the address right, the firewall open?",
    "timed out": "is the host up, the address right, the firewall open?",
    "Permission denied": "a key is missing: ssh-copy-id {name} (once)",
    "HOST IDENTIFICATION HAS CHANGED": "if you know why its key has changed: ssh-keygen -R {name}",
    "Host key verification failed": "its key is not known here: ssh {name} true, and answer yes (once)",
}


def explain(name: str | None, status: int, errors: str) -> Problem:
    """Return the Problem of a host whose probe ended with `status` and the words `errors`, without an answer."""
    last = escape(([line.strip() for line in errors.splitlines() if line.strip()] or ["(it said nothing)"])[-1])
    for words, cure in CURES.items():
        if status == 255 and words in errors:
            return Problem(name, last, cure.format(name=name))
    if status in (126, 127):
        return Problem(
            name or "this machine",
            f"cannot run {sys.executable}: {last}",
            "the checkout and its .venv "
            "have to be there under the same path: share the file system, or install there as here",
        )
    return Problem(name or "this machine", f"its check failed with status {status}: {last}", _try(name))


def compare(
    here: dict[str, Any], there: dict[str, Any], asked: dict[str, Any], slots: int
) -> Iterator[tuple[str, str]]:
    """Yield (what is wrong, cure): for each difference between the answers of this machine and of a host that a job
    cannot have, and for each thing that the host lacks."""
    ours, theirs = here["facts"], there["facts"]
    checkout = asked["checkout"]
    same = "install the same on every host, or share one .venv"
    pairs = {
        "python": (theirs.python, ours.python),
        "machine": (theirs.machine, ours.machine),
        asked["mpirun"]: (there["mpirun"], here["mpirun"]),
    }
    pairs |= {name: (theirs.packages[name], ours.packages[name]) for name in host_facts.SAME_PACKAGES}
    if None in pairs["horovod"]:
        del pairs["horovod"]  # the run says so if it needs it, and can do without
    for what, (found, wanted) in pairs.items():
        if found != wanted:
            yield f"{what} is {_said(found)}, here {_said(wanted)}", same
    if ours.az_mpi != theirs.az_mpi:
        yield (
            f"az_mpi is {_said(theirs.az_mpi)} in {checkout}, here {ours.az_mpi}",
            ("the checkout must have the same path and content on every host"),
        )
    elif other := ours.sources.items() ^ theirs.sources.items():
        paths = sorted({path for path, _ in other})
        more = f" and {len(paths) - FILES_SHOWN} more" if len(paths) > FILES_SHOWN else ""
        yield (
            f"other sources in {checkout}: {', '.join(map(escape, paths[:FILES_SHOWN]))}{more}",
            ("share one checkout, or bring both to the same commit"),
        )
    if ours.uid != theirs.uid:
        yield (
            f"the numeric user id (uid) is {theirs.uid}, here {ours.uid}",
            ("files of one could not be read by the other: give the user the same id on every host"),
        )
    if not there["cwd"]:
        yield f"there is no folder {asked['cwd']}", "start from a folder that every host has, such as the checkout"
    if there["token"]:
        yield f"the run's folder: {there['token']}", "--logdir must lie on a file system that every host shares"
    if there["left"]:
        yield f"{there['left']} processes of the lost job cannot be killed", "is a file system stuck there?"
    if there["gpus"] is not None and there["gpus"] < slots:
        yield f"torch sees {counted(there['gpus'], 'GPU')} of {slots} (--gpus)", "ask for fewer, or leave this host out"
    if lack := room.lack_of_temporary(theirs, slots):
        yield lack


def same_machine(hosts: Iterable[Host], answers: Answers) -> Iterator[Problem]:
    """Yield a Problem for each host whose hostname an earlier one has, too: both are one machine, or two machines have
    the same name."""
    seen = {}
    for host in hosts:
        if host.name in answers:
            own = answers[host.name]["facts"].host
            if own in seen:
                yield Problem(
                    host.name,
                    f"calls itself {escape(own)}, and so does {seen[own]}",
                    "give one machine once, with all its slots; two machines need different hostnames",
                )
            seen.setdefault(own, host.name)


def block(problems: Sequence[Problem]) -> str:
    """Return Problems as text."""
    by_host = {}
    for problem in problems:
        by_host.setdefault(problem.host, []).append(problem)
    lines = [f"launch: {counted(len(by_host), 'host')} cannot take part; nothing was started"]
    for host, found in by_host.items():
        lines.append(f"  {host}:")
        for k, problem in enumerate(found):
            lines.append(f"    {problem.message}")
            if k + 1 == len(found) or found[k + 1].cure != problem.cure:
                lines.append(f"        {problem.cure}")
    return "\n".join(lines)


def fitted(job: JobSpec, answers: Answers) -> JobSpec:
    """Return the job with the number of threads that fits the answers of its hosts and with the networks that they
    share, unless it names its own."""
    names = [host.name for host in job.hosts]
    if job.threads is None:
        job = replace(job, threads=min(_cores_of_a_rank(answers[host.name]["facts"], host.slots) for host in job.hosts))
    is_only_here = len(names) == 1 and answers[names[0]] is answers[None]
    if is_only_here or job.networks != Networks():
        return job
    has_ranks_here = any(answers[name] is answers[None] for name in names)
    everyone = names if has_ranks_here else [None, *names]  # mpirun runs here in both cases
    return replace(job, networks=Networks(shared_networks(answers, everyone), shared_networks(answers, names)))


def _cores_of_a_rank(facts, num_ranks):
    """Return how many cores each rank of a host uses if it runs `num_ranks` of them."""
    everyone = [cores.Allowed(facts.host, facts.cores, facts.quotas)] * num_ranks
    return cores.share(everyone[0], everyone)


def checked_line(job: JobSpec, logdir: str | Path, no_check: bool) -> list[str]:
    """Return the command line of a job as it is `fitted` after a `check` of its hosts by ssh. One on a single host is
    not checked, and none is with `no_check`. Raises Refusal."""
    found = mpirun.find()
    if len(job.hosts) > 1 and not no_check:
        job = fitted(job, check(job.hosts, found, logdir, ssh(ANSWER_S), ANSWER_S))
    return mpirun.line(found, job)


def shared_networks(answers: Answers, names: Sequence[str | None]) -> tuple[str, ...]:
    """Return the networks that the hosts `names` share, in CIDR form; none if none is known.

    Networks in which two hosts have the same address, such as bridges of container engines, are left out.
    """
    shared = None
    for name in names:
        own = {network for _, network in answers[name]["facts"].networks}
        shared = own if shared is None else shared & own
    good = []
    for network in sorted(shared or ()):
        addresses = [address for name in names for address, of in answers[name]["facts"].networks if of == network]
        if len(set(addresses)) == len(addresses) and ipaddress.ip_network(network).prefixlen < 32:
            good.append(network)
    return tuple(good)


def _said(value):
    return "missing" if value is None else escape(str(value))
