"""What launch asks of a host before a job. The text of this file is sent to that host's Python, after the text of
core/host_facts.py: it uses the standard library only, and reports what is missing instead of raising an error."""

import json
import os
import signal
import subprocess
import time

MARK = "az_mpi-probe "  # begins the line with the answer: a log-in may print other lines
LAUNCH = "AZ_MPI_LAUNCH"  # in the environment of every rank that launch starts: its id
# The token is looked for so often, with pauses, since a network file system may show a new file late.
TRIES, PAUSE_S = 5, 0.5


def look(asked: dict) -> dict:
    """Return what this host finds, JSON-able: {"left": the number of processes that could not be killed, "mpirun": the
    first line of `mpirun --version`, "cwd": whether the current folder exists, "token": what is wrong with the run's
    folder, "" if nothing is, "gpus": how many torch sees, None if they are not counted}.

    asked: {"checkout", "cwd", "mpirun": paths, "token": [path, text] or None, "gpus": whether to count them,
    "end": the id of a launch whose ranks are killed, or None}
    """
    return {
        "left": _end(asked["end"]) if asked["end"] else 0,
        "mpirun": _first_line([asked["mpirun"], "--version"]),
        "cwd": os.path.isdir(asked["cwd"]),
        "token": asked["token"] and _token(*asked["token"]),
        "gpus": _gpus() if asked["gpus"] else None,
    }


def answer(facts: dict, asked: dict) -> None:
    """Print what launch reads. facts: of this host, JSON-able."""
    print(MARK + json.dumps({**look(asked), "facts": facts}), flush=True)


def _first_line(command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
        return (done.stdout.splitlines() or [None])[0]
    except (OSError, subprocess.SubprocessError):
        return None


def _token(path, text):
    """Return "" if this host sees the launcher's file and may write to its folder, else what is wrong."""
    folder = os.path.dirname(path)
    for _ in range(TRIES):
        if not os.path.isdir(folder):
            return f"there is no folder {folder}"
        try:
            with open(path, encoding="utf-8") as file:
                if file.read() == text:
                    return "" if os.access(folder, os.W_OK) else f"{folder} cannot be written to"
        except OSError:
            pass
        time.sleep(PAUSE_S)
    return f"{folder} is another folder there: a file that the first host wrote does not appear in it"


def _gpus():
    """Return how many GPUs torch sees, as run_dist.py will; None without torch."""
    try:
        import torch

        return torch.cuda.device_count()
    except (ImportError, OSError, RuntimeError):
        return None


def _end(launch):
    """Kill this user's processes here that belong to a launch; return how many are still there in the end."""
    ours = f"{LAUNCH}={launch}".encode()
    for _ in range(TRIES * 10):
        left = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if os.stat(f"/proc/{name}").st_uid == os.geteuid() and ours in file.read().split(b"\0"):
                        left.append(name)
                        os.kill(int(name), signal.SIGKILL)
            except OSError:
                pass  # another user's, or gone
        if not left:
            break
        time.sleep(PAUSE_S / 5)
    return len(left)
