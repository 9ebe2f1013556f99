#!/bin/sh
# Makes node1 … nodeN, and stays until it is killed. Runs as the first process of namespaces of its own
# (PID, network, mount, UTS; see machine.py): when it dies, in whatever way, the kernel takes all of this down with it,
# files included, which are in a /run of its own.
#   hosts.sh N
set -eu
num_hosts=$1

hostname head
mount -t tmpfs none /run
mkdir -p /run/sshd /run/hosts /run/ssh
ip link set lo up
ip link add bridge type bridge
ip address add 10.77.0.254/24 dev bridge
ip link set bridge up

{ echo "127.0.0.1 localhost"; echo "10.77.0.254 head"; } >/run/names
for k in $(seq "$num_hosts"); do echo "10.77.0.$k node$k"; done >>/run/names
mount --bind /run/names /etc/hosts

# One key for hosts and users, made for this occasion; nobody's own is looked at.
key=/etc/ssh/key
mount --bind /run/ssh /etc/ssh
ssh-keygen -q -t ed25519 -N '' -C cluster -f $key
cp $key.pub /etc/ssh/authorized_keys
sed "s/^/* /" $key.pub >/etc/ssh/known_hosts
printf '%s\n' "IdentityFile $key" "IdentitiesOnly yes" "IdentityAgent none" "UserKnownHostsFile /dev/null" \
    "GlobalKnownHostsFile /etc/ssh/known_hosts" "BatchMode yes" >/etc/ssh/ssh_config
printf '%s\n' "HostKey $key" "AuthorizedKeysFile /etc/ssh/authorized_keys" "PasswordAuthentication no" \
    "PermitRootLogin prohibit-password" "UsePAM no" "MaxStartups 100" "PidFile none" \
    "SetEnv OMP_WAIT_POLICY=passive" >/etc/ssh/sshd_config

for k in $(seq "$num_hosts"); do
    ip netns add "node$k"
    ip link add "veth$k" type veth peer name eth0 netns "node$k"
    ip link set "veth$k" master bridge up
    ip -n "node$k" link set lo up
    ip -n "node$k" address add "10.77.0.$k/24" dev eth0
    ip -n "node$k" link set eth0 up
    nsenter --net="/run/netns/node$k" unshare --uts sh -c 'hostname "$0" && exec /usr/sbin/sshd -D -E "$1"' \
        "node$k" "/run/ssh/node$k.log" &
    echo $! >"/run/hosts/node$k"
done
for k in $(seq "$num_hosts"); do
    until ssh "node$k" true 2>/dev/null; do sleep 0.05; done
done
echo ready
exec sleep infinity
