"""Which of several configurations learns more in the same time: python -m az_mpi compare."""
