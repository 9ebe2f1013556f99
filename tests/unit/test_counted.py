"""What is printed: numbers with their nouns."""

import re
from pathlib import Path

import pytest

from az_mpi.core.printing import counted

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "number, noun, text",
    [(0, "step", "0 steps"), (1, "step", "1 step"), (2, "step", "2 steps"), (1234567, "game", "1,234,567 games")],
)
def test_a_noun_is_in_the_singular_after_one_alone(number, noun, text):
    assert counted(number, noun) == text


def test_a_plural_without_s_is_as_given():
    assert [counted(number, "ply", "plies") for number in (1, 2)] == ["1 ply", "2 plies"]


def test_no_module_makes_plurals_by_itself():
    by_hand = re.compile(r"""['"]s['"] \* \(|\b(rank|game|host|step|file|move)\(s\)|['"]s['"] if """)
    found = [path.name for path in (ROOT / "az_mpi").rglob("*.py") if by_hand.search(path.read_text())]
    assert found == []
