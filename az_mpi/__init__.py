"""az_mpi: AlphaZero for clusters, MPI-native."""

__version__ = "0.1.0"
