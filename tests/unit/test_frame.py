"""The frame of programs on all ranks: which exit status and which text each exception gives, and when the job ends."""

import errno

import pytest

from az_mpi.core.exit_codes import DONE, INTERNAL, INTERRUPTED, RESUMABLE, UNREAD, USAGE
from az_mpi.core.printing import OutputFailed
from az_mpi.core.problems import NotNow, OwnCodeError, Refusal
from az_mpi.core.signals import Stopped, TrainingFailed
from az_mpi.mpi.frame import Frame
from az_mpi.mpi.peers import PeerLost


class Ended(BaseException):
    """The job has been ended: the real `World.abort` does not return."""


class FakeWorld:
    """Rank 1 of `size` ranks, or the only one, which notes what it is asked."""

    host = "here"

    def __init__(self, size):
        self.size, self.rank = size, size - 1
        self.is_root, self.revoked = size == 1, False

    def revoke(self):
        self.revoked = True

    def abort(self, status):
        raise Ended(status)


def raising(error):
    def do():
        raise error

    return do


def outcome(frame, error):
    """Return (the exit status, whether the job was ended with it)."""
    try:
        return frame.run(raising(error)), False
    except Ended as ended:
        return ended.args[0], True


ON_EVERY_RANK = [(Refusal("no"), USAGE), (NotNow("later"), RESUMABLE), (Stopped(), RESUMABLE)]
ON_EVERY_RANK.append((TrainingFailed(), INTERNAL))
PERHAPS_ON_ONE = [
    (OwnCodeError("the rules are broken"), USAGE, "rank 1 of 2 on here failed; the job ends\nthe rules are broken\n"),
    (ZeroDivisionError("a fault"), INTERNAL, "ZeroDivisionError: a fault\n"),
    (OSError(errno.EIO, "no answer"), RESUMABLE, "no answer\n"),  # of a file system, and may pass
    (OSError(errno.EFBIG, "too large"), INTERNAL, "too large\n"),
    (PeerLost("rank 0"), RESUMABLE, "rank 1 of 2 on here: another rank was lost: rank 0\n"),
    (KeyboardInterrupt(), INTERRUPTED, ""),
]


def test_the_status_is_what_the_work_returns_and_0_if_it_returns_nothing():
    assert Frame(FakeWorld(2)).run(lambda: None) == DONE and Frame(FakeWorld(2)).run(lambda: 7) == 7


@pytest.mark.parametrize("error, status", ON_EVERY_RANK)
def test_what_every_rank_raises_ends_each_of_them_and_root_alone_says_a_refusal(capsys, error, status):
    assert outcome(Frame(FakeWorld(2)), error) == (status, False)
    assert capsys.readouterr() == ("", "")
    assert outcome(Frame(FakeWorld(1)), error) == (status, False)
    assert capsys.readouterr() == ("", f"{error}\n" if isinstance(error, Refusal) else "")


@pytest.mark.parametrize("error, status, said", PERHAPS_ON_ONE)
def test_what_one_rank_may_raise_alone_ends_the_job_if_others_wait(capsys, error, status, said):
    assert outcome(Frame(FakeWorld(2)), error) == (status, True)
    assert capsys.readouterr().err.endswith(said)
    assert outcome(Frame(FakeWorld(1)), error) == (status, False)


def test_the_rank_is_named_as_the_work_numbers_it(capsys):
    frame = Frame(FakeWorld(2))
    frame.world = FakeWorld(3)
    assert outcome(frame, OwnCodeError("broken"))[1] and "rank 2 of 3" in capsys.readouterr().err


@pytest.mark.parametrize("size", [1, 2])
def test_a_program_that_ends_its_process_itself_leaves_alone_only_after_a_loss(size):
    """A failing rank ends the job even if it is the only one: a thread that hangs must not keep the process alive."""

    class Program(Frame):
        ends_process = True

    frame = Program(FakeWorld(size))
    assert outcome(frame, PeerLost("rank 0")) == (RESUMABLE, False) and frame.world.revoked
    assert outcome(frame, ZeroDivisionError()) == (INTERNAL, True)
    assert outcome(frame, KeyboardInterrupt()) == (INTERRUPTED, True)


@pytest.mark.parametrize("fault", [None, OSError(errno.ENOSPC, "full"), ZeroDivisionError()])
def test_a_failure_is_noted_and_the_job_ends_even_if_that_fails(capsys, fault):
    noted = []

    class Program(Frame):
        def note(self, text):
            noted.append(text)
            if fault:
                raise fault

    assert outcome(Program(FakeWorld(2)), OwnCodeError("broken")) == (USAGE, True)
    assert noted == [capsys.readouterr().err] == ["rank 1 of 2 on here failed; the job ends\nbroken\n"]


def test_output_that_nobody_reads_ends_the_job_and_is_raised():
    failed = OutputFailed(BrokenPipeError(errno.EPIPE, "closed"))
    assert outcome(Frame(FakeWorld(2)), failed) == (UNREAD, True)
    with pytest.raises(OutputFailed):
        Frame(FakeWorld(1)).run(raising(failed))
