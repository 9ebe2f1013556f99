#!/bin/bash
# Measure the network of a run: one JSON object at the end of the output.
#   sbatch slurm/eval.sh --logdir /shared/runs/connect4 --set evaluate.num_games=400
#SBATCH --job-name=az_eval
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --gres=gpu:1
#SBATCH --mem=16G
#SBATCH --time=02:00:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
source slurm/common.sh || exit 2
run_dist --mode eval "$@"
