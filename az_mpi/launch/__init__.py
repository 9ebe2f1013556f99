"""Starting a job on several hosts, and how it ended: python -m az_mpi launch."""
