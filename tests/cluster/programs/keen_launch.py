"""python -m az_mpi launch that looks soon for hosts that are back."""

import sys

from az_mpi.__main__ import main
from az_mpi.launch import host_pool, supervisor

supervisor.SEARCH_EVERY_S = host_pool.SEARCH_EVERY_S = 8
sys.exit(main(["launch", *sys.argv[1:]]))
