# What the batch scripts of this folder share. They source it from the checkout, where the job begins: sbatch runs a
# copy of the script itself, which knows no other way back.
# shellcheck shell=bash

# --- To edit: what a job needs on your site before .venv's python and mpirun work -----------------------------------
# module load gcc openmpi
source .venv/bin/activate || { echo "$PWD has no .venv: make setup there first" >&2 && exit 2; }
# How often a job that stopped before its time limit may go back into the queue (0: never).
: "${REQUEUES_MAX:=50}"
# ---------------------------------------------------------------------------------------------------------------------

RESUMABLE=75 # exit status of run_dist.py: stopped on request, the same command continues

# mpirun starts one daemon on each node, by srun, and each daemon its ranks. Without this variable a daemon may use all
# cores that the job has on its node; with it only one task's, and all ranks of the node would share those. A plain
# `srun python` needs it in some versions of Slurm: see README.md.
unset SRUN_CPUS_PER_TASK
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK_HET_GROUP_0:-1}}

say() { echo "$SLURM_JOB_NAME $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)) on $SLURM_JOB_NODELIST: $*"; }

# Until mpirun runs, bash would end with the first USR1, without a word.
trap 'say "USR1 before mpirun was started: the time limit is too short, or very near; continuing"' USR1

# The options of mpirun. -np: fewer ranks than slots are meant where --ntasks-per-node says more.
mpirun_options=(${SLURM_NTASKS:+-np "$SLURM_NTASKS"})

# run_dist OPTIONS: run_dist.py on all tasks of the job; the job ends as it ended.
run_dist() {
    # A job that comes back continues the run that it began.
    local words=() word
    for word in "$@"; do
        [ "$word" = --fresh ] && [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || words+=("$word")
    done
    set -- "${words[@]}"
    # Where it trains, the run says in this file whether it is finished.
    status_file=$(python -c 'import sys; from az_mpi.config.command_line import parse; given = parse(sys.argv[1:])
print(given.logdir / "status.json" if given.trains else "")' "$@" 2>/dev/null)
    status_before=$(cat "$status_file" 2>/dev/null)
    # A checkout has the program here; where a wheel is installed, it is a command.
    local program=run_dist.py
    [ -e "$program" ] || program=$(command -v run_dist.py) || program=run_dist.py
    # PACKED=FILE: each node unpacks it once, and all ranks there start from the node's own disk (docs/site.md).
    local start=(python "$program")
    [ -z "${PACKED-}" ] || start=("$PACKED")
    # Ranks of a node share its cores out among themselves: no binding, but within what Slurm gave the job.
    as_job mpirun "${mpirun_options[@]}" --bind-to none "${start[@]}" "$@"
}

# as_job COMMAND: run it; USR1 (the time limit is near) and TERM (preempted, cancelled) ask it to stop with USR2.
as_job() {
    local pid status signalled=1 asked='' requeue=1
    # bash handles signals while it waits, but not while a command is in the foreground.
    "$@" &
    pid=$!
    trap 'signalled=1 asked=1; say "USR1: stopping"; kill -USR2 $pid' USR1
    # Slurm requeues a job that it preempts, and a user who cancels it does not want it back.
    trap 'signalled=1 asked=1 requeue=; say "TERM: stopping"; kill -USR2 $pid' TERM
    while [ -n "$signalled" ]; do # a signal ends a wait
        signalled=
        wait "$pid"
        status=$?
    done
    trap '' USR1 # the job ends anyway
    trap - TERM
    # mpirun's status alone does not tell. Where nothing trains there is nothing to continue.
    local code=$status
    if [ -n "$status_file" ]; then
        status=$(python -m az_mpi.launch.outcome "${status_file%/*}" "$code" "$asked" <<<"$status_before" || echo "$code")
    fi
    if [ "$status" != "$code" ]; then
        case $code in
        0 | 255) say "mpirun ended with status $code, but the run is not finished: a node was lost" ;;
        *) say "mpirun ended with status $code: it was stopped before any rank had begun" ;;
        esac
    fi
    say "ended with status $status"
    if [ $status = $RESUMABLE ] && [ -n "$requeue" ]; then requeue; fi
    exit $status
}

# Put this job back into the queue. It comes back with the same id, script and options, and writes to the same file.
requeue() {
    # A task of an array is named by the array's id and its own index: the array's id alone means them all.
    local job=$SLURM_JOB_ID
    [ -z "${SLURM_ARRAY_JOB_ID-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    if [ "${SLURM_RESTART_COUNT:-0}" -ge "$REQUEUES_MAX" ]; then
        say "not queued again after $REQUEUES_MAX times (REQUEUES_MAX); sbatch with the same options continues"
    elif scontrol requeue "$job"; then
        sleep 60 # Slurm ends this start of the job; were it to end by itself first, it might count as failed
    else
        say "could not be queued again; sbatch with the same options continues"
    fi
}
