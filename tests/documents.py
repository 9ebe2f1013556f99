"""The commands of the documents: every line between fences is run by a test, marked in the text, or in BY_HAND."""

import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NAMES = [
    "README.md",
    "INSTALL.md",
    "CONTRIBUTING.md",
    "slurm/README.md",
    "docker/README.md",
    "examples/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")),
]
RESULTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs/results").glob("*.md"))
NAMES += RESULTS
ABOUT_HOSTS = [f"docs/{name}.md" for name in ("hosts", "gpus", "site", "trouble")]
# Beginnings of commands that no test of documents runs, and why.
BY_HAND = {
    "README.md": {
        "make train": "minutes; its set-up and its program are what `make test` runs",
        "make test": "CI runs it",
    },
    "INSTALL.md": dict.fromkeys(
        [
            "apt install",
            "make setup MPI_HOME=",
            "python3 -m venv venv",
            "source venv/",
            "pip ",
            "tar x",
            "cd ",
            "python ../tools/patch_horovod.py",
            "HOROVOD_WITH_MPI=1",
            "./configure",
            "make -j2",
            "make install",
            "make setup HOROVOD_GPU",
        ],
        "changes the machine or takes minutes: run by hand when tools/setup.sh changes; `make setup` does the same",
    ),
    "docs/site.md": {
        "make test-mpich": "makes a second environment; run by hand",
        ".venv-mpich/bin/mpirun": "needs that environment",
        "docker ": "`make test-docker` runs them, by hand",
    },
    "docs/operations.md": {
        "tensorboard": "serves until Ctrl-C",
        "python -m az_mpi suggest": "takes a minute; tests/unit/test_suggest.py runs a short one",
        "python -m az_mpi compare": "takes minutes; tests/mpi/test_compare.py runs a short one",
    },
    "docs/scaling.md": {
        "python -m az_mpi scaling": "takes minutes; tests/mpi/test_scaling.py runs a short one",
        "python benchmarks/": "takes minutes; tests/mpi/test_benchmarks.py runs short ones",
    },
    "docs/results/connect4.md": {
        "python -m az_mpi compare": "takes minutes; tests/mpi/test_compare.py runs a short one"
    },
    "docs/results/faults.md": {
        "make faults": "`make test-rest` runs what it runs; faults-long takes hours, and tests/faults tests its parts",
        "python tests/faults": "takes a trial or more; tests/faults/test_faults.py runs some",
    },
    "CONTRIBUTING.md": {"make ": "CI runs some of these, a developer the others"},
    "examples/README.md": {"mpirun ": "tests/mpi/test_examples.py runs them"},
}
# What the documents' configurations are in tests: learning is for other tests.
TINY = """{"game": "tictactoe", "iterations": 1, "network": {"blocks": 1, "channels": 8}, "search": {"simulations": 4},
"selfplay": {"num_games": 64, "parallel_games": 16}, "replay": {"window_min": 100},
"train": {"batch_size": 32, "replay_ratio": 16.0},
"evaluate": {"opponents": [], "solver_positions": 0}, "report": {"tensorboard": false}}
"""


class Command(NamedTuple):
    """A command as it stands in a document; `block` counts the fences, `marked` says that the text says it was not
    run, or what it needs."""

    document: str
    block: int
    text: str
    marked: bool

    @property
    def by_hand(self):
        """The entry of BY_HAND that it is one of, or None."""
        return next((start for start in BY_HAND.get(self.document, ()) if self.text.startswith(start)), None)

    @property
    def place(self):
        """Where tests run it: "here", on "hosts", in "slurm"; None for what is marked or run by hand."""
        if self.marked or self.by_hand:
            return None
        if "sbatch" in self.text:
            return "slurm"
        several = self.document in ABOUT_HOSTS or re.search(r"node\d|10\.0\.0\.|--rendezvous", self.text)
        return "hosts" if several else "here"


def commands(name):
    """Return the Commands of a document, in order. A block that begins with ```text is what a command prints."""
    found, heading, paragraph, ended, section_marked, block, inside = [], "", [], False, False, 0, None
    for line in (ROOT / name).read_text().splitlines():
        if line.strip().startswith("```"):
            if inside is None:
                inside, language = [], line.strip()[3:]
                continue
            if not language:
                block += 1
                about = f"{heading} {' '.join(paragraph)}"
                found += [Command(name, block, text, section_marked or is_marked(text, about)) for text in join(inside)]
            inside, paragraph = None, []
        elif inside is not None:
            inside.append(line)
        elif line.startswith("#"):
            heading, paragraph, section_marked = line, [], False
        elif not line.strip():
            ended = True
        else:
            if ended:  # a paragraph counts for the block after it
                paragraph, ended = [], False
            section_marked = section_marked or not paragraph and line.startswith("*Not run*")
            paragraph.append(line)
    return found


def is_marked(text, about):
    """Return whether a command is marked, itself or in the text `about` it. *not run*: `this` is of `this` alone."""
    if named := re.findall(r"\*not run\*: `([^`]*)`", about, re.IGNORECASE):
        return any(text.startswith(start) for start in named)
    return bool(re.search(r"\*(not run|needs )", about, re.IGNORECASE))


def join(lines):
    """Return the commands of a block's lines: continued lines and loops are one command, comments none."""
    whole, depth = [], 0
    for line in lines:
        going_on = whole and (depth or whole[-1].endswith("\\"))
        if going_on:
            whole[-1] += "\n" + line
        elif line.strip() and not line.strip().startswith("#"):
            whole.append(line.strip())
        depth += len(re.findall(r"^\s*for ", line)) - len(re.findall(r"^\s*done\b", line))
    return whole


def make_checkout(folder):
    """Make a folder like a checkout after `make setup`, whose configurations are tiny."""
    folder.mkdir()
    for name in ("az_mpi", "examples", "slurm", "hostfiles", "run_dist.py"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    shutil.copytree(ROOT / "configs", folder / "configs")
    for path in (folder / "configs").iterdir():
        path.write_text(TINY)
    return folder
