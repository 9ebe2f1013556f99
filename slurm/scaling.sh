#!/bin/bash
# Measure how a configuration scales, for a proposal: one job that holds the largest number of ranks and runs all sizes
# in it, one after the other. It comes back at the time limit and does what is missing. Give sbatch --exclusive, so that
# no other job shares the nodes, and --gres=gpu:N where ranks have GPUs.
#   sbatch slurm/scaling.sh --config_file configs/connect4.json --ranks 1,2,4,8 --logdir /shared/runs/scaling
#   sbatch --nodes=8 --ntasks-per-node=32 --cpus-per-task=2 --mem=48G slurm/scaling.sh --ranks 32,64,128,256 ...
#SBATCH --job-name=az_scaling
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=2
#SBATCH --gres=none
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
source slurm/common.sh || exit 2
# The nodes need no ssh. What is asked to stop here is the command, which ends its mpirun.
as_job python -m az_mpi scaling --cores "${SLURM_CPUS_PER_TASK:-1}" --no_check "$@"
