"""The facts of a host."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import az_mpi
from az_mpi.core.host_facts import HostFacts

ROOT = Path(__file__).parents[2]


def test_facts_of_this_host_survive_json():
    facts = HostFacts.look(ROOT)
    assert facts.python == platform.python_version() and facts.az_mpi == az_mpi.__version__ and facts.cores
    assert facts.packages["numpy"] and {"run_dist.py", "az_mpi/core/host_facts.py"} < set(facts.sources)
    assert HostFacts(**json.loads(json.dumps(facts.to_dict()))) == facts


def test_what_a_host_lacks_is_none_or_empty(tmp_path):
    """A Python without packages runs the text of the file, for a folder without az_mpi."""
    program = (ROOT / "az_mpi/core/host_facts.py").read_text() + f"\nprint(HostFacts.look({str(tmp_path)!r}))\n"
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=program, capture_output=True, text=True, check=True)
    assert "az_mpi=None, sources={}" in done.stdout and "'torch': None" in done.stdout and "networks=[]" in done.stdout


def test_the_hash_of_sources_depends_on_names_and_contents(tmp_path):
    def sources():
        return HostFacts.look(tmp_path).sources_hash()

    (tmp_path / "az_mpi").mkdir()
    (tmp_path / "az_mpi/a.py").write_text("x = 1")
    first = sources()
    (tmp_path / "az_mpi/a.txt").write_text("no source")
    assert sources() == first
    (tmp_path / "az_mpi/a.py").rename(tmp_path / "az_mpi/b.py")
    second = sources()
    (tmp_path / "az_mpi/b.py").write_text("x = 2")
    assert len({first, second, sources()}) == 3
