"""A sample of the trials of tests/faults; `make faults` and `make test-rest` run it. `make faults-long` runs others."""

import errno
import json
import re

import catalogue
import invariants
import pytest
import trial
from catalogue import Injection, Trial
from marks import slow

pytestmark = pytest.mark.mpi

# Between them: root dies in the rename of the last checkpoint, with a recovery broken off, and in the last report; root
# hangs; a whole mpirun is killed; a job is asked to stop. The nightly tests also have the faults that the next test has
# in one job, such as the loss of every rank but one (126), and a full disk (105), which tests/cluster has too.
# Each fault is early enough in its phase to happen on a machine of any speed.
SEEDS = (*map(slow, (8, 105, 126, 239, 1801)), 9, 16, 101, 543, 734)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds_after_a_fault(seed, tmp_path):
    check(trial.perform(catalogue.make(seed), tmp_path), f"python tests/faults/trial.py {seed} --folder FOLDER")


@pytest.mark.timeout(600)
def test_every_invariant_holds_where_ranks_are_lost_one_after_another_in_different_phases(tmp_path):
    """One dies in an allreduce; then root between a segment's writing and its rename, and the next root cannot read for
    a second; then that one in the rename of a checkpoint, so that one rank alone is left."""
    kills = [(3, "train", 48, 0), (0, "segment", 2, 1), (1, "checkpoint", 2, 2)]  # each behind the recovery before it
    faults = [Injection(rank, phase, passage, ["signal", [rank], 9], after) for rank, phase, passage, after in kills]
    faults.append(Injection(1, "recovery", 1, ["reads", errno.EIO, 1.0], 1))
    options = catalogue.OPTIONS | {"train.ranks": "all", "train.backend": "horovod", "iterations": 5}
    one = Trial(0, "kill all but one in turn", 4, tuple(faults), options)
    outcome = trial.perform(one, tmp_path)
    check(outcome, one)
    # Each recovery stores all games before the next loss, so that no game of a dead rank may be missing either.
    assert not invariants.ids_of(outcome, "given", range(4)) - set(invariants.stored(outcome.run))
    assert any(event["event"] == "unread" for event in outcome.first.events)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "fault, action, options",
    [("kill", ["signal", [2], 9], {}), ("EIO for good", ["disk", errno.EIO, 0], {"storage.give_up_s": 2})],
)
def test_every_invariant_holds_where_one_of_two_writers_is_lost_or_its_disk(tmp_path, fault, action, options):
    """Rank 2 writes the games of ranks 2 and 3, and is between a segment's writing and its rename."""
    options |= {"train.ranks": "all", "train.backend": "ddp", "storage.ranks_per_writer": 2, "iterations": 2}
    options = catalogue.OPTIONS | options
    one = Trial(0, fault, 4, (Injection(2, "segment", 2, action),), options)
    outcome = trial.perform(one, tmp_path)
    check(outcome, one)


@pytest.mark.timeout(600)
def test_a_recovery_broken_off_by_one_more_loss_leaves_no_heartbeat_behind(tmp_path):
    """One more rank dies when the others are ready to continue. Heartbeats that they left behind would end the job."""
    faults = [
        Injection(rank, phase, passage, ["signal", [rank], 9])
        for rank, phase, passage in ((3, "train", 20), (2, "recovery", catalogue.RECOVERY))
    ]
    faults.append(Injection(0, "train", 10, ["slow", 0.05]))  # 200 steps are twice fault.hang_s
    longer = {
        "train.backend": "ddp",
        "train.replay_ratio": 60.0,
        "train.max_steps": 220,
        "iterations": 1,
        "fault.hang_s": 5,
    }
    one = Trial(0, "kill one more in the recovery", 4, tuple(faults), catalogue.OPTIONS | longer)
    check(trial.perform(one, tmp_path), one)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "other, moment, passage, every, steps",
    [
        (1, "recovery", 2, 1, {49, 50}),  # its partner, once all have what it held
        (2, "rescue", 1, 3, {47, 48, 49, 50}),  # another one, in the middle of that
    ],
)
def test_steps_of_a_lone_trainer_survive_its_loss_and_one_more(tmp_path, other, moment, passage, every, steps):
    """The weights have returned to the beginning once. Then the trainer dies with a copy under way."""
    copies = 100 if every == 1 else 50 + 50 // every  # passages: one before each step and one behind each copy
    faults = [
        Injection(0, "train", 20, ["nan", 6]),
        Injection(0, "copy", copies, ["signal", [0], 9]),
        Injection(other, moment, passage, ["signal", [other], 9]),
    ]
    options = catalogue.OPTIONS | {"train.ranks": 1, "iterations": 1, "fault.copy_every": every}
    one = Trial(0, "kill one more in the recovery", 4, tuple(faults), options)
    outcome = trial.perform(one, tmp_path)
    check(outcome, one)
    assert {event["steps"] for event in outcome.first.events if event["event"] == "continuing"} <= steps
    lines = (outcome.run / "metrics.jsonl").read_text().splitlines()
    assert [record["num_rollbacks"] for record in map(json.loads, lines) if record["kind"] == "iteration"] == [1]


@pytest.mark.timeout(600)
def test_the_other_ranks_save_the_steps_where_root_dies_while_the_job_leaves(tmp_path):
    """The other ranks save the steps that root was about to save."""
    actions = (Injection(1, "train", 20, ["signal", [1], 12]), Injection(0, "leave", 1, ["signal", [0], 9]))
    one = Trial(0, "kill root while the job leaves", 3, actions, catalogue.OPTIONS | {"train.ranks": "all"})
    outcome = trial.perform(one, tmp_path)
    check(outcome, one)
    assert outcome.first.status == 75
    assert int(re.search(r"resumed after .* (\d+) steps", outcome.again.output)[1]) >= 20


def check(outcome, replay):
    result = trial.measure(outcome)
    output = "\n".join(job.output[-3000:] + job.stacks for job in (outcome.first, outcome.again) if job)
    assert not result["broken"], f"{replay}\n{result}\n{output}"
    assert result["injected"] == len(outcome.trial.injections), "a fault never happened"
