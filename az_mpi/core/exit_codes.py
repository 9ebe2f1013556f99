"""The exit codes of every command. mpirun passes on those of its ranks."""

import signal

DONE = 0
PROBLEMS = 1  # of doctor and verify: they have found a problem
USAGE = 2  # wrong options or configuration: nothing was started
INTERNAL = 70  # an error of the program itself; or the same command would fail again, such as in diverged training
RESUMABLE = 75  # stopped, or not possible now: the same command continues
INTERRUPTED = 128 + signal.SIGINT  # by Ctrl-C; run_dist.py by the second one
KILLED = 128 + signal.SIGKILL
UNREAD = 128 + signal.SIGPIPE  # of a command that prints, once nobody reads its output any more
# Of mpirun where SIGUSR2 reaches it, or a rank, before any rank has begun (seen with Open MPI 5.0.11; 250: while it
# starts its daemons).
STOPPED_EARLY = (128 + signal.SIGUSR2, 250)
