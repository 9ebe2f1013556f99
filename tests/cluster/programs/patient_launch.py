"""python -m az_mpi launch that waits for minutes before it starts lost ranks again."""

import sys

from az_mpi.__main__ import main
from az_mpi.launch import supervisor

supervisor.SEARCH_EVERY_S = 300
sys.exit(main(["launch", *sys.argv[1:]]))
