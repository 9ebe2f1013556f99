#!/bin/bash
# Train on several nodes: --gres, --mem and --ntasks-per-node are for each of them. A rank for each GPU.
#   sbatch slurm/train_multinode.sh --config_file configs/connect4.json --logdir /shared/runs/connect4
#   sbatch --nodes=8 slurm/train_multinode.sh ...
#SBATCH --job-name=az_train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:4
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
source slurm/common.sh || exit 2
run_dist "$@"
