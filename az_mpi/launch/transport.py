"""How a launch reaches its hosts: by ssh here, or through the folder of a rendezvous, see meeting.py."""

import threading

from az_mpi.core.problems import Refusal
from az_mpi.launch import check


class Ssh:
    """Hosts that ssh reaches; whether they are there is known by asking them only."""

    agent = None  # what mpirun calls in place of ssh
    knows = False  # whether `present` alone tells who is there
    shell = staticmethod(check.ssh)

    def present(self, names):
        """Return those of the hosts `names` of which it is worth asking."""
        return set(names)

    def attend(self, names):
        """Return (signals that mpirun is to get from elsewhere, whether one of the hosts `names` is known to be lost).
        Called every second or so, also between jobs."""
        return [], False


class Look(threading.Thread):
    """A question to hosts under way. found: what `check.ask` returns, once it has ended."""

    def __init__(self, ask_hosts, hosts):
        super().__init__(name="look", daemon=True)
        self.ask_hosts, self.hosts, self.found = ask_hosts, hosts, ({}, [])
        self.start()

    def run(self):
        try:
            self.found = self.ask_hosts(self.hosts)
        except (Refusal, OSError) as error:  # the run's folder fails: not the hosts' fault
            self.found = {}, [check.Problem("this machine", str(error), "try again")]
