#!/bin/sh
# Makes a container a host that mpirun can start ranks on: an sshd of this user's own on port 2222, with the key in
# KEYS (a volume that all the hosts share). The first host that starts makes the key; no image holds one.
set -eu
keys=${KEYS:-/keys}
umask 077
mkdir -p ~/.ssh
if mkdir "$keys/making" 2>/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -f "$keys/new"
    mv "$keys/new.pub" "$keys/id_ed25519.pub"
    mv "$keys/new" "$keys/id_ed25519"  # last: whoever sees it sees both
fi
until [ -e "$keys/id_ed25519" ]; do sleep 0.2; done
cp "$keys/id_ed25519" ~/.ssh/id_ed25519
cp "$keys/id_ed25519.pub" ~/.ssh/authorized_keys
# The hosts' own keys are new with every container, and only the holders of the shared key are let in.
printf '%s\n' 'Host *' '  Port 2222' '  StrictHostKeyChecking no' '  UserKnownHostsFile /dev/null' '  LogLevel ERROR' >~/.ssh/config
[ -e ~/.ssh/host_key ] || ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/host_key
exec /usr/sbin/sshd -D -e -p 2222 -h ~/.ssh/host_key -o PidFile=none -o UsePAM=no -o PasswordAuthentication=no \
    -o StrictModes=no -o PermitUserEnvironment=no -o SetEnv="PATH=$PATH"
