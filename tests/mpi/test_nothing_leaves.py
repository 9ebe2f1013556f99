"""Nothing leaves a job: system calls show which addresses it reaches and which files it writes."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import system_calls
from jobs import ROOT, SMOKE, command

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(bool(system_calls.missing()), reason=system_calls.missing() or "-"),
    pytest.mark.xdist_group("system calls"),
]


@pytest.fixture
def trace(tmp_path):
    """Return trace(words, environment): run a command and return its Calls."""

    def trace(words, environment, **options):
        calls = Path(tempfile.mkdtemp(dir=tmp_path))
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        done = subprocess.run(
            [*system_calls.tracer(calls), *words],
            cwd=ROOT,
            env=environment | {"HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=280,
            **options,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return system_calls.read(calls)

    return trace


def elsewhere(calls, run, home):
    """Return what the calls write outside of a run's folder, of temporary folders and of caches."""
    allowed = [run, os.environ["NUMBA_CACHE_DIR"], "/dev", "/proc"]
    found = []
    for path in map(Path, system_calls.written(calls, ROOT)):
        in_temporary = path.is_relative_to(tempfile.gettempdir()) and not path.is_relative_to(home)
        on_the_way = any(Path(folder).is_relative_to(path) for folder in allowed)
        in_allowed = any(path.is_relative_to(folder) for folder in allowed)
        if not (in_temporary or on_the_way or in_allowed or "__pycache__" in path.parts):
            found.append(path)
    return found


def test_a_job_reaches_only_this_host_and_writes_only_its_own_files(trace, tmp_path):
    words, environment = command(2, ["run_dist.py", "--config_file", SMOKE, "--logdir", tmp_path / "run"])
    calls = trace(words, environment)
    assert any(path.startswith(str(tmp_path / "run" / "games")) for path in system_calls.written(calls, ROOT))
    assert any(call.name == "sendto" and "127." in call.text for call in calls), "no heartbeat was seen"
    assert system_calls.strangers(calls) == [] and elsewhere(calls, tmp_path / "run", tmp_path / "home") == []
    # Then commands that read the run.
    network = str(tmp_path / "run" / "network.onnx")
    for name, *options in (["play"], ["report", "--svg"], ["export", network, "--to", "onnx"]):
        words = [sys.executable, "-m", "az_mpi", name, str(tmp_path / "run"), *options]
        calls = trace(words, os.environ | {"PYTHONPATH": str(ROOT)}, input="quit\n")
        assert system_calls.strangers(calls) == [], name
        assert elsewhere(calls, tmp_path / "run", tmp_path / "home") == [], name


def test_one_rank_reaches_only_this_host_and_writes_only_its_own_files(trace, tmp_path):
    words = [sys.executable, "run_dist.py", "--config_file", SMOKE, "--logdir", str(tmp_path / "run")]
    calls = trace(words, dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    assert any(path.startswith(str(tmp_path / "run" / "games")) for path in system_calls.written(calls, ROOT))
    assert system_calls.strangers(calls) == [] and elsewhere(calls, tmp_path / "run", tmp_path / "home") == []


IMPORTS = """
import importlib, sys
import az_mpi
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
LIBRARIES = (
    "torch",
    "torch.utils.tensorboard",
    "numba",
    "numpy",
    "h5py",
    "pydantic",
    "safetensors.torch",
    "psutil",
    "mpi4py",
    "horovod.torch",
    "openvino",
    "onnxruntime",
    "pyspiel",
    "open_spiel",
    "bitbully",
    "chess",
)


def test_no_import_of_a_library_reaches_another_host_or_writes_to_the_home(trace, tmp_path):
    """These are the installed libraries of requirements.txt. A report of use may be sent some seconds later, or at the
    end."""
    there = [name for name in LIBRARIES if importlib.util.find_spec(name.partition(".")[0])]
    calls = trace([sys.executable, "-c", IMPORTS + "import time; time.sleep(3)", *there], os.environ)
    assert system_calls.strangers(calls) == [] and elsewhere(calls, tmp_path / "run", tmp_path / "home") == []


PROGRAM = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.77", 9))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"\\7example\\3com", ("127.0.0.1", 53))
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).connect(("::1", 9))
open("/dev/null", "w"); open("a", "w"); import os; os.mkdir(os.path.expanduser("~/b")); os.rename("a", "c"); open("c")
"""


def test_the_record_of_system_calls_shows_addresses_look_ups_and_files(tmp_path):
    """This tests the test's own reading of system calls."""
    words = [*system_calls.tracer(tmp_path), sys.executable, "-c", PROGRAM]
    subprocess.run(words, cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)}, check=True)
    calls = system_calls.read(tmp_path)
    assert [(call.name, "192.0.2.77" in call.text) for call in system_calls.strangers(calls)] == [
        ("connect", True),
        ("sendto", False),
    ]
    written = {path for path in system_calls.written(calls, tmp_path) if "__pycache__" not in path}
    assert written == {"/dev/null", *(str(tmp_path / name) for name in "abc")}
