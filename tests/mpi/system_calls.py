"""What a program opens, by its system calls: strace's record of it and of all of its children."""

import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import NamedTuple

import psutil

CALLS = (
    "connect sendto sendmsg sendmmsg open openat openat2 creat mkdir mkdirat rename renameat renameat2 link "
    "linkat symlink symlinkat truncate mknod mknodat"
).split()
ADDRESS = re.compile(r'sa_family=AF_INET6?\b.*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)')
LOOK_UP = re.compile(r"->\[?[0-9a-f.:]+\]?:53\]|sin6?_port=htons\(53\)")  # of a socket as -yy shows it, or of a call
# A path, after the folder that it is relative to, if it has one: openat(AT_FDCWD</folder>, "name", …
PATH = re.compile(r'(?:<((?:[^>\\]|\\.)*)>, )?"((?:[^"\\]|\\.)*)"')
WRITES = re.compile(r"\bO_(WRONLY|RDWR|CREAT|TMPFILE)\b")


class Call(NamedTuple):
    """A successful system call, or one under way: its name and the text that strace shows."""

    name: str
    text: str


def missing():
    """Return why system calls cannot be recorded here, or ""."""
    if not shutil.which("strace"):
        return "strace is not installed"
    done = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return f"strace cannot trace here (ptrace): {done.stderr.strip()[-200:]}" if done.returncode else ""


def tracer(folder):
    """Return the words before a command that make strace write a file for each of its threads into `folder`."""
    # Of older systems' calls a processor may have none: "?".
    traced = ",".join(f"?{name}" for name in CALLS)
    known = subprocess.run(["strace", "--help"], capture_output=True, text=True).stdout
    fast = ["--seccomp-bpf"] if "--seccomp-bpf" in known else []  # then the other calls do not stop the program
    return ["strace", *fast, "-ff", "-qq", "-yy", "-s", "300", "-e", f"trace={traced}", "-o", str(folder / "calls")]


def read(folder):
    """Return the Calls that `tracer` has recorded, without those that failed to open a file."""
    found = []
    for path in sorted(folder.glob("calls.*")):
        for line in path.read_text(errors="replace").splitlines():
            name, _, text = line.partition("(")
            if name in CALLS and not re.search(r"= -1 (ENOENT|EEXIST|EACCES|EISDIR|ENXIO|EINVAL|ENOTDIR)", text):
                found.append(Call(name, text))
    return found


def strangers(calls):
    """Return the calls that reach for an address that is not this host's, or ask a server for another name than this
    host's own."""
    own = {row.address.partition("%")[0] for rows in psutil.net_if_addrs().values() for row in rows}
    own_name = socket.gethostname().partition(".")[0]
    found = []
    for call in calls:
        if LOOK_UP.search(call.text):
            if call.name != "connect" and own_name not in call.text:
                found.append(call)
        elif address := ADDRESS.search(call.text):
            if address[1] not in own | {"0.0.0.0", "::"} and not address[1].startswith("127."):
                found.append(call)
    return found


def written(calls, cwd):
    """Return the paths of files and folders that the calls make, open for writing or rename. cwd: of the program."""
    found = set()
    for name, text in calls:
        if not (name.startswith(("connect", "send")) or name.startswith("open") and not WRITES.search(text)):
            # Of a rename or link both names; of links of symbols the first is only text.
            for folder, path in PATH.findall(text)[name.startswith("symlink") :]:
                found.add(str(Path(cwd, folder, path)))
    return found
