"""Load what a rank needs before a program changes parts of it, without the collector of cycles, as run_dist.py does.

The collector would search all that torch loads again and again, which takes as long as half of the loading."""

import gc

gc.disable()

from az_mpi import modes  # noqa: E402, F401

gc.freeze()
gc.enable()
