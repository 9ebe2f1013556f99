"""Starting a job on several hosts: python -m az_mpi launch."""
