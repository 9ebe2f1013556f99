"""Starts the jobs of a comparison with mpirun: trainings, measurements and matches."""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from az_mpi import games
from az_mpi.core.exit_codes import DONE, RESUMABLE
from az_mpi.core.problems import Refusal
from az_mpi.evaluate.evaluation import opponent_names
from az_mpi.launch import check, hosts, mpi_job, mpirun
from az_mpi.plan.variants import Variant

OPENING_PLIES = 4  # of matches: Connect Four has 49 openings of 2 plies, so half of 200 games would be repetitions


class Jobs:
    """Each method starts one job and waits for its end. It raises Refusal, with the end of the job's output, if the job
    fails. The output of all jobs is in FOLDER/jobs.log."""

    def __init__(self, where: Namespace, folder: Path):
        """where: the options of `hosts.add_options`, and the games and simulations of measurements."""
        self.where = where
        self.folder = folder
        self.log = folder / "jobs.log"

    def num_ranks(self) -> int:
        """Return how many ranks each job has. Raises Refusal if the hosts are given wrongly."""
        return self._hosts()[1]

    def train(
        self, variant: Variant, run: Path, seed: int, settings: Sequence[str], least_s: float = 0.0
    ) -> tuple[float, bool]:
        """Start or resume a training; return (seconds that it took, whether it is complete). Also raises Refusal if it
        ended after less than least_s seconds without being complete, because of a full disk, for example."""
        words = ["--config_file", str(variant.file), "--logdir", str(run)]
        begun = time.monotonic()
        seed += variant.config.seed - 1
        status = self._run(self._launch(words, [*variant.settings, f"seed={seed}", *settings])).status
        took = time.monotonic() - begun
        if status == RESUMABLE and took < least_s:
            raise Refusal(
                f"{run.name} stopped after {took:.0f} s; the reason is at the end of {self.log}\n"
                "  the same command continues from here"
            )
        return took, status == DONE

    def measure(self, variant: Variant, run: Path) -> dict[str, Any]:
        """Return what `--mode eval` finds: matches against opponents other than the run's own best network, and the
        exact solver's judgement."""
        names = [name for name in opponent_names(variant.config, games.make(variant.config.game)) if name != "best"]
        settings = [
            f"evaluate.opponents={json.dumps(names)}",
            f"evaluate.num_games={self.where.games}",
            f"evaluate.simulations={self.where.simulations}",
        ]
        return self._result(self._launch(["--mode", "eval", "--logdir", str(run)], settings))

    def match(self, first: Path, second: Path) -> dict[str, Any]:
        """Return the result of a match of two runs' newest networks, for the first one."""
        program = [
            sys.executable,
            "-m",
            "az_mpi",
            "match",
            str(first),
            str(second),
            "--games",
            str(self.where.games),
            "--simulations",
            str(self.where.simulations),
            "--opening_plies",
            str(OPENING_PLIES),
            "--json",
        ]
        job = mpirun.JobSpec(program, *self._hosts())
        return self._result(check.checked_line(job, self.folder, self.where.no_check))

    def _hosts(self):
        return hosts.choose(hosts.listed(self.where), np=self.where.np)

    def _launch(self, words, settings):
        """Return the command that starts run_dist.py with `words` and with --set for each of `settings`."""
        sets = [word for setting in settings for word in ("--set", setting)]
        return [sys.executable, "-m", "az_mpi", "launch", *hosts.words(self.where), "--", *words, *sets]

    def _run(self, command):
        """Run a job and return its `Child`. Raises Refusal unless it is done, or stopped at max_hours."""
        ended = mpi_job.run_child(command, self.log)
        if ended.status not in (DONE, RESUMABLE):
            raise Refusal(
                f"a job ended with status {ended.status}: {' '.join(command)}\n{ended.end}\n"
                f"  all of its output is in {self.log}"
            )
        return ended

    def _result(self, command):
        """Run a job; return the JSON object that it printed. Raises Refusal if it failed or printed none."""
        found = self._run(command).result
        if found is None:
            raise Refusal(
                f"a job printed no result; all of its output is at the end of {self.log}\n"
                "  the same command continues from here"
            )
        return found
