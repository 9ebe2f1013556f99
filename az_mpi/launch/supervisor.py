"""The supervisor of a training. After a loss it starts mpirun again on the hosts that answer, from the last commit. It
also stops and restarts the job when hosts have come back, or when its user asks."""

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
from az_mpi.launch.host_pool import LOOK_S, RETURN_MAX_S, HostPool
from az_mpi.launch.hosts import Host, parse, refuse_outside_job
from az_mpi.launch.outcome import Outcome, outcome, read
from az_mpi.launch.rendezvous.meeting import Meeting
from az_mpi.launch.request_files import RequestFiles
from az_mpi.launch.transport import Look, Ssh

RESTARTS_MAX = 10
STARTS_MAX = 3  # in a row, of a run that has never begun: it may be unable to
PAUSE_S, PAUSE_MAX_S = 5, 300  # before the second restart in a row, then doubled
ANSWER_S = 8  # for a host to answer while a run waits
TICK_S = 1.0
# Signals to a job that another one is to follow: (seconds after the decision, signal).
STOPS = ((0, signal.SIGUSR2), (120, signal.SIGTERM), (150, signal.SIGKILL))
# And to one that has lost a host, which mpirun may not notice.
ENDS = ((0, signal.SIGTERM), (30, signal.SIGKILL))


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
        self.options, self.program, self.folder, self.mpirun = options, program, Path(folder), found
        self.host_pool, self.transport, self.requests = host_pool, transport, RequestFiles(folder)
        self.id = secrets.token_hex(8)
        self.end = time.monotonic() + SHARE * 3600 * hours if hours else float("inf")
        self.there = {host.name for host in chosen}  # the names of hosts that answered when last asked
        self.chosen, self.np = host_pool.choose(self.there)
        self.began, self.node_lost, self.num_jobs, self.num_narrow = False, False, 0, 0
        self.request: dict[str, Any] | None = None  # of the user, not answered yet
        self.answer: dict[str, Any] | None = None
        self.published: dict[str, Any] | None = None
        self.look: Look | None = None
        self.up, self.before = False, {}  # whether the job has written a status; the status that was there before it
        self.committed = set()

    def run(self, answers: check.Answers | None) -> int:
        """Run jobs until the run ends, is stopped or given up, and return the exit status.

        answers: see `check.check`; None where hosts are not checked.
        """
        in_a_row = 0
        try:
            while True:
                before, ended = self.commits(), self.follow(answers)
                if (status := self.final(ended)) is not None:
                    return status
                self.up = False
                failed = ended.status == INTERNAL and not ended.lost and not self.changing
                in_a_row = 0 if self.commits() - before else in_a_row
                if not self.changing:
                    mpi_job.say(f"the job is lost (mpirun ended with status {self.ended.code}); asking the hosts")
                    in_a_row += 1
                while True:
                    most = self.options.max_restarts if self.began else min(self.options.max_restarts, STARTS_MAX)
                    if in_a_row > most:
                        mpi_job.say(
                            f"given up after {most} restarts in a row (--max_restarts); the same command goes on"
                        )
                        return INTERNAL if failed else RESUMABLE
                    if seconds := pause(in_a_row):
                        mpi_job.say(f"restart {in_a_row} of {most} in a row: waiting {seconds} s")
                    self.wait(seconds)
                    answers, missing = self.ask()
                    self.publish()
                    failed = failed and not missing
                    if failed:
                        return INTERNAL  # the program itself failed, and would fail again
                    if self.chosen:
                        break
                    in_a_row += 1
        except SystemExit:  # a signal that came while no job ran
            mpi_job.say("stopping; the same command goes on")
            raise
        finally:
            self.requests.close(self.id)

    def follow(self, answers: check.Answers | None) -> Outcome:
        """Run one job on the chosen hosts and return its Outcome."""
        job = mpirun.JobSpec(
            self.program,
            self.chosen,
            self.np,
            networks=mpirun.Networks.of_option(self.options.interface),
            agent=self.transport.agent,
            survive=self.options.survive,
            launch=self.id,
            num_restarts=self.num_jobs,
        )
        command = mpirun.line(self.mpirun, check.fitted(job, answers) if answers else job)
        mpi_job.tell(shlex.join(command), 1)
        self.changing, self.expired, self.node_lost, self.stops = False, False, False, []
        self.started = self.tick_at = time.monotonic()
        self.before, self.look_at, self.look = self.state(), self.started + LOOK_S, None
        self.num_jobs += 1
        if self.request:  # the job before this one was lost before it was granted
            self.consider(self.request)
        self.ended = mpi_job.follow(command, self.tick)
        if self.note():
            self.program = [word for word in self.program if word != "--fresh"]  # only the first job was to be fresh
        return outcome(self.ended.code, self.state(), self.before, self.ended.asked, self.ended.lost or self.node_lost)

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

    def final(self, ended: Outcome) -> int | None:
        """Return the exit status if no job is to follow the one with this Outcome, else None."""
        if ended.finished:
            return ended.status
        if self.ended.stopped or self.expired or time.monotonic() >= self.end:
            return RESUMABLE if ended.lost else ended.status
        if self.changing:
            return None
        # What was refused, and what did not even begin, would not begin the next time either.
        if ended.status in (USAGE, INTERRUPTED) or not (self.began or ended.lost or ended.status == KILLED):
            return ended.status
        return None

    def ask(self) -> tuple[check.Answers | None, list[str]]:
        """Choose hosts for the next job from those that answer, and kill the last job's processes on them. Return
        (their answers, the names of hosts of the last job that are missing)."""
        answers, problems = None, []
        present = self.transport.present(host.name for host in self.host_pool.wanted())
        wanted = [host for host in self.host_pool.wanted() if host.name in present]
        if not self.options.no_check:
            try:
                answers, problems = self.ask_hosts(wanted, self.id)
            except Refusal as error:
                mpi_job.say(str(error))
                answers = {}
        bad = {problem.host: problem.message for problem in problems}
        for name, message in bad.items():
            mpi_job.say(f"left out: {name}: {message}")
        before = self.there | {host.name for host in self.chosen}
        self.there = {name for name in present if (answers is None or name in answers) and name not in bad}
        names = {host.name for host in self.host_pool.wanted()}
        missing = [host.name for host in self.chosen if host.name in names - self.there]
        # Hosts that a look by itself took in, too: the next try is to wait. Not if the run's folder failed.
        self.host_pool.lose(missing if answers == {} else names & before - self.there)
        self.chosen, self.np = self.host_pool.choose(self.there)
        return answers, missing

    def ask_hosts(self, hosts: Sequence[Host], end: str | None = None) -> tuple[check.Answers, list[check.Problem]]:
        """Return what `check.ask` does, with the time for an answer that fits a run that waits."""
        timeout_s = self.options.timeout or ANSWER_S
        shell, gpus = self.transport.shell(timeout_s), bool(self.options.gpus)
        return check.ask(hosts, self.mpirun, self.folder, shell, timeout_s, gpus, end)

    def state(self) -> dict[str, Any]:
        """Return the run's status.json if a job of this launch wrote it, else {}."""
        return read(self.folder, self.id)

    def note(self) -> bool:
        """Return whether a job of this launch has ever begun."""
        self.began = self.began or bool(self.state())
        return self.began

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
        """Look after the job that runs; return the signals that mpirun is to get."""
        now, (signals, lost) = time.monotonic(), self.transport.poll({host.name for host in self.chosen})
        if signal.SIGUSR2 in signals:
            self.expired = True  # a node of the rendezvous asks for a stop
        if lost and not self.node_lost:
            self.node_lost, self.stops = True, [(now + after, number) for after, number in ENDS]
        if now < self.tick_at:
            return signals
        self.tick_at = now + TICK_S
        if now >= self.end and not self.expired:
            self.expired = True
            self.stop("max_hours is nearly over: stopping")
        if self.note() and not self.stops:
            self.look_after(now)
        if self.began:
            self.up = self.up or self.state() not in ({}, self.before)
            self.publish()
        due = [number for at, number in self.stops if now >= at]
        self.stops = [(at, number) for at, number in self.stops if now < at]
        return signals + due

    def stop(self, text: str) -> None:
        mpi_job.say(text)
        self.stops = [(time.monotonic() + after, number) for after, number in STOPS]

    def look_after(self, now: float) -> None:
        """Serve requests, and from time to time look for hosts that are not in the job."""
        if self.look:
            if not self.look.is_alive():
                look, self.look = self.look, None
                self.looked(*look.found)
        elif request := self.requests.take():
            self.consider(request)
        elif now >= self.look_at:
            self.look_at = now + LOOK_S
            self.host_pool.reread()
            names = self.transport.present(host.name for host in self.host_pool.wanted())
            absent = [
                host
                for host in self.host_pool.wanted()
                if host.name in names - self.there and self.host_pool.may_return(host.name)
            ]
            if absent and not self.options.no_check:
                self.look = Look(self.ask_hosts, absent)
            else:
                self.there |= {host.name for host in absent if self.transport.knows}
                self.rearrange()

    def looked(self, answers: check.Answers, problems: Sequence[check.Problem]) -> None:
        """Take in what hosts outside the job have answered."""
        self.there |= {name for name in answers if name is not None} - {problem.host for problem in problems}
        if not self.request:
            self.rearrange()
        elif problems:
            self.reply(USAGE, "\n".join(f"{host}: {message}\n    {cure}" for host, message, cure in problems))
        else:
            self.grant(self.request)

    def rearrange(self) -> None:
        """Restart if the available hosts are others than those of the job, or if the job has survived lost ranks (then
        not too often)."""
        hosts, np = self.host_pool.choose(self.there)
        ranks = self.state().get("ranks") if self.options.survive and self.up else None
        num_lost = self.np - len(ranks) if ranks else 0
        if hosts and (hosts, np) != (self.chosen, self.np):
            self.change(f"restarting on {shown(hosts)}")
        elif num_lost > 0 and time.monotonic() - self.started >= min(LOOK_S * 2**self.num_narrow, RETURN_MAX_S):
            self.num_narrow += 1
            self.change(f"{num_lost} of {self.np} ranks are lost: restarting with all")

    def change(self, text: str) -> None:
        self.changing = True
        self.stop(text)

    def consider(self, request: dict[str, Any]) -> None:
        """Check a user's request; grant it, or first look at the hosts that it names."""
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
            self.look = Look(self.ask_hosts, self.host_pool.with_slots(add))
        else:
            self.there |= {host.name for host in add}
            self.grant(request)

    def grant(self, request: dict[str, Any]) -> None:
        self.host_pool.change(parse(",".join(request["add"]), "--add") if request["add"] else [], request["remove"])
        hosts, np = self.host_pool.choose(self.there)
        if request["restart"] or (hosts, np) != (self.chosen, self.np):
            text = f"restarting on {shown(hosts)}: {counted(np, 'rank')}"
            self.change(f"as asked: {text}")
            self.reply(DONE, text)
        else:
            self.reply(DONE, f"no change for the job, which runs on {shown(self.chosen)}")

    def reply(self, status: int, text: str) -> None:
        self.answer = {"id": self.request["id"], "status": status, "text": text}
        self.request = None

    def publish(self) -> None:
        """Write what this launch does to RUN/launch.json, if that has changed."""
        names = {host.name for host in self.chosen}
        rows = [{"host": str(host), "state": "in the job" if self.up else "in the next job"} for host in self.chosen]
        rows += [
            {"host": str(host), "state": "spare" if host.name in self.there else "does not answer"}
            for host in self.host_pool.wanted()
            if host.name not in names
        ]
        content = {
            "id": self.id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "hosts": rows,
            "ranks": self.np,
            "up": self.up,
            "num_restarts": self.num_jobs - 1,
            "answer": self.answer,
        }
        if content != self.published:
            try:
                self.requests.publish(content)
                self.published = content
            except OSError:
                pass  # the next tick tries again


def pause(in_a_row: int) -> int:
    """Return the seconds to wait before a restart: none before the first in a row."""
    return min(PAUSE_S * 2 ** (in_a_row - 2), PAUSE_MAX_S) if in_a_row > 1 else 0


def shown(hosts: Iterable[Host]) -> str:
    return ",".join(map(str, hosts))
