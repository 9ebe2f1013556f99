"""The documents: every command has somebody who runs it, every link leads somewhere, every option exists."""

import re

import pytest
from documents import BY_HAND, NAMES, RESULTS, ROOT, commands, is_marked, join

from az_mpi import __version__
from az_mpi.config import command_line
from az_mpi.config.load import KEYS
from az_mpi.core import registry

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
    assert found == [
        (1, "a \\\n  --x", False),
        (1, "b 1", True),
        (2, "for k in 1; do\n  d\ndone", False),
        (3, "e", True),
        (4, "f", False),
    ]
    assert is_marked("a", "(*needs a GPU* of its own)") and not is_marked("a", "it needs nothing and is not run")
    assert join(["a", "", "b"]) == ["a", "b"]


def without_fences(text):
    """Return a document without what stands between fences: no comment there is a heading."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """Return what GitHub makes of a document's headings; the second of one name ends with -1."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", without_fences(text), re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(f"{anchor}-{again}" if (again := found.count(anchor)) else anchor)
    return found


def test_anchors_are_made_as_github_makes_them():
    assert anchors("# A `b`: c-d (*e*)\n## Same\n```\n# no\n```\n## Same\n") == ["a-b-c-d-e", "same", "same-1"]


LINKING = sorted(
    {
        *NAMES,
        *(str(path.relative_to(ROOT)) for pattern in ("*.md", "docs/results/**/*.md") for path in ROOT.glob(pattern)),
    }
)


@pytest.mark.parametrize("name", LINKING)
def test_links_lead_somewhere(name):
    text = (ROOT / name).read_text()
    targets = re.findall(r"\]\(([^)\s]+)\)", without_fences(text))
    for target in targets:
        if "://" not in target:
            file, _, anchor = target.partition("#")
            path = (ROOT / name).parent / file if file else ROOT / name
            assert path.exists(), target
            assert not anchor or anchor in anchors(path.read_text()), target


@pytest.mark.parametrize("name", NAMES)
def test_a_page_begins_with_what_it_is_for(name):
    title, empty, first = (ROOT / name).read_text().splitlines()[:3]
    assert title.startswith("# ") and empty == ""
    assert re.match(r"[A-Z`*]", first) and not re.match(r"\*not run", first, re.IGNORECASE), first


def test_entries_of_the_log_have_one_form_and_the_newest_comes_first():
    folder = ROOT / "docs/results/log"
    months = [path for path in sorted(folder.glob("*.md")) if path.name != "README.md"]
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (folder / "README.md").read_text())
    assert months and listed == [path.name for path in reversed(months)]
    for path in months:
        entries = re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]
        dates = [re.match(r"(\d{4}-\d{2}-\d{2}): \S", entry)[1] for entry in entries]
        assert dates == sorted(dates, reverse=True) and {date[:7] for date in dates} == {path.stem}
        for number, entry in enumerate(entries, 1):
            assert re.findall(r"^\*\*(\w+)\.\*\*", entry, re.MULTILINE) == ["Tried", "Result", "Conclusion"], entry[:80]
            assert entry.endswith("\n---\n\n") or number == len(entries), entry[:80]


