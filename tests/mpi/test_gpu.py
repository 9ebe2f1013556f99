"""What needs a GPU: sums of gradients there, a rank that dies in one, and runs whose ranks share it."""

import pytest
from jobs import PROGRAMS
from marks import needs_gpu

pytestmark = [pytest.mark.mpi, needs_gpu]


def test_ranks_that_share_a_gpu_have_the_gradient_of_one_process(program):
    program(3, "gradient_checks", "ddp", "cuda:0")


def test_nccl_sums_and_a_rank_that_dies_in_a_sum_does_not_stop_the_others(start_mpirun):
    process = start_mpirun(3, PROGRAMS / "nccl_checks.py", options=["--with-ft", "ulfm"])
    output, _ = process.communicate(timeout=120)
    print(output)
    assert output.count("all checks passed") == 2, output


def test_one_of_the_ranks_that_share_a_gpu_trains(run_dist, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    done = run_dist(3, tmp_path, "--set", "evaluate.opponents=[]")
    assert "complete: iteration 2 of 2" in done.stdout and done.stdout.count("play, train") == 1
    assert done.stdout.count("torch cuda graphs") == 3 and "3 ranks and 1 GPU: some share one" in done.stdout
