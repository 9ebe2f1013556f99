"""Submitting jobs to the tests' Slurm, and waiting for them."""

import re
import time

# A requeued job is COMPLETING for a moment before it is PENDING again, so only these say that it will do no more.
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY")


class Queue:
    """The queue of a machine's Slurm; jobs are submitted from `folder`."""

    def __init__(self, machine, folder):
        self.machine, self.folder = machine, folder

    def sbatch(self, *words, **variables):
        """Run sbatch and return the finished process."""
        return self.machine.run("sbatch", *words, cwd=self.folder, **variables)

    def submit(self, *words, **variables):
        """Submit a job and return its id."""
        done = self.sbatch(*words, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(re.search(r"Submitted batch job (\d+)", done.stdout)[1])

    def facts(self, job):
        """Return what Slurm says about each part of a job (one, or a job array's tasks) as {name: text}, by job id."""
        done = self.machine.run("scontrol", "show", "job", "--oneliner", job)
        assert done.returncode == 0, done.stderr
        found = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in done.stdout.splitlines()]
        return sorted(found, key=lambda facts: int(facts["JobId"]))

    def wait(self, job, *states, seconds=200):
        """Wait until all parts of a job are in one of `states` (default: ended) and return their facts."""
        states = states or ENDED
        deadline = time.monotonic() + seconds
        while True:
            parts = self.facts(job)
            if all(part["JobState"] in states for part in parts):
                return parts
            if time.monotonic() > deadline:
                raise TimeoutError(f"{parts}\n{self.output(job)}")
            # The scheduler that starts heterogeneous jobs looks again only after something has changed.
            self.machine.run("scontrol", "update", "PartitionName=all", "State=UP")
            time.sleep(0.5)

    def wait_for_file(self, path, job, seconds=200):
        """Wait until a file is there, which a job makes."""
        deadline = time.monotonic() + seconds
        while not path.exists():
            ended = self.facts(job)[0]["JobState"] in ENDED
            if (ended or time.monotonic() > deadline) and not path.exists():
                raise TimeoutError(f"no {path}: {self.facts(job)}\n{self.output(job)}")
            time.sleep(0.2)

    def output(self, job):
        """Return what a job wrote: all its files, joined."""
        names = [f"*-{part['JobId']}.out" for part in self.facts(job)]
        return "".join(path.read_text() for name in names for path in self.folder.glob(name))

    def finish(self, *words, status=0, **variables):
        """Submit a job and wait for it to end with `status`; return its facts (of its first part) and its output."""
        job = self.submit(*words, **variables)
        parts, said = self.wait(job), self.output(job)
        assert {part["ExitCode"] for part in parts} == {f"{status}:0"}, f"{parts}\n{said}"
        return parts[0], said
