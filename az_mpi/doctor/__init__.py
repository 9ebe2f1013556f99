"""`python -m az_mpi doctor`: would a run start here, and how fast would it be?"""
