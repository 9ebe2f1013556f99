"""The documents: every command has somebody who runs it, every link leads somewhere, every option exists."""

import re
from pathlib import Path

import pytest
from documents import BY_HAND, NAMES, ROOT, commands, is_marked, join

from az_mpi.config import command_line
from az_mpi.config.load import KEYS
from az_mpi.launch import launcher

WRITTEN = """# A

Run (*not run*: `b`):

FENCE
a \\
  --x
# no
b 1
FENCE

FENCE
for k in 1; do
  d
done
FENCE

FENCEtext
out
FENCE

## B

*Not run* here. Else

more:

   FENCE
   e
   FENCE

## C

FENCE
f
FENCE
"""
EVERY = [command for name in NAMES for command in commands(name)]


def test_every_command_is_run_or_marked():
    assert len(EVERY) > 80
    assert {command.place for command in EVERY} == {"here", "hosts", "slurm", None}
    for name, starts in BY_HAND.items():  # nothing stays here that the documents no longer say
        used = {command.by_hand for command in commands(name)}
        assert set(starts) <= used, f"{name}: {set(starts) - used}"


def test_documents_are_read_as_they_are_written(tmp_path):
    """Of the tests' own reading."""
    path = tmp_path / "a.md"
    path.write_text(WRITTEN.replace("FENCE", "```"))
    found = [(command.block, command.text, command.marked) for command in commands(path)]
    assert found == [(1, "a \\\n  --x", False), (1, "b 1", True), (2, "for k in 1; do\n  d\ndone", False),
                     (3, "e", True), (4, "f", False)]
    assert is_marked("a", "(*needs a GPU* of its own)") and not is_marked("a", "it needs nothing and is not run")
    assert join(["a", "", "b"]) == ["a", "b"]


def anchors(path):
    """Return what GitHub makes of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def test_the_page_of_the_configuration_is_what_the_schema_says():
    page = (ROOT / "docs/configuration.md").read_text()
    made = command_line.help_config_markdown()
    assert page == made, "run: python run_dist.py --help_config_markdown >docs/configuration.md"
    for name, key in KEYS.items():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
        assert key.description in row and key.allowed in row and row.count(" | ") == 3
        assert row.startswith(f"| `{name}` * |") == key.may_change


def test_options_and_keys_of_the_tables_exist():
    """In docs/coming-from.md, the right column."""
    parsers = (command_line._parser(), launcher._parser())
    options = {name for parser in parsers for action in parser._actions for name in action.option_strings}
    options |= {"--watch", "--json"}  # of status
    ours = [line.split(" | ", 1)[1] for line in (ROOT / "docs/coming-from.md").read_text().splitlines()
            if line.startswith("| ") and not line.startswith("| there")]
    assert len(ours) > 40
    for text in ours:
        code = " ".join(re.findall(r"`([^`]+)`", text))
        assert set(re.findall(r"--[a-z_]+", code)) <= options | {"--hostfile"}, text
        named = {key for key in re.findall(r"\b([a-z]+\.[a-z_]+)\b", code) if not Path(key).suffix == ".txt"}
        assert named <= set(KEYS), text
