"""Where ranks find their root over TCP, for libraries that do not talk through MPI.

A host's name often leads nowhere (127.0.1.1 in many an /etc/hosts) and a host has addresses that others cannot reach,
such as those of bridges for containers. So the ranks try: the first of root's addresses that all of them reach is used.
"""

import os
import socket

import psutil

from az_mpi.mpi.world import World

PROBE_S = 2.0  # an address that a firewall keeps silent about is given up after this
INTERFACES = "GLOO_SOCKET_IFNAME"  # names, separated by commas
CHOSEN = os.environ.get(INTERFACES, "")  # by the user


def meeting_address(world: World) -> str | None:
    """Return an IPv4 address of root that every rank reaches, None where there is none. Collective over world."""
    server = socket.create_server(("", 0), backlog=4096) if world.is_root else None
    mine = [server.getsockname()[1], _addresses(len(set(world.hosts)) == 1)] if world.is_root else None
    port, addresses = world.share(mine)
    if world.local_rank == 0:  # one rank of a host speaks for all of them
        for index, address in enumerate(addresses):
            _call(address, port, f"{world.rank} {index}")
    world.barrier()
    chosen = None
    if world.is_root:
        with server:
            calls = _calls(server)
        hosts = {world.hosts.index(host) for host in world.hosts}
        reached = ({rank for rank, k in calls if k == index} for index in range(len(addresses)))
        chosen = next((address for address, ranks in zip(addresses, reached) if ranks >= hosts), None)
    return world.share(chosen)


def interface_towards(address: str) -> str:
    """Return the name of the interface through which this host reaches `address`, or what the user chose instead."""
    if CHOSEN:
        return CHOSEN
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing
        source = probe.getsockname()[0]
    return next(name for name, address in _interfaces() if address == source)


def _interfaces():
    """Return (name, IPv4 address) of every address of this host."""
    found = psutil.net_if_addrs().items()
    return [(name, entry.address) for name, entries in found for entry in entries if entry.family == socket.AF_INET]


def _addresses(alone):
    """Return this host's addresses on the interfaces the user chose, else on loopback where no other host takes part,
    else on the others."""
    if CHOSEN:
        return [address for name, address in _interfaces() if name in CHOSEN.split(",")]
    return [address for _, address in _interfaces() if address.startswith("127.") == alone]


def _call(address, port, text):
    try:
        with socket.create_connection((address, port), PROBE_S) as connection:
            connection.sendall(text.encode())
    except OSError:
        pass


def _calls(server):
    """Return the (rank, index) of every call that has come in. The callers have said all and hung up."""
    calls = []
    server.setblocking(False)
    while True:
        try:
            connection, _ = server.accept()
        except BlockingIOError:
            return calls
        with connection:
            connection.settimeout(PROBE_S)
            try:
                rank, index = connection.recv(64).split()
                calls.append((int(rank), int(index)))
            except (OSError, ValueError):  # not one of ours
                pass
