#!/bin/sh
# Starts a Slurm over the hosts that hosts.sh made, on head: slurmctld here, a slurmd on each host. It dies with them.
set -eu
folder=/run/slurm
mkdir -p $folder/state
hosts=$(ls /run/hosts)

# Nodes are said to have more than they have, so that the templates' own numbers fit (config_overrides).
# cred_expire is also how long a requeued job waits before it starts again (120 s by default).
cat >$folder/slurm.conf <<CONF
ClusterName=test
SlurmctldHost=head(10.77.0.254)
SlurmUser=root
AuthInfo=cred_expire=5
StateSaveLocation=$folder/state
SlurmctldLogFile=$folder/slurmctld.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdLogFile=$folder/slurmd-%n.log
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdSpoolDir=/run/slurmd-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0,bf_interval=1
MpiDefault=none
GresTypes=gpu
ReturnToService=2
KillWait=5
InactiveLimit=0
NodeName=node[1-$(echo "$hosts" | wc -l)] CPUs=64 RealMemory=400000 Gres=gpu:4
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
CONF
echo "Name=gpu File=/dev/null,/dev/zero,/dev/full,/dev/random" >$folder/gres.conf
echo "CgroupPlugin=cgroup/v1" >$folder/cgroup.conf
mount --bind $folder /etc/slurm

mkdir -p /run/munge
dd if=/dev/urandom of=/run/munge/key bs=128 count=1 status=none
chmod 400 /run/munge/key
munged --key-file=/run/munge/key --log-file=/run/munge/log --seed-file=/run/munge/seed --pid-file=/run/munge/pid

slurmctld
for host in $hosts; do
    nsenter --target "$(cat "/run/hosts/$host")" --net --uts slurmd -N "$host"
done
until sinfo --noheader --format=%T | grep -qx idle && [ "$(sinfo -h -o %T | sort -u)" = idle ]; do sleep 0.1; done
