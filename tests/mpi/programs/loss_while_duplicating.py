"""Ranks die one after the other while all make and free communicators. The others notice the loss and continue.

For mpirun --with-ft ulfm. Open MPI 5.0.10 and 5.0.11 crash here: they look into what a half-made communicator lacks.
"""

import os
import random
import signal
import threading
import time

from mpi4py import MPI


def main():
    comm, delay_s = MPI.COMM_WORLD, random.Random(MPI.COMM_WORLD.rank).uniform(0.01, 0.1)
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    while comm.size > 1:
        if comm.rank == comm.size - 1:
            threading.Thread(target=lambda: (time.sleep(delay_s), os.kill(os.getpid(), signal.SIGKILL))).start()
        try:
            while True:
                comm.Dup().Free()
        except MPI.Exception:
            comm.Revoke()  # for those that have heard of nothing yet
        comm = comm.Shrink()
    print("all checks passed", flush=True)
    os._exit(0)  # as run_dist.py does: MPI_Finalize would wait for the dead


main()
