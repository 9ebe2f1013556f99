"""The hosts of tests are apart from each other and from this machine, and end with the session that made them."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from machine import Machine, why_not

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_hosts_have_names_addresses_and_silent_ssh(machine):
    for k, host in enumerate(machine.hosts, 1):
        assert machine.run("hostname", host=host).stdout == f"{host}\n"
        assert f"10.77.0.{k}/24" in machine.run("ip", "-brief", "address", host=host).stdout
        for other in machine.hosts:
            done = machine.run("ssh", other, "hostname", host=host)
            assert (done.stdout, done.stderr) == (f"{other}\n", "")


def test_a_machines_hosts_are_not_seen_outside_of_it(machine):
    assert machine.run("hostname").stdout == "head\n" and socket.gethostname() not in ("head", *machine.hosts)
    assert "bridge" in machine.run("ip", "link").stdout
    assert not Path("/sys/class/net/bridge").exists() and "10.77.0." not in Path("/etc/hosts").read_text()
    assert not [host for host in machine.hosts if Path("/run/netns", host).exists()]


def test_two_machines_do_not_share_hosts_and_a_host_can_be_lost(machine):
    other = Machine(num_hosts=2)
    try:
        assert other.hosts == ["node1", "node2"]
        other.lose("node2")
        done = other.run("ssh", "-o", "ConnectTimeout=5", "node2", "true", host="node1")
        assert done.returncode == 255 and "Connection refused" in done.stderr
        assert machine.run("ssh", "node2", "hostname").stdout == "node2\n"
    finally:
        other.close()


HOLD = "from machine import Machine; m = Machine(1); print(m._first, flush=True); input()"


def test_hosts_end_with_a_killed_session(machine):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        cwd=Path(__file__).parent,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        first = Path("/proc") / holder.stdout.readline().strip()
        identity = (first / "stat").read_text().split()[21]  # when it began: no other process that got its number
        os.kill(holder.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while (first / "stat").exists() and (first / "stat").read_text().split()[21] == identity:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_missing_programs_are_named():
    assert (
        "root" in why_not({"sh": "dash"})
        if os.geteuid()
        else why_not({"no-such-program": "its-package"}).endswith("apt-get install its-package")
    )
