"""How launch reaches its hosts: by ssh (in this file), or through the folder of a rendezvous (meeting.py)."""

import threading
from collections.abc import Callable, Iterable, Sequence
from signal import Signals

from az_mpi.core.problems import Refusal
from az_mpi.launch import check
from az_mpi.launch.hosts import Host


class Ssh:
    """Hosts reached by ssh. Only their answers show whether they are up."""

    agent = None  # what mpirun calls in place of ssh
    knows = False  # whether `present` alone shows which hosts are up
    shell = staticmethod(check.ssh)

    def present(self, names: Iterable[str]) -> set[str]:
        """Return those of the hosts `names` that may be up, so that they are asked."""
        return set(names)

    def poll(self, names: set[str]) -> tuple[list[Signals], bool]:
        """Return (signals for mpirun from other nodes, whether one of the hosts `names` is known to be lost). Called
        about every second, also between jobs."""
        return [], False


class Question(threading.Thread):
    """Asks hosts in the background. found: what `check.ask` returns, once this thread has ended."""

    def __init__(
        self, ask_hosts: Callable[[Sequence[Host]], tuple[check.Answers, list[check.Problem]]], hosts: Sequence[Host]
    ):
        super().__init__(name="ask hosts", daemon=True)
        self.ask_hosts = ask_hosts
        self.hosts = hosts
        self.found: tuple[check.Answers, list[check.Problem]] = ({}, [])
        self.start()

    def run(self) -> None:
        try:
            self.found = self.ask_hosts(self.hosts)
        except (Refusal, OSError) as error:  # the run's folder fails, not a host
            self.found = {}, [check.Problem("this machine", str(error), "try again")]
