"""What a host's name means, as users write it: in the keys of a configuration and in lists for mpirun and launch."""

import socket
from collections.abc import Mapping


def is_here(name: str) -> bool:
    """Return whether a host's name means this machine: its full or its short name, an address or any name of an
    address to which a socket can be bound here."""
    if name.lower() in ("localhost", socket.gethostname().lower(), socket.gethostname().partition(".")[0].lower()):
        return True
    try:
        address = socket.gethostbyname(name)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
            listener.bind((address, 0))
        return True
    except (OSError, UnicodeError):
        return False


def value_here(values: Mapping[str, float], default: float) -> float:
    """Return the value of the first name in {host's name: value} that means this machine, else the default."""
    return next((value for name, value in values.items() if is_here(name)), default)
