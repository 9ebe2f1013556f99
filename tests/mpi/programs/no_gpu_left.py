"""run_dist.py on a host where rank 0 alone has a GPU, as placement sees it: no_gpu_left.py OPTIONS…

It trains on the processor all the same; nothing else is changed.
"""

import sys

import run_dist
import tests.mpi.programs.loading  # noqa: F401
from az_mpi.core.printing import environment_rank
from az_mpi.mpi import placement


def place(config, world, device, function=placement.place):
    return function(config, world, "cuda:0" if environment_rank() == 0 else device)


placement.place = place
placement.gpu_of = lambda device: None if device == "cpu" else device
sys.exit(run_dist.main(sys.argv[1:]))
