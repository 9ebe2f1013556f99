#!/bin/bash
# Train on one node. From the checkout, with run_dist.py's options (README.md says what to edit):
#   sbatch slurm/train.sh --config_file configs/connect4.json --logdir /shared/runs/connect4
#SBATCH --job-name=az_train
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:2
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
source slurm/common.sh || exit 2
run_dist "$@"
