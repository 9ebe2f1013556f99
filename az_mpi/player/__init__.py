"""A network of a run with its search, without MPI: `az_mpi.load_player`, and a game in progress that thinks."""
