"""Connect to torch's store at an address of this host for which no name server answers."""

import socket
from datetime import timedelta

import az_mpi  # noqa: F401  before torch: it sets what torch reads once

import torch.distributed as dist  # isort: skip

try:
    socket.getnameinfo(("127.0.0.2", 1), 0)
    raise SystemExit("127.0.0.2 has a name here: nothing is tested")
except socket.gaierror:
    pass
server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
client = dist.TCPStore("127.0.0.2", server.port, is_master=False, timeout=timedelta(seconds=60))
client.set("key", "value")
print(server.get("key").decode())
