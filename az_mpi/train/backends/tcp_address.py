"""The address at which all ranks reach root over TCP, for libraries that do not use MPI.

A host's name is no help: /etc/hosts often maps it to 127.0.1.1. Some of a host's addresses, such as those of container
bridges, cannot be reached from other hosts. So the ranks try root's addresses and use the first that all of them reach.
"""

import hmac
import os
import secrets
import selectors
import socket
import time

import psutil

from az_mpi.mpi.world import World

PROBE_S = 2.0  # timeout for an address whose packets a firewall drops, and for all connections of strangers together
CALL_BYTES = 64  # a call is shorter
INTERFACES = "GLOO_SOCKET_IFNAME"  # names, separated by commas
CHOSEN = os.environ.get(INTERFACES, "")  # by the user


def meeting_address(world: World) -> str | None:
    """Return an IPv4 address of root that every rank reaches, or None. Collective over world.

    Root listens at all its addresses meanwhile. A call of a rank begins with a secret that MPI has brought it."""
    server = socket.create_server(("", 0), backlog=4096) if world.is_root else None
    mine = None
    if server:
        mine = [server.getsockname()[1], _addresses(len(set(world.hosts)) == 1), secrets.token_hex(16)]
    port, addresses, secret = world.share(mine)
    if world.local_rank == 0:  # one rank per host tries
        for index, address in enumerate(addresses):
            _call(address, port, f"{secret} {world.rank} {index}")
    world.barrier()
    chosen = None
    if server:
        with server:
            calls = _calls(server, secret)
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


def _calls(server, secret):
    """Return (rank, index of the address) of every call. The callers have sent everything and hung up; strangers may
    have connected too, and say nothing or something else."""
    until, said = time.monotonic() + PROBE_S, {}
    with selectors.DefaultSelector() as selector:
        server.setblocking(False)
        while time.monotonic() < until:
            try:
                connection, _ = server.accept()
            except OSError:  # no more of them; or one that has gone, or no file is left for one
                break
            connection.setblocking(False)
            said[connection] = b""
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map() and (left_s := until - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                part = _received(key.fileobj)
                said[key.fileobj] += part
                if not part or len(said[key.fileobj]) > CALL_BYTES:
                    selector.unregister(key.fileobj)
    for connection in said:
        connection.close()
    words = [text.split() for text in said.values()]
    return [(int(rank), int(index)) for key, rank, index in (w for w in words if _is_call(w, secret))]


def _received(connection):
    """Return what has arrived at a connection; b"" at its end."""
    try:
        return connection.recv(CALL_BYTES)
    except OSError:
        return b""


def _is_call(words, secret):
    return len(words) == 3 and hmac.compare_digest(words[0], secret.encode())
