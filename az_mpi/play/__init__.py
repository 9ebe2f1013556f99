"""Play with trained networks, outside a run and without MPI."""
