"""What sums gradients over the trainers, on real ranks, by each backend that this MPI has."""

import json

import pytest
from jobs import BACKENDS
from marks import slow

from az_mpi.storage import checkpoint

pytestmark = pytest.mark.mpi


def needs_horovod(*values, marks=()):
    """Return a set of parameters for the MPI that Horovod is built against."""
    reason = pytest.mark.skipif("horovod" not in BACKENDS, reason="Horovod has another MPI")
    return pytest.param(*values, marks=[reason, *marks])


MANY_BUCKETS = "gradient_checks ddp cpu 100"  # bytes: nearly every parameter in a bucket of its own


@pytest.mark.parametrize(
    "ranks, programs",
    [
        (
            1,
            ["session_checks ddp", "gradient_checks ddp", "loss_checks"],
        ),  # a single trainer sums nothing, by any backend
        (2, ["optimizer_checks ddp", "loss_checks"]),
        (4, ["session_checks ddp", "gradient_checks ddp", MANY_BUCKETS]),
        slow(2, ["session_checks ddp", "gradient_checks ddp"]),
        needs_horovod(2, ["optimizer_checks horovod"]),
        needs_horovod(4, ["session_checks horovod", "gradient_checks horovod"]),
        needs_horovod(2, ["session_checks horovod", "gradient_checks horovod"], marks=[pytest.mark.slow]),
    ],
)
def test_sums_steps_and_losses_are_those_of_one_process(program, ranks, programs):
    """The gradient of a global batch, two steps with each optimiser, sessions that are repeated, also by fewer ranks,
    and the mean loss of an iteration."""
    program(ranks, "several", *programs)


@pytest.mark.parametrize("backend", [BACKENDS[0], *map(slow, BACKENDS[1:])])
def test_a_subset_of_the_ranks_trains(mpirun, backend, tmp_path):
    options = ["--config_file", "configs/smoke.json", "--logdir", tmp_path / "run", "--set", f"train.backend={backend}"]
    done = mpirun(3, "run_dist.py", *options, "--set", "train.ranks=2", "--set", "evaluate.opponents=[]")
    assert "complete: iteration 2 of 2" in done.stdout and done.stdout.count("play, train") == 2
    # Root gives its weights to the one rank that only plays, not to the other trainer.
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    sent = [record["broadcast_bytes"] for record in lines if record["kind"] == "iteration"]
    tensors = checkpoint.read(tmp_path / "run" / "checkpoints" / "000002").model.values()
    assert sent == [sum(tensor.nbytes for tensor in tensors)] * 2
    assert {"horovod": "horovod 0", "ddp": "torch.distributed 2"}[backend] in done.stdout
    # What is off is said under every MPI but Open MPI, where nothing is.
    assert ("has no ULFM here: a lost rank ends the job" in done.stdout) == ("az_mpi on Open MPI" not in done.stdout)


def test_without_horovod_torch_distributed_trains_and_horovod_is_refused(mpirun, tmp_path):
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("raise ImportError('libhorovod.so: not here')\n")
    launch = [
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import run_dist; sys.exit(run_dist.main(sys.argv[1:]))",
        "--config_file",
        "configs/smoke.json",
    ]
    refused = mpirun(2, *launch, "--logdir", tmp_path / "refused", "--set", "train.backend=horovod", status=2)
    assert refused.stderr.count('train.backend: "horovod" cannot be used on rank [0, 1]: libhorovod.so') == 1
    assert "--set train.backend=ddp" in refused.stderr and "Traceback" not in refused.stderr
    done = mpirun(2, *launch, "--logdir", tmp_path / "run")
    assert "torch.distributed 2" in done.stdout and done.stdout.count("note: ddp sums the gradients") == 1
    state = json.loads((tmp_path / "run" / "checkpoints" / "000002" / "state.json").read_text())
    assert state["step"] > 10
