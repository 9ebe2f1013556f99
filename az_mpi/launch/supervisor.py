"""The supervisor of a training. After a loss it starts mpirun again on the hosts that answer; the run then continues
from its last commit. It also stops and restarts the job when hosts have come back, or when its user asks for it."""

import os
import secrets
import shlex
import signal
import socket
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from az_mpi.core import files
from az_mpi.core.exit_codes import DONE, INTERNAL, INTERRUPTED, KILLED, RESUMABLE, USAGE
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal
from az_mpi.core.signals import SHARE
from az_mpi.launch import check, mpi_job, mpirun
from az_mpi.launch.host_pool import RETURN_MAX_S, SEARCH_EVERY_S, HostPool
from az_mpi.launch.hosts import Host, parse, refuse_outside_job
from az_mpi.launch.outcome import outcome, read
from az_mpi.launch.rendezvous.meeting import Meeting
from az_mpi.launch.request_files import RequestFiles
from az_mpi.launch.supervised_job import ENDS, STOPS, SupervisedJob
from az_mpi.launch.transport import Question, Ssh

RESTARTS_MAX = 10
STARTS_MAX = 3  # restarts in a row of a run that has never begun: it may be unable to
PAUSE_S, PAUSE_MAX_S = 5, 300  # before the second restart in a row; then it doubles, up to the second number
ANSWER_S = 8  # that a host has to answer while a run waits, at most
TICK_S = 1.0


