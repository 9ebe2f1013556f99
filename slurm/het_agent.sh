#!/bin/bash
# het_agent.sh HOST COMMAND...: run COMMAND on HOST, in the component of this heterogeneous job that has HOST. mpirun
# calls it as it would call ssh; selfplay_cpu_train_gpu.sh tells it to.
host=$1
shift
for ((k = 0; k < SLURM_HET_SIZE; k++)); do
    nodes=SLURM_JOB_NODELIST_HET_GROUP_$k threads=SLURM_CPUS_PER_TASK_HET_GROUP_$k
    if scontrol show hostnames "${!nodes}" | grep -Fqx -- "$host"; then
        export OMP_NUM_THREADS=${!threads:-1}
        # Like ssh, mpirun's agent leaves it to a shell on the other side to read the command.
        exec srun --het-group=$k --nodelist="$host" --nodes=1 --ntasks=1 --overlap bash -c "$*"
    fi
done
echo "het_agent.sh: $host is in no component of job $SLURM_JOB_ID" >&2
exit 2
