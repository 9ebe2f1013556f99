#!/bin/bash
# One run for each seed, as a job array: seed 3 trains in LOGDIR/seed-3. Two of them at a time; each is queued again on
# its own.
#   sbatch slurm/array_seeds.sh --config_file configs/connect4.json --logdir /shared/runs/seeds
#   sbatch --array=1-20%4 slurm/array_seeds.sh ...
#SBATCH --job-name=az_seeds
#SBATCH --array=1-5%2
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --mem=16G
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
source slurm/common.sh || exit 2

logdir=runs/seeds options=()
while [ $# -gt 0 ]; do
    case $1 in
    --logdir) logdir=${2-} && shift ;;
    --logdir=*) logdir=${1#*=} ;;
    *) options+=("$1") ;;
    esac
    shift
done
[ -n "$logdir" ] || { echo "--logdir: the name is empty" >&2 && exit 2; }
run_dist "${options[@]}" --set seed="$SLURM_ARRAY_TASK_ID" --logdir "$logdir/seed-$SLURM_ARRAY_TASK_ID"
