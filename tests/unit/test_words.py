"""Plain English: words and turns of phrase that readers stumble over are in no document, docstring, comment or message.

Each has a plain one beside it. A page that must show such a word, such as a game's own text, is none of these.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    path
    for path in sorted(ROOT.rglob("*.md"))
    if not {".venv", "runs", "node_modules"} & set(path.relative_to(ROOT).parts)
]
SOURCES = [
    path
    for folder in ("az_mpi", "benchmarks", "examples", "tests", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != "test_words.py"
] + [ROOT / "run_dist.py", ROOT / "setup.py"]
SCRIPTS = [path for folder in ("slurm", "tools", "tests") for path in sorted((ROOT / folder).rglob("*.sh"))]
# A pattern, and what to write.
PLAIN = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"at hand": "available",
    r"as ever": "as usual",
    r"told of": "reported, informed of",
    r"(?<!turn )in turns": "alternately",
    r"go(es|ing)? on(?! to\b| \d| bitboards)": "continue",
    r"went on": "continued",
    r"who may not": "users who may not",
    r"what answers": "name the subject",
    r"com(es|e|ing) of it": "name the result",
    r"g(et|ets|ot|etting) on": "progress",
    r"give[sn]? away": "reveal, lose",
    r"look(s|ed|ing)? after": "manage",
    r"of one's own": "own",
    r"no matter": "whatever; any",
    r"for want of": "without",
    r"in vain": "without success",
    r"as it were": "leave it out",
    r"likewise": "also, the same",
    r"herewith|hereby|therein|thereof|whereof|thereby": "name the thing",
    r"whoever": "a user who; anybody who",
    r"neither .{3,60} nor .{3,60} nor": "a list",
}
FORBIDDEN = re.compile("|".join(rf"\b(?:{pattern})\b" for pattern in PLAIN), re.IGNORECASE)
# "69 % over 62 %": which is divided by which, or which is better, is left to the reader.
OVER = re.compile(r"\d+(\.\d+)? ?%? over \d+(\.\d+)? ?%?(?! (games|positions|runs|seeds|ranks|iterations|hosts|cores))")


def spoken(path):
    """Yield (line number, text) of the comments and strings of a Python file."""
    text = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def wrong(lines):
    """Return the places that have a forbidden word."""
    return [
        f"{number}: ...{text[max(0, found.start() - 30) : found.end() + 30]}..."
        for number, text in lines
        for found in [FORBIDDEN.search(text) or OVER.search(text)]
        if found
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_none_of_the_words(path):
    assert wrong(enumerate(path.read_text().splitlines(), 1)) == []


@pytest.mark.parametrize("folder", ["az_mpi", "benchmarks", "examples", "tests", "tools", ""])
def test_sources_say_none_of_the_words(folder):
    mine = [
        path for path in SOURCES if (path.relative_to(ROOT).parts[0] == folder) or (not folder and path.parent == ROOT)
    ]
    found = {str(path.relative_to(ROOT)): wrong(spoken(path)) for path in mine}
    assert mine and {path: places for path, places in found.items() if places} == {}


def test_names_of_tests_have_none_of_the_words():
    names = [
        (path.name, name.replace("_", " "))
        for path in SOURCES
        if path.name.startswith("test_")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    ]
    assert len(names) > 1000 and wrong(names) == []


def test_scripts_have_none_of_the_words():
    found = {path.name: wrong(enumerate(path.read_text().splitlines(), 1)) for path in SCRIPTS}
    assert {name: places for name, places in found.items() if places} == {}


def test_a_forbidden_word_is_found_and_a_longer_word_is_not():
    assert wrong([(1, "It mends the file.")]) and wrong([(1, "69 % over 62 %")]) and wrong([(1, "the run goes on")])
    assert not wrong([(1, "amendments, a commendable recommendation, goes on to say, mean over 3 games")])
