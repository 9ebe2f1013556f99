#!/bin/bash
# GPU nodes train, CPU nodes play, as one run: a heterogeneous job. The first part holds the GPUs, and with them rank 0,
# which writes; ranks with a GPU train, the others play on meanwhile.
#   sbatch slurm/selfplay_cpu_train_gpu.sh --config_file configs/connect4.json --logdir /shared/runs/connect4
# Options of sbatch are for the first part; for the second one give them after a colon, or edit them here.
#SBATCH --job-name=az_mixed
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
#SBATCH hetjob
#SBATCH --nodes=2
#SBATCH --ntasks=32
#SBATCH --cpus-per-task=1
#SBATCH --mem=32G
#SBATCH --time=24:00:00
source slurm/common.sh || exit 2

# What works with Slurm 22.05 and Open MPI 5.0. Open MPI's part for Slurm sees the first component only (SLURM_NODELIST
# and the like are its), and one `srun --het-group=0,1` of the ranks needs a PMIx in Slurm that Open MPI accepts. So
# mpirun is told the nodes of all components and reaches them as if by ssh, with het_agent.sh in ssh's place, which is
# an srun into the component that has the node. No ssh between nodes is needed.
expand() { awk -v RS=, -F '[(x)]+' '{ for (i = 0; i < ($2 ? $2 : 1); i++) print $1 + 0 }' <<<"$1"; } # 2(x3),1: 2 2 2 1
hosts=$(for ((k = 0; k < SLURM_HET_SIZE; k++)); do
    nodes=SLURM_JOB_NODELIST_HET_GROUP_$k tasks=SLURM_TASKS_PER_NODE_HET_GROUP_$k
    paste -d : <(scontrol show hostnames "${!nodes}") <(expand "${!tasks}")
done | paste -s -d ,)
mpirun_options=(-H "$hosts" --prtemca ras ^slurm --prtemca plm ssh --prtemca plm_ssh_agent "$PWD/slurm/het_agent.sh"
    --prtemca plm_ssh_no_tree_spawn 1 --leave-session-attached)
run_dist --set train.ranks=gpu "$@"
