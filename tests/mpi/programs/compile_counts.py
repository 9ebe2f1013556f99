"""run_dist.py on ranks that say they are on hosts "a", "a", "b"; FOLDER/RANK gets a line for each function compiled."""

import os
import socket
import sys

from numba.core import event

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
log = open(f"{sys.argv[1]}/{rank}", "w", buffering=1)
socket.gethostname = lambda: "aab"[rank]


class Listener(event.Listener):
    def on_start(self, compiling):
        print(compiling.data["dispatcher"].py_func.__qualname__, file=log)

    def on_end(self, compiled):
        pass


event.register("numba:compile", Listener())

import run_dist  # noqa: E402

sys.exit(run_dist.main(sys.argv[2:]))
