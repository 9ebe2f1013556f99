"""Another user of a machine, who connects to every port that listens here: python stranger.py PORTS SECONDS

PORTS: the ports, separated by commas, that listened before and are left alone. It says nothing to a port, or half a
frame, or garbage, with up to 40 connections a port at a time, and sends garbage in datagrams. It ends after SECONDS, or
when its standard input is closed, and prints {"tcp" or "udp": the ports that it has reached}.
"""

import json
import os
import select
import socket
import sys
import time

CONNECTIONS = 40  # a port
LISTENS = "0A"
SAID = (b"", b"\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000)


def listening(kind):
    """Return the addresses and ports of the IPv4 sockets that listen (tcp), or are bound (udp), on this machine."""
    found = set()
    with open(f"/proc/net/{kind}") as rows:
        for row in list(rows)[1:]:
            _, local, _, state, *_ = row.split()
            if kind == "udp" or state == LISTENS:
                address, port = local.split(":")
                number = bytes.fromhex(address)[::-1]
                found.add((socket.inet_ntoa(number) if any(number) else "127.0.0.1", int(port, 16)))
    return found


def main():
    left_alone = {int(port) for port in sys.argv[1].split(",")}
    until, reached, held = time.monotonic() + float(sys.argv[2]), {"tcp": set(), "udp": set()}, {}
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while time.monotonic() < until and not select.select([sys.stdin], [], [], 0.1)[0]:
        for place in listening("tcp"):
            connections = held.setdefault(place, [])
            if place[1] in left_alone or len(connections) >= CONNECTIONS:
                continue
            one = socket.socket()
            one.settimeout(0.2)
            try:
                one.connect(place)
                one.sendall(SAID[len(connections) % len(SAID)])
                reached["tcp"].add(place[1])
            except OSError:
                pass
            connections.append(one)
        for place in listening("udp"):
            if place[1] in left_alone:
                continue
            for size in (0, 1, 16, 200, 1400) * 20:
                try:
                    sender.sendto(os.urandom(size), place)
                    reached["udp"].add(place[1])
                except OSError:
                    pass
    print(json.dumps({kind: sorted(ports) for kind, ports in reached.items()}))


if __name__ == "__main__":
    main()
