"""Hosts of a test's own on this machine: network namespaces joined by a bridge, each with its name and an sshd.

A machine lives in namespaces of its own (PID, network, mount, UTS), so that two of them never meet, nothing outside
changes, and all of it is gone when its first process is: the kernel kills that one when this process ends, however it
ends.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# What is run, and the Debian package that has it.
FOR_HOSTS = {
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "bindfs": "bindfs",
}
FOR_SLURM = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
BRING_UP_S = 60
NEW_NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]


def why_not(programs):
    """Return why hosts that need `programs` ({name: Debian package}) cannot be made here, or None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = sorted({package for name, package in programs.items() if not shutil.which(name, path=path)})
    if missing:
        return f"Debian packages are missing: apt-get install {' '.join(missing)}"
    tried = subprocess.run([*NEW_NAMESPACES, "true"], capture_output=True, text=True)
    return tried.stderr.strip() or None


class Machine:
    """The hosts node1 … nodeN at 10.77.0.1 …, and `head` at 10.77.0.254, which has no job's ranks."""

    def __init__(self, num_hosts=3):
        self.hosts = [f"node{k + 1}" for k in range(num_hosts)]
        environment = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *NEW_NAMESPACES, "sh", HERE / "hosts.sh", str(num_hosts)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        said = []
        for line in self._process.stdout:
            said.append(line)
            if line == "ready\n":
                break
        else:
            self.close()
            raise RuntimeError("the hosts did not come up:\n" + "".join(said))
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self._first = children.read_text().strip()

    def close(self):
        """Take everything down: hosts, what runs on them, the files of their services."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def start_slurm(self):
        """Start a Slurm over the hosts, slurmctld on head."""
        done = self.run("sh", HERE / "slurm.sh", timeout=BRING_UP_S)
        if done.returncode:
            logs = self.run("sh", "-c", "tail -n 20 /run/slurm/*.log /run/munge/log").stdout
            raise RuntimeError(f"Slurm did not come up:\n{done.stdout}{done.stderr}{logs}")

    def command(self, *words, host="head", cwd=None, **variables):
        """Return the command line that runs `words` on a host, in folder `cwd` and with more environment variables."""
        enter = ["nsenter", "--target", self._first, "--mount", "--net", "--pid", "--uts"]
        if host != "head":
            script = 'nsenter --target "$(cat /run/hosts/$0)" --net --uts "$@"'
            enter += ["sh", "-c", script, host]
        assignments = [f"{name}={value}" for name, value in variables.items()]
        return [str(word) for word in (*enter, "env", "-C", cwd or os.getcwd(), *assignments, *words)]

    def run(self, *words, timeout=240, **where):
        """Run a command as `command` says and return the finished process; it is killed after `timeout` seconds."""
        # Not by subprocess: nsenter's child would live on.
        words = ("timeout", "--kill-after=5", timeout, *words)
        return subprocess.run(self.command(*words, **where), env=self.environment, capture_output=True, text=True)

    @property
    def environment(self):
        """Environment variables of commands: this Python's programs first, MPI's consent to root, sbin."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        # In /tmp a killed daemon leaves a folder named by its number, with which the next daemon of that number
        # fails; and numbers come again in each machine. /run goes with the machine.
        # Each host believes that all cores are its own, so there are more threads than cores: they must not spin where
        # they wait for one another (hosts.sh says so to what ssh starts).
        return dict(
            os.environ,
            PATH=path,
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            PRTE_MCA_prte_tmpdir_base="/run",
            OMP_WAIT_POLICY="passive",
        )

    def cut(self, host):
        """Take a host's link down: nothing reaches it or comes from it, and no process gets an error."""
        self.run("ip", "-n", host, "link", "set", "eth0", "down")

    def bring_back(self, host):
        """Let a host that was cut, lost or both be there again."""
        self.run("ip", "-n", host, "link", "set", "eth0", "up")
        script = """[ -n "$(ip netns pids "$0")" ] || {
            nsenter --net="/run/netns/$0" unshare --uts sh -c 'hostname "$0" && exec /usr/sbin/sshd -D' "$0" \
                >/dev/null 2>&1 & echo $! >"/run/hosts/$0"; }
            until ssh "$0" true; do sleep 0.1; done"""
        done = self.run("sh", "-c", script, host, timeout=30)
        assert done.returncode == 0, done.stderr[-500:]

    def lose(self, host):
        """Lose a host at once: every process on it is killed, sshd too."""
        script = 'while pids=$(ip netns pids "$0") && [ -n "$pids" ]; do kill -9 $pids; done'
        self.run("sh", "-c", script, host)

    def lose_daemon(self, host):
        """Kill MPI's daemon on a host and its children, as when the host is lost; sshd and Slurm stay."""
        script = """for pid in $(ip netns pids "$0"); do
            case $(tr '\\0' ' ' <"/proc/$pid/cmdline") in */prted\\ *) kill -9 "$pid" ;; esac
        done 2>/dev/null; true"""
        self.run("sh", "-c", script, host)