def test_the_newest_release_has_the_version_of_the_sources():
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## (\d+\.\d+\.\d+) \((\d{4}-\d{2}-\d{2})\)$", changes, re.MULTILINE)
    citation = dict(re.findall(r"^([\w-]+): (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert released[0] == (__version__, citation["date-released"]) and citation["version"] == __version__


def test_the_readme_is_short_and_leads_to_every_page_and_package():
    text = (ROOT / "README.md").read_text()
    assert len(text) <= 9000 and all(len(line) <= 160 for line in text.splitlines())
    assert {*NAMES} - {"README.md", *RESULTS} <= set(re.findall(r"\]\(([^)#]+)", text))
    packages = {path.parent.name for path in (ROOT / "az_mpi").glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", text, re.MULTILINE)) == packages
    assert all((ROOT / name).exists() for name in re.findall(r"^([\w.]+)/? {2,}", text, re.MULTILINE))


def test_the_index_of_results_leads_to_every_page_of_results():
    text = (ROOT / "docs/results/README.md").read_text()
    pages = {name.rpartition("/")[2] for name in RESULTS} - {"README.md"}
    assert len(pages) > 4 and pages <= set(re.findall(r"\]\(([^)#/]+)", text))


# Pages that are written one sentence a line.
BY_SENTENCES = [
    *RESULTS,
    "docker/README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "methods",
            "performance",
            "reliability",
            "games",
            "hosts",
            "site",
            "trouble",
            "coming-from",
            "operations",
            "play",
            "gpus",
            "data",
            "scaling",
            "architecture",
            "results/log/README",
            "results/log/2026-11",
        )
    ),
    "README.md",
    "INSTALL.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "slurm/README.md",
]


@pytest.mark.parametrize("name", BY_SENTENCES)
def test_a_line_is_short_and_a_cell_has_one_sentence(name):
    for line in without_fences((ROOT / name).read_text()).splitlines():
        assert len(line) <= 120 or line.startswith("|"), f"{name}: {line}"
        parts = line.split(" | ") if line.startswith("|") else []
        several = [part for part in parts if re.search(r"[a-z)*][.!?] [A-Z]", re.sub(r"`[^`]*`", "code", part))]
        assert not several, f"{name} has a cell of several sentences, which should be a list: {several}"


SOURCES = [
    *(
        path
        for folder in ("az_mpi", "tests", "benchmarks", "tools", "slurm", "docker")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sh")
    ),
    ROOT / "Makefile",
    ROOT / "run_dist.py",
    *(ROOT / "docker").glob("Dockerfile"),
]


def test_pages_that_the_sources_name_are_there():
    """Such as docs/reliability.md in a message or a comment."""
    for path in SOURCES:
        for name in re.findall(r"\b(?:docs|slurm|docker)/(?:results/)?[\w-]+\.(?:md|csv)\b", path.read_text()):
            assert (ROOT / name).is_file(), f"{path} names {name}"


def test_sections_that_the_sources_name_are_there():
    """Such as (INSTALL.md, By hand) in a message."""
    named = {
        (name, section, path)
        for path in SOURCES
        for name, section in re.findall(r"\(((?:docs/|slurm/)?[\w-]+\.md), ([A-Z][\w ]*)\)", path.read_text())
    }
    assert {name for name, *_ in named} >= {"INSTALL.md", "docs/hosts.md"}
    for name, section, path in named:
        assert anchors(f"# {section}")[0] in anchors((ROOT / name).read_text()), f"{path} names {section} of {name}"


def test_the_page_of_the_configuration_is_what_the_schema_says():
    page = (ROOT / "docs/configuration.md").read_text()
    made = command_line.help_config_markdown()
    assert page == made, "run: python run_dist.py --help_config_markdown >docs/configuration.md"
    for name, key in KEYS.items():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
        assert key.description in row and key.allowed in row and row.count(" | ") == 3
        assert row.startswith(f"| `{name}` * |") == key.may_change


def test_keys_of_the_table_of_other_trainers_exist():
    """In docs/coming-from.md, the last column."""
    rows = [
        line.strip("| ").split(" | ")
        for line in (ROOT / "docs/coming-from.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    ours = [re.findall(r"`([^`]+)`", row[-1]) for row in rows[1:]]
    assert rows[0][-1] == "az_mpi" and len(ours) > 12 and all(ours)
    named = {key for keys in ours for key in keys}
    assert named <= set(KEYS), named - set(KEYS)


def test_the_examples_page_runs_every_example_and_lists_what_is_built_in():
    examples = ROOT / "examples"
    text = (examples / "README.md").read_text()
    plugged_in = {path.stem for path in examples.glob("own_*.py")}
    assert set(re.findall(r"--config_file examples/(\w+)\.json", text)) == plugged_in
    rows = {
        key: (offers.split(), re.findall(r"`(\w+)`", names))
        for key, offers, names in re.findall(
            r"^\| `([\w.]+)`[^|]*\|[^|]*\| ?`?([\w ]*?)`? ?\|([^|]*)\|$", text, re.MULTILINE
        )
    }
    offers, names = rows.pop("game")  # its names are in docs/games.md
    games_page = (ROOT / "docs" / "games.md").read_text()
    listed = re.findall(r"`([a-z0-9]\w+)[`(]", "".join(re.findall(r"^\| (`.*?) \|", games_page, re.MULTILINE)))
    assert not offers and not names
    assert set(registry.GAMES.names) <= set(listed), "a game is missing from the first table of docs/games.md"
    found = [one for one in vars(registry).values() if isinstance(one, registry.Registry) and one.key != "game"]
    assert rows == {one.key: (one.offers, one.names) for one in found}, "see the last table of examples/README.md"
