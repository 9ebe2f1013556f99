"""The outcome of a job follows from mpirun's exit code and the run's record."""

import json

import pytest

from az_mpi.launch.outcome import Outcome, outcome, read

OLD, RUNNING, STOPPED, FAILED, FINISHED = (
    {"start": n, "job": job} for n, job in enumerate(("finished", "running", "stopped", "failed", "finished"))
)


@pytest.mark.parametrize(
    "code, record, expected",
    [
        (0, FINISHED, (0, True, False)),
        (139, FINISHED, (139, True, False)),
        (0, RUNNING, (75, False, True)),
        (0, OLD, (75, False, True)),
        (0, {}, (75, False, True)),
        (255, RUNNING, (75, False, True)),
        (255, OLD, (255, False, False)),
        (137, RUNNING, (137, False, False)),
        (75, STOPPED, (75, False, False)),
        (70, FAILED, (70, False, False)),
        (2, OLD, (2, False, False)),
        (140, RUNNING, (140, False, False)),
    ],
)
def test_a_training_has_finished_only_if_its_own_record_says_so(code, record, expected):
    """Open MPI ends with 0 or 255 where it has lost a host; what an earlier job has recorded does not count."""
    assert outcome(code, record, OLD) == Outcome(*expected)


@pytest.mark.parametrize("code, lost, expected", [(0, False, 0), (0, True, 70), (1, True, 1), (75, True, 75)])
def test_the_code_of_a_job_without_a_record_counts_unless_it_is_0_after_a_loss(code, lost, expected):
    assert outcome(code, lost=lost).status == expected


@pytest.mark.parametrize("code, status", [(140, 75), (250, 75), (137, 137)])
def test_a_job_that_was_asked_to_stop_before_it_began_is_resumable(code, status):
    assert outcome(code, OLD, OLD, asked=True).status == outcome(code, asked=True).status == status


def test_a_record_of_another_launch_is_not_read(tmp_path):
    assert read(tmp_path) == {}
    (tmp_path / "status.json").write_text(json.dumps(RUNNING | {"launch": "a"}))
    assert read(tmp_path) == read(tmp_path, "a") == RUNNING | {"launch": "a"} and read(tmp_path, "b") == {}
    (tmp_path / "status.json").write_text("{")
    assert read(tmp_path) == {}
