"""The hosts that launch may use, and which of them a job uses when hosts are lost, come back, or are added."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from az_mpi.core.problems import Refusal, escape
from az_mpi.launch import hosts as listed
from az_mpi.launch.hosts import Host

SEARCH_EVERY_S = 30  # hosts that are not in the job are asked so often
RETURN_MAX_S = 3600  # the longest wait before a host that was lost may be used again


class HostPool:
    """The hosts from launch's options, as changed by requests and losses.

    read: () -> the Hosts of --hosts, or of the hostfile as it is now. nodes, gpus, np: options of launch; the job
    uses the first `nodes` hosts that answer, and at most `np` ranks.
    """

    def __init__(
        self,
        read: Callable[[], list[Host]],
        nodes: int | None = None,
        gpus: int | None = None,
        np: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.read = read
        self.nodes = nodes
        self.gpus = gpus
        self.np = np
        self.clock = clock
        self.given = self._slotted(read())
        self.seen: list[Host] | None = None  # by the newest `reread`
        self.added: dict[str, Host] = {}  # by name
        self.removed: set[str] = set()  # names
        self.losses: dict[str, tuple[int, float]] = {}  # by name: (how often the host was lost, when last)

    def wanted(self) -> list[Host]:
        """Return the Hosts that the job should use, those of the options first."""
        kept = [self.added.get(host.name, host) for host in self.given if host.name not in self.removed]
        names = {host.name for host in kept}
        return kept + [host for name, host in self.added.items() if name not in names]

    def choose(self, answering: Collection[str]) -> tuple[list[Host], int]:
        """Return (Hosts with their slots, number of ranks) of a job on those of the wanted hosts whose names are
        `answering`; ([], 0) without any."""
        usable = [host for host in self.wanted() if host.name in answering]
        if not usable:
            return [], 0
        chosen, slots = listed.choose(usable, self.nodes and min(self.nodes, len(usable)), self.gpus)
        return chosen, min(self.np or slots, slots)

    def reread(self) -> None:
        """Use the hostfile as it is now, once two reads were equal: then nobody is writing to it."""
        try:
            now = self.read()
            slotted = self._slotted(now)
        except Refusal:
            return
        if now == self.seen:
            self.given = slotted
        self.seen = now

    def lose(self, names: Iterable[str]) -> None:
        """Note that hosts of the job do not answer."""
        for name in names:
            self.losses[name] = (self.losses.get(name, (0, 0.0))[0] + 1, self.clock())

    def may_return(self, name: str) -> bool:
        """Return whether a host may be used again; the wait grows each time that it is lost."""
        num, last = self.losses.get(name, (0, 0.0))
        return num == 0 or self.clock() - last >= min(SEARCH_EVERY_S * 2 ** (num - 1), RETURN_MAX_S)

    def check(self, add: Sequence[Host], remove: Sequence[str]) -> None:
        """Raise Refusal where Hosts cannot be added, or names removed."""
        names = [host.name for host in self.wanted()]
        shown = ", ".join(names)
        for name in remove:
            if name not in names:
                raise Refusal(f"--remove {escape(name)}: not among the hosts of this run: {shown}")
        if not set(names) - set(remove) | {host.name for host in add}:
            raise Refusal(f"--remove: no host would be left of {shown}\n  to stop the run: kill -TERM its launch")
        for host in self.with_slots(add):
            if host in self.wanted():
                raise Refusal(f"--add {host}: it is among the hosts already: {', '.join(map(str, self.wanted()))}")

    def with_slots(self, add: Sequence[Host]) -> list[Host]:
        """Return Hosts with the slots that they get: a host given without slots keeps its own. Raises Refusal where
        --gpus says otherwise."""
        now = {host.name: host for host in self.wanted()}
        return self._slotted([host if host.slots else now.get(host.name, host) for host in add])

    def _slotted(self, hosts):
        return listed.choose(hosts, gpus=self.gpus)[0] if hosts else []

    def change(self, add: Sequence[Host], remove: Sequence[str]) -> None:
        """Add Hosts and remove names for good. After hosts were added, --nodes and --np no longer limit the job."""
        add = self.with_slots(add)
        for name in remove:
            self.added.pop(name, None)
            self.removed.add(name)
        for host in add:
            self.added[host.name] = host
            self.removed.discard(host.name)
            self.losses.pop(host.name, None)
        if add:
            self.nodes = self.np = None
