"""Ranks that are forked from a process which has loaded the libraries, so that not each rank spends two seconds on it.

mpirun starts a stand-in in the place of `python WORDS`. The stand-in gives its words, folder, environment, umask,
standard input and outputs to the template, which forks the rank. It passes signals on to the rank and ends as the rank
does. Where the stand-in is killed, the template kills the rank.

    python -c "import template; template.main()" SOCKET    the template, until its standard input ends
    python -IS template.py SOCKET WORDS…                   a stand-in
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Template:
    """A template, which starts when the first rank is asked for. environment: that it loads the libraries in."""

    def __init__(self, environment):
        import tempfile  # here and below, since a stand-in has to start soon

        self.environment, self.folder, self.process = environment, tempfile.mkdtemp(prefix="az_mpi-"), None

    def words(self):
        """Return the words that start a rank in the place of `python`."""
        import subprocess

        if self.process is None:
            code, socket_of_it = "import template; template.main()", os.path.join(self.folder, "socket")
            paths = [os.path.dirname(os.path.abspath(__file__)), self.environment["PYTHONPATH"]]
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, socket_of_it],
                env=self.environment | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self.process.stdout.readline() == "ready\n"
        return [sys.executable, "-IS", os.path.abspath(__file__), os.path.join(self.folder, "socket")]

    def close(self):
        """End the template."""
        import shutil

        if self.process:
            self.process.communicate()
        shutil.rmtree(self.folder)


def stand_in(address, words):
    """Have the template run `python WORDS` and end as that does."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)

        def pass_on(number, frame):
            try:
                link.send(bytes([number]))
            except OSError:
                pass  # the rank has ended

        for number in PASSED_ON:
            signal.signal(number, pass_on)
        request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ), "parent": os.getppid()}
        request = json.dumps(request | {"umask": os.umask(0)}).encode()
        socket.send_fds(link, [len(request).to_bytes(4, "big")], [0, 1, 2])
        link.sendall(request)
        status = int(link.recv(16) or b"1")
    if status < 0:
        if -status in PASSED_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def main():
    """Load the libraries, fork a rank for each stand-in that asks for one, and be that rank."""
    import gc

    load()
    gc.freeze()
    sys.path.remove(os.path.dirname(__file__))  # a rank does not find the modules of the tests
    words = serve(sys.argv[1])
    if words is not None:
        become(words)


def load():
    """Import what a rank imports, but for MPI and Horovod, and have Numba prepare its compiler."""
    import importlib

    for name in ("az_mpi.modes", "openvino", "scipy.linalg.cython_blas", "torch.utils.tensorboard"):
        importlib.import_module(name)

    import numba

    numba.njit(lambda number: number + 1)(1)
    assert not {"mpi4py.MPI", "horovod"} & sys.modules.keys()


def serve(address):
    """Fork ranks until standard input ends. Return in each rank its words, and None in the template at its end."""
    import selectors

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    print("ready", flush=True)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj is not listener:
                    key.data()
                    continue
                link, _ = listener.accept()
                length, files, _, _ = socket.recv_fds(link, 4, 3)
                text = link.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
                if len(files) < 3 or not text.endswith(b"}"):  # the stand-in was killed while it asked
                    for file in files:
                        os.close(file)
                    link.close()
                    continue
                request = json.loads(text)
                process = os.fork()
                if not process:
                    for other in [*selector.get_map().values()]:
                        if other.fileobj != 0:
                            os.close(other.fd)
                    link.close()
                    for number, file in enumerate(files):
                        os.dup2(file, number)
                        os.close(file)
                    os.setpgid(0, 0)
                    os.chdir(request["folder"])
                    os.umask(request["umask"])
                    os.environ.clear()
                    os.environ.update(request["environment"])
                    if "tempfile" in sys.modules:
                        sys.modules["tempfile"].tempdir = None  # TMPDIR may be another one
                    os.getppid = lambda parent=request["parent"]: parent  # mpirun, which a rank looks for
                    return request["words"]
                for file in files:
                    os.close(file)
                watch(selector, link, process)


def watch(selector, link, process):
    """Pass on to a rank the signals that come by its link, kill it where that ends, and send its exit status there."""
    import selectors

    end = os.pidfd_open(process)

    def pass_on():
        if link.fileno() < 0:
            return  # the rank has ended since the selector looked
        try:
            numbers = link.recv(64)
        except ConnectionError:
            numbers = b""
        for number in numbers or [signal.SIGKILL]:
            os.kill(process, number)

    def finish():
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        selector.unregister(end)
        selector.unregister(link)
        os.close(end)
        try:
            link.sendall(str(status).encode())
        except ConnectionError:
            pass  # the stand-in was killed
        link.close()

    selector.register(link, selectors.EVENT_READ, pass_on)
    selector.register(end, selectors.EVENT_READ, finish)


def become(words):
    """Do what `python WORDS` does: run a file, `-c CODE` or `-m MODULE`."""
    import runpy
    import types

    if words[0] == "-m":
        sys.path[0], sys.argv = os.getcwd(), words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if words[0] == "-c":
        sys.path[0], sys.argv, name, text = "", ["-c", *words[2:]], "<string>", words[1]
    else:
        sys.path[0], sys.argv, name = os.path.dirname(os.path.abspath(words[0])), words, words[0]
        with open(name, "rb") as file:
            text = file.read()
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=name, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(compile(text, name, "exec"), module.__dict__)


if __name__ == "__main__":
    stand_in(sys.argv[1], sys.argv[2:])