class Supervisor:
    """Runs the jobs of one launch, one after the other. `run` is its whole life.

    options: of launch. program: the words that start run_dist.py. folder: the run's. found: the Mpirun. chosen: the
    Hosts of `host_pool` that were checked. hours: of all jobs together, 0 for no limit. transport: a Ssh or a Meeting.
    """

    def __init__(
        self,
        options: Namespace,
        program: list[str],
        folder: str | Path,
        found: mpirun.Mpirun,
        host_pool: HostPool,
        chosen: Sequence[Host],
        hours: float,
        transport: Ssh | Meeting,
    ):
        self.options = options
        self.program = program
        self.folder = Path(folder)
        self.mpirun = found
        self.host_pool = host_pool
        self.transport = transport
        self.requests = RequestFiles(folder)
        self.id = secrets.token_hex(8)
        self.end = time.monotonic() + SHARE * 3600 * hours if hours else float("inf")
        self.answering = {host.name for host in chosen}  # the names of hosts that answered when they were last asked
        self.chosen, self.np = host_pool.choose(self.answering)  # the hosts and ranks of this job, or of the next one
        self.job: SupervisedJob | None = None  # that runs now
        self.num_jobs = 0
        self.num_in_a_row = 0  # restarts since the run's last progress
        self.num_narrow = 0  # restarts because ranks were lost that the job survived
        self.has_begun = False  # whether any job has written a status
        self.committed: set[str] = set()  # names of files, when they could be read last
        self.request: dict[str, Any] | None = None  # of the user, not answered yet
        self.answer: dict[str, Any] | None = None  # to the user's newest request
        self.published: dict[str, Any] | None = None

    def run(self, answers: check.Answers | None) -> int:
        """Run jobs until the run ends, is stopped or given up, and return the exit status.

        answers: see `check.check`; None where hosts are not checked.
        """
        try:
            while True:
                committed = self.commits()
                job = self.follow(answers)
                if (status := self.final(job)) is not None:
                    return status
                if self.commits() - committed:
                    self.num_in_a_row = 0
                if not job.is_changing:
                    text = (
                        f"the job was lost (mpirun ended with status {job.ended.code}); asking the hosts which of them "
                    )
                    mpi_job.say(f"{text}are available")
                    self.num_in_a_row += 1
                status, answers = self.prepare(job)
                if status is not None:
                    return status
        except SystemExit:  # a signal that came while no job ran
            mpi_job.say("stopping; the same command resumes the run")
            raise
        finally:
            self.requests.close(self.id)

    def follow(self, answers: check.Answers | None) -> SupervisedJob:
        """Run one job on the chosen hosts and return it once it has ended."""
        spec = mpirun.JobSpec(
            self.program,
            self.chosen,
            self.np,
            networks=mpirun.Networks.of_option(self.options.interface),
            agent=self.transport.agent,
            survive=self.options.survive,
            launch=self.id,
            num_restarts=self.num_jobs,
        )
        command = mpirun.line(self.mpirun, check.fitted(spec, answers) if answers else spec)
        mpi_job.tell(shlex.join(command), 1)
        now = time.monotonic()
        self.job = job = SupervisedJob(self.state(), started=now, tick_at=now, search_at=now + SEARCH_EVERY_S)
        self.num_jobs += 1
        if self.request:  # the job before this one was lost before it was granted
            self.consider(self.request)
        job.ended = mpi_job.follow(command, self.tick)
        if self.note():
            self.program = [word for word in self.program if word != "--fresh"]  # only the first job was to be fresh
        lost = job.ended.lost or job.has_lost_node
        job.outcome = outcome(job.ended.code, self.state(), job.status_before, job.ended.asked, lost)
        self.job = None
        return job

    def final(self, job: SupervisedJob) -> int | None:
        """Return the exit status if no job is to follow this one, which has ended, else None."""
        found = job.outcome
        if found.finished:
            return found.status
        if job.ended.stopped or job.is_last or time.monotonic() >= self.end:
            return RESUMABLE if found.lost else found.status
        if job.is_changing:
            return None
        # What was refused, and what did not even begin, would not begin the next time either.
        if found.status in (USAGE, INTERRUPTED) or not (self.has_begun or found.lost or found.status == KILLED):
            return found.status
        return None

    def prepare(self, job: SupervisedJob) -> tuple[int | None, check.Answers | None]:
        """Wait after a job that has ended, and ask hosts until some answer: the next one is to run there. Return (the
        exit status if the run is given up, else None; the hosts' answers as for `run`)."""
        # The program itself has failed, unless a host turns out to be missing.
        has_failed = job.outcome.status == INTERNAL and not job.outcome.lost and not job.is_changing
        while True:
            most = self.options.max_restarts if self.has_begun else min(self.options.max_restarts, STARTS_MAX)
            if self.num_in_a_row > most:
                mpi_job.say(
                    f"given up after {most} restarts in a row (--max_restarts); the same command resumes the run"
                )
                return INTERNAL if has_failed else RESUMABLE, None
            if seconds := pause(self.num_in_a_row):
                mpi_job.say(f"restart {self.num_in_a_row} of {most} in a row: waiting {seconds} s")
            self.wait(seconds)
            answers, missing = self.ask()
            self.publish()
            has_failed = has_failed and not missing
            if has_failed:
                return INTERNAL, None  # it would fail again
            if self.chosen:
                return None, answers
            self.num_in_a_row += 1

    def wait(self, seconds: float) -> None:
        """Let time pass between two jobs, unless a node of the rendezvous asks for a stop."""
        until = time.monotonic() + seconds
        while True:
            signals, _ = self.transport.poll(set())
            if signal.SIGUSR2 in signals:
                raise SystemExit(RESUMABLE)
            if (left_s := until - time.monotonic()) <= 0:
                return
            time.sleep(min(left_s, TICK_S))

    def ask(self) -> tuple[check.Answers | None, list[str]]:
        """Choose hosts for the next job from those that answer, and kill the last job's processes on them. Return
        (their answers, the names of hosts of the last job that are missing)."""
        wanted = {host.name: host for host in self.host_pool.wanted()}
        previously_used = {host.name for host in self.chosen}
        reachable = self.transport.present(wanted)
        answers, problems = None, []
        if not self.options.no_check:
            try:
                hosts = [host for name, host in wanted.items() if name in reachable]
                answers, problems = self.ask_hosts(hosts, self.id)
            except (Refusal, OSError) as error:  # OSError: this machine's disk or memory fails
                mpi_job.say(str(error))
                answers = {}
        rejected = {problem.host: problem.message for problem in problems}
        for name, message in rejected.items():
            mpi_job.say(f"left out: {name}: {message}")
        answered = reachable if answers is None else reachable & answers.keys()
        answered_before = self.answering
        self.answering = answered - rejected.keys()
        missing = [host.name for host in self.chosen if host.name in wanted and host.name not in self.answering]
        if answers == {}:  # the run's folder cannot be used, or this machine failed: hosts may be well
            self.host_pool.lose(missing)
        else:
            # Also hosts that answered while the last job ran, and do not any more: the next try with them is to wait.
            self.host_pool.lose(((previously_used | answered_before) & wanted.keys()) - self.answering)
        self.chosen, self.np = self.host_pool.choose(self.answering)
        return answers, missing

    def ask_hosts(self, hosts: Sequence[Host], end: str | None = None) -> tuple[check.Answers, list[check.Problem]]:
        """Return what `check.ask` does, with the time for an answer that fits a run that waits."""
        timeout_s = self.options.timeout or ANSWER_S
        # A run waits for the answers (end) before a restart. Without a host to continue on, it waits for a slow one as
        # long as its user allows; so do the search for lost hosts and a request of the user, beside the run.
        if end and self.chosen:
            timeout_s = min(timeout_s, ANSWER_S)
        shell = self.transport.shell(timeout_s)
        return check.ask(hosts, self.mpirun, self.folder, shell, timeout_s, bool(self.options.gpus), end)

    def state(self) -> dict[str, Any]:
        """Return the run's status.json if a job of this launch wrote it, else {}."""
        return read(self.folder, self.id)

    def note(self) -> bool:
        """Return whether a job of this launch has ever written a status."""
        self.has_begun = self.has_begun or bool(self.state())
        return self.has_begun

    def commits(self) -> set[str]:
        """Return the names of committed files; a job that adds to them has made progress. If the folder cannot be read
        now, those of the last time."""
        try:
            found = [name for folder in ("games", "checkpoints") for name in files.names(self.folder / folder)]
            self.committed = {name for name in found if name[0].isdigit()}
        except OSError:
            pass
        return self.committed

    def tick(self) -> list[signal.Signals]:
        """Supervise the job that runs; return the signals that mpirun is to get."""
        job = self.job
        now = time.monotonic()
        signals, has_lost_node = self.transport.poll({host.name for host in self.chosen})
        if signal.SIGUSR2 in signals:
            job.is_last = True  # a node of the rendezvous asks for a stop
        if has_lost_node and not job.has_lost_node:
            job.has_lost_node = True
            job.send(ENDS)
        if now < job.tick_at:
            return signals
        job.tick_at = now + TICK_S
        if now >= self.end and not job.is_last:
            job.is_last = True
            self.stop("max_hours is nearly over: stopping")
        if self.note() and not job.signals:
            self.look_after(now)
        if self.has_begun:
            job.has_told = job.has_told or self.state() not in ({}, job.status_before)
            self.publish()
        return signals + job.due(now)

    def stop(self, text: str) -> None:
        """Have the job stop cleanly, and end it by force if it does not. text: what is printed of it."""
        mpi_job.say(text)
        self.job.send(STOPS)

    def look_after(self, now: float) -> None:
        """Serve requests, and from time to time ask hosts that are not in the job."""
        job = self.job
        if job.question:
            if not job.question.is_alive():
                found = job.question.found
                job.question = None
                self.take_in(*found)
        elif request := self.requests.take():
            self.consider(request)
        elif now >= job.search_at:
            job.search_at = now + SEARCH_EVERY_S
            self.search()

    def search(self) -> None:
        """Ask the hosts that the job should use and does not use."""
        self.host_pool.reread()
        wanted = self.host_pool.wanted()
        reachable = self.transport.present(host.name for host in wanted)
        absent = [
            host for host in wanted if host.name in reachable - self.answering and self.host_pool.may_return(host.name)
        ]
        if absent and not self.options.no_check:
            self.job.question = Question(self.ask_hosts, absent)
            return
        if self.transport.knows:
            self.answering |= {host.name for host in absent}
        self.rearrange()

    def take_in(self, answers: check.Answers, problems: Sequence[check.Problem]) -> None:
        """Use what hosts that are not in the job have answered."""
        self.answering |= {name for name in answers if name is not None} - {problem.host for problem in problems}
        if not self.request:
            self.rearrange()
        elif problems:
            self.reply(USAGE, "\n".join(f"{host}: {message}\n    {cure}" for host, message, cure in problems))
        else:
            self.grant(self.request)

    def rearrange(self) -> None:
        """Restart if the available hosts are others than those of the job, or if the job has survived lost ranks (then
        not too often)."""
        hosts, np = self.host_pool.choose(self.answering)
        ranks = self.state().get("ranks") if self.options.survive and self.job.has_told else None
        num_lost = self.np - len(ranks) if ranks else 0
        pause_s = min(SEARCH_EVERY_S * 2**self.num_narrow, RETURN_MAX_S)
        if hosts and (hosts, np) != (self.chosen, self.np):
            self.change(f"restarting on {shown(hosts)}")
        elif num_lost > 0 and time.monotonic() - self.job.started >= pause_s:
            self.num_narrow += 1
            self.change(f"{num_lost} of {self.np} ranks are lost: restarting with all")

    def change(self, text: str) -> None:
        """Have the job stop, so that the next one runs otherwise. text: what is printed of it."""
        self.job.is_changing = True
        self.stop(text)

    def consider(self, request: dict[str, Any]) -> None:
        """Check a user's request; grant it, or first ask the hosts that it names."""
        if request.get("launch") != self.id:
            return  # meant for an earlier launch
        self.request = request
        try:
            add = parse(",".join(request["add"]), "--add") if request["add"] else []
            self.host_pool.check(add, request["remove"])
            if self.transport.agent is None:  # the daemons of a Slurm job start the ranks
                refuse_outside_job(add, os.environ)
        except Refusal as error:
            return self.reply(USAGE, str(error))
        if add and not self.options.no_check:
            self.job.question = Question(self.ask_hosts, self.host_pool.with_slots(add))
        else:
            self.answering |= {host.name for host in add}
            self.grant(request)

    def grant(self, request: dict[str, Any]) -> None:
        """Do what a user's request asks for, and answer it."""
        self.host_pool.change(parse(",".join(request["add"]), "--add") if request["add"] else [], request["remove"])
        hosts, np = self.host_pool.choose(self.answering)
        if request["restart"] or (hosts, np) != (self.chosen, self.np):
            text = f"restarting on {shown(hosts)}: {counted(np, 'rank')}"
            self.change(f"as asked: {text}")
            self.reply(DONE, text)
        else:
            self.reply(DONE, f"no change for the job, which runs on {shown(self.chosen)}")

    def reply(self, status: int, text: str) -> None:
        """Answer the user's request; `publish` shows the answer."""
        self.answer = {"id": self.request["id"], "status": status, "text": text}
        self.request = None

    def publish(self) -> None:
        """Write what this launch does to RUN/launch.json, if that has changed."""
        names = {host.name for host in self.chosen}
        up = self.job is not None and self.job.has_told
        rows = [{"host": str(host), "state": "in the job" if up else "in the next job"} for host in self.chosen]
        rows += [
            {"host": str(host), "state": "spare" if host.name in self.answering else "does not answer"}
            for host in self.host_pool.wanted()
            if host.name not in names
        ]
        content = {
            "id": self.id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "hosts": rows,
            "ranks": self.np,
            "up": up,
            "num_restarts": self.num_jobs - 1,
            "answer": self.answer,
        }
        if content != self.published:
            try:
                self.requests.publish(content)
                self.published = content
            except OSError:
                pass  # the next tick tries again


def pause(num_in_a_row: int) -> int:
    """Return the seconds to wait before a restart: none before the first in a row."""
    return min(PAUSE_S * 2 ** (num_in_a_row - 2), PAUSE_MAX_S) if num_in_a_row > 1 else 0


def shown(hosts: Iterable[Host]) -> str:
    return ",".join(map(str, hosts))
