"""The address at which all ranks reach root over TCP, for libraries that do not use MPI.

A host's name is no help: /etc/hosts often maps it to 127.0.1.1. Some of a host's addresses, such as those of container
bridges, cannot be reached from other hosts. So the ranks try root's addresses and use the first that all of them reach.
"""

import os
import socket

import psutil

from az_mpi.mpi.world import World

PROBE_S = 2.0  # timeout for an address whose packets a firewall drops
INTERFACES = "GLOO_SOCKET_IFNAME"  # names, separated by commas
CHOSEN = os.environ.get(INTERFACES, "")  # by the user


def meeting_address(world: World) -> str | None:
    """Return an IPv4 address of root that every rank reaches, or None. Collective over world."""
    server = socket.create_server(("", 0), backlog=4096) if world.is_root else None
    mine = [server.getsockname()[1], _addresses(len(set(world.hosts)) == 1)] if world.is_root else None
    port, addresses = world.share(mine)
    if world.local_rank == 0:  # one rank per host tries
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
    """Return this host's addresses on the interfaces that the user chose. By default those on loopback if no other host
    takes part (`alone`), else all others."""
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
    """Return (rank, index of the address) of every call. The callers have sent everything and hung up."""
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
            except (OSError, ValueError):  # not a call of a rank
                pass
