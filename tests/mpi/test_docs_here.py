"""The documents' commands for one machine are run as they are written, with tiny configurations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents import NAMES, commands, make_checkout
from marks import slow

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(600)]

HERE = {name: [command.text for command in commands(name) if command.place == "here"] for name in NAMES}


@pytest.mark.parametrize("name", [name if name == "docs/operations.md" else slow(name) for name in NAMES if HERE[name]])
def test_every_command_of_a_page_succeeds_as_it_is_written(name, tmp_path):
    checkout = make_checkout(tmp_path / "checkout")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OMPI_")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    lines = HERE[name]
    if any("runs/connect4_quick" in line for line in lines):  # what `make train` leaves
        lines = ["python run_dist.py --config_file configs/connect4_quick.json", *lines]
    script = ["set -euxo pipefail", *lines, "echo all done"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("all done\n")
