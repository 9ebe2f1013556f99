"""What the kernel tells of processes of this machine."""

STATE, PARENT, STARTED = 0, 1, 19  # fields of `stat`; STARTED in clock ticks since the machine was booted


def stat(pid: int | str) -> tuple[str, list[str]]:
    """Return (name, fields from the state on) of a process, from /proc/PID/stat. Raises OSError if there is none."""
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        name, _, rest = file.read().partition("(")[2].rpartition(")")  # a name may hold anything, brackets too
    return name, rest.split()
