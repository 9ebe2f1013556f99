"""Exit codes that scripts, help texts and pages repeat are those of core/exit_codes.py."""

import re
import signal
from pathlib import Path

import pytest

from az_mpi.config import command_line
from az_mpi.core import exit_codes
from az_mpi.core.problems import NotNow, Refusal
from az_mpi.storage import verify

ROOT = Path(__file__).parents[2]
SCRIPT = (ROOT / "slurm/common.sh").read_text()
OF_RUN_DIST = {exit_codes.DONE, exit_codes.USAGE, exit_codes.INTERNAL, exit_codes.RESUMABLE, exit_codes.INTERRUPTED}


def test_codes_of_signals_are_those_of_a_shell():
    assert (exit_codes.INTERRUPTED, exit_codes.KILLED, exit_codes.STOPPED_EARLY[0]) == (130, 137, 128 + signal.SIGUSR2)


def test_the_batch_scripts_use_the_same_resumable_code():
    assert int(re.search(r"^RESUMABLE=(\d+)", SCRIPT, re.MULTILINE)[1]) == exit_codes.RESUMABLE


@pytest.mark.parametrize(
    "text, codes",
    [
        (command_line.EPILOG.partition("exit codes:")[2].partition("signals,")[0], OF_RUN_DIST),
        (
            verify.EPILOG.partition("exit codes:")[2],
            {exit_codes.DONE, exit_codes.PROBLEMS, exit_codes.USAGE, exit_codes.RESUMABLE},
        ),
        ((ROOT / "docs/trouble.md").read_text().partition("## Exit codes")[2].partition("\n## ")[0], OF_RUN_DIST),
    ],
    ids=["run_dist.py", "verify", "docs/trouble.md"],
)
def test_help_and_pages_list_all_exit_codes(text, codes):
    assert {int(code) for code in re.findall(r"^(?:\| |  )(\d+)\b(?! \+)", text, re.MULTILINE)} == codes


@pytest.mark.parametrize("kind, status", [(Refusal, exit_codes.USAGE), (NotNow, exit_codes.RESUMABLE), (Refusal, 99)])
def test_a_refusal_of_root_keeps_its_exit_status_on_every_rank(world, kind, status):
    def refuse():
        refusal = kind("why")
        refusal.status = status
        raise refusal

    with pytest.raises(kind, match="why") as caught:
        world.from_root(refuse)
    assert caught.value.status == status
