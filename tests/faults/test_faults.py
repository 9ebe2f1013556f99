"""A sample of the trials of tests/faults, which `make faults` and `make test` run; `make faults-long` runs others."""

import catalogue
import pytest
import trial

pytestmark = pytest.mark.mpi

# Between them: every rank but one dies; root dies in the rename of the last checkpoint, between a segment's writing and
# its rename, and in the last report; root hangs; an allreduce, a recovery and a whole mpirun are broken off; the disk
# is full; a job is told to stop. Each is early enough in its phase to come to pass however fast the machine is.
SEEDS = (9, 16, 101, 105, 111, 126, 239, 734, 1801)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds_after_a_fault(seed, tmp_path):
    outcome = trial.perform(catalogue.make(seed), tmp_path)
    result = trial.measure(outcome)
    output = "\n".join(job.output[-3000:] + job.stacks for job in (outcome.first, outcome.again) if job)
    assert not result["broken"], f"python tests/faults/trial.py {seed} --folder FOLDER\n{result}\n{output}"
    assert result["injected"], "the fault never came to pass"
