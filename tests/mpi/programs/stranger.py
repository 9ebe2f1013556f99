"""Another user of a machine, who sends garbage to ports of UDP: python stranger.py

Reads lines of JSON, [[address, port], …], and sends each port many datagrams of several sizes. At the end of its input
it prints the number of ports that it has sent to.
"""

import json
import os
import socket
import sys


def main():
    reached = set()
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for line in sys.stdin:
        for place in map(tuple, json.loads(line)):
            for size in (0, 1, 16, 200, 1400) * 100:
                try:
                    sender.sendto(os.urandom(size), place)
                    reached.add(place)
                except OSError:
                    pass
    print(len(reached))


if __name__ == "__main__":
    main()
