"""Boards out of the text that OpenSpiel gives of a state: rows of signs, rows of hexagons, and the FEN of chess.

`FORMS` says which signs are whose pieces. Texts that are pictures of something else, such as the walls of quoridor, or
numbers, as in mancala, stay texts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from az_mpi.games.board_data import NO_CELL, NO_FIGURES, NOBODY, Board
from az_mpi.games.piece_figures import CHESS, CROWNED
from az_mpi.games.winning_cells import Cells, chain, lines

CAPITALS = "".join(map(chr, range(ord("A"), ord("Z") + 1)))
SMALL = CAPITALS.lower()
LINES: dict[str, str | int] = {  # pieces in a row that win, or the parameter that says how many
    "connect_four": "x_in_row",
    "gomoku": "connect",
    "mnk": "k",
    "pentago": 5,
    "tic_tac_toe": 3,
}
CHAINS = ("hex",)
# Promoted pieces that become pawns again when they are captured.
PROMOTED = {"a": CHESS["q"], "c": CHESS["r"], "e": CHESS["b"], "h": CHESS["n"]}
PROMOTED |= {letter.upper(): figure for letter, figure in PROMOTED.items()}
OTHER_MARKS = str.maketrans("XOxo", "OXox")
Signs = list[list[str]]  # of the cells of each row; " " where there is no cell


class Form(NamedTuple):
    """How the text of a game is read.

    read: the function of it, see `_grid`. first, second, nobody: the signs of the pieces of who began, of the other
    one, and of neither. empty: the sign of an empty cell. kinds: {sign: symbol of a kind of piece}; None: each sign is
    its symbol. figures, edges, light: of `Board`. further: the signs of the players after the second, one each.
    """

    read: Callable[[str, "Form"], tuple[Signs, Sequence[str], Sequence[str], str] | None]
    first: str
    second: str
    nobody: str = ""
    empty: str = "."
    kinds: dict[str, str] | None = {}
    figures: Mapping[str, str] = NO_FIGURES
    edges: tuple[int, ...] = ()
    light: int = 1
    further: str = ""


def read(text: str, game: Any, is_over: bool, begins: int = 0) -> Board | None:
    """Return the board in the text of a state; None if the game has none, or the text is of another form than expected.
    game: OpenSpiel's. is_over: whether the state is terminal. begins: OpenSpiel's number of the player who began."""
    name = game.get_type().short_name
    form = FORMS.get(name)
    found = form.read(text, form) if form else None
    if form is None or found is None:
        return None
    signs, columns, rows, beside = found
    owner = {" ": NO_CELL, form.empty: -1} | dict.fromkeys(form.nobody, NOBODY)
    owner |= dict.fromkeys(form.first, 0) | dict.fromkeys(form.second, 1)
    owner |= {sign: player for player, sign in enumerate(form.further, 2)}
    if name == "backgammon" and begins == 1 or name == "banqi" and "P0=Red" in text:
        owner |= dict.fromkeys(form.first, 1) | dict.fromkeys(form.second, 0)
        beside = re.sub("\\b[XO]\\b", lambda word: word[0].translate(OTHER_MARKS), beside)
    beside += "; X began" * (name == "backgammon")
    if len(signs) < 2 or len({len(row) for row in signs}) != 1:
        return None
    try:
        players = np.array([[owner[sign[-1]] for sign in row] for row in signs], np.int8)
    except KeyError:
        return None
    symbols: tuple[Sequence[str], ...] = ()
    if form.kinds != {}:
        symbols = tuple(
            tuple(
                " " if player < 0 else sign if form.kinds is None else form.kinds.get(sign, " ")
                for sign, player in zip(*pair)
            )
            for pair in zip(signs, players.tolist())
        )
    won = _won(name, game, players) if is_over else ()
    return Board(
        players,
        symbols,
        "hex" if form.read is _hexagons else "square",
        tuple(columns),
        tuple(rows),
        form.edges,
        won,
        figures=form.figures,
        light=form.light,
        beside=beside,
    )


def _won(name: str, game: Any, players: np.ndarray) -> Cells:
    if name in CHAINS:
        return chain(players)
    k = LINES.get(name)
    if isinstance(k, str):  # a parameter of the game
        k = int((game.get_type().parameter_specification | game.get_parameters())[k])
    return lines(players, k) if k else ()


def _grid(text: str, form: Form) -> tuple[Signs, Sequence[str], Sequence[str], str] | None:
    """Return (the signs, names of columns, names of rows, what lies beside) of rows such as "8bbbb.bbb", "19 ++X++" or
    "v 1 . . O v". Blanks inside of a row that are not between all of its cells, and empty lines, are gaps."""
    cell = f"[{re.escape(form.first + form.second + form.nobody + form.empty)}]"
    shown = text.splitlines()
    for number in (r"\d{1,2}?", ""):  # with rows that have numbers, or else without; a sign may be a digit too
        row = re.compile(rf"(?:[^\d\s] )?\s*({number}) ?({cell}(?: ?{cell})*)\s*(?: \S)?")
        if any(matches := [row.fullmatch(line.rstrip()) for line in shown]):
            break
    signs: Signs = []
    names = []
    gap = False
    for line, found in zip(shown, matches):
        if not found:
            gap = gap or not line.strip()
            continue
        cells = found[2]
        spaced = set(cells[1::2]) == {" "} and " " not in cells[::2]
        if gap and signs and " " in cells and not spaced:
            signs.append([" "] * len(cells))
        signs.append(list(cells[::2] if spaced else cells))
        names.append(found[1])
        gap = False
    beside = next((line for line in shown if re.match("Cursor: |Forced board: ", line)), "")
    if not signs or not all(names):
        return signs, "", (), beside
    letters = ["".join(line.split()) for line in shown]
    columns = next((line for line in letters if line.isalpha() and len(line) == len(signs[0])), "")
    return signs, columns, names, beside


def _hexagons(text: str, form: Form) -> tuple[Signs, Sequence[str], Sequence[str], str] | None:
    """Return the same of rows of hexagons: a cell is a sign, and neighbours in the next row are half a cell away."""
    signs = form.first + form.second + form.further + form.empty
    row = re.compile(rf"[\s\d]*(?:[\[\]\s]*[{re.escape(signs)}])+[\[\]\s]*[a-z]?")
    found = [line for line in text.splitlines() if row.fullmatch(line.rstrip())]
    places = {(r, p - r): sign for r, line in enumerate(found) for p, sign in enumerate(line) if sign in signs}
    if not places:
        return None
    at = [place for _, place in places]
    left = min(at)
    width = (max(at) - min(at)) // 2 + 1
    if any((place - left) % 2 for place in at):
        return None
    table = [[places.get((r, left + 2 * c), " ") for c in range(width)] for r in range(len(found))]
    named = all(row[0] != " " for row in table)
    return table, SMALL[:width] if named else "", [str(r + 1) for r in range(len(table))] if named else [], ""


def _rows(text: str, form: Form) -> tuple[Signs, Sequence[str], Sequence[str], str] | None:
    """Return the same of rows without names: "..x..", "? c A", "2 0 128 4", or "|b2||__|"."""
    known = form.first + form.second + form.nobody + form.empty
    table = []
    for line in text.splitlines():
        cells = [cell[::-1] for cell in re.findall(r"\|(..)\|", line)] or line.split()
        cells = list(cells[0]) if len(cells) == 1 else cells
        if cells and all(cell[-1] in known for cell in cells):
            table.append(cells)
    return table, "", [], ""


def _points(text: str, form: Form) -> tuple[Signs, Sequence[str], Sequence[str], str] | None:
    """Return the same of backgammon: a number that ends a column of five pieces says how many there are. Between the
    halves of the board is a column without cells. A column's name is its two points, the upper one first, as the player
    to move counts them in moves."""
    lines = text.splitlines()
    table = [
        [*found[1], " ", *found[2]] for line in lines if (found := re.fullmatch(r"\|([^|]{6})\|([^|]{6})\|", line))
    ]
    for at, beyond in ((0, 1), (-1, -2)):
        for column, sign in enumerate(table[at] if len(table) == 11 else []):
            table[at][column] = sign + table[beyond][column] if sign.isdigit() else sign
    said = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    bar, off = said.get("Bar", ""), dict(re.findall(r"(\w): (\d+)", text[text.find("Scores") :]))
    parts = [f"dice {' '.join(said['Dice'])}"] if said.get("Dice") else []
    parts += [f"on the bar: X {bar.count('x')}, O {bar.count('o')}"] if bar else []
    parts += [f"borne off: X {off.get('X', 0)}, O {off.get('O', 0)}"]
    return table, _names_of_points(said.get("Turn", "")), [], "; ".join(parts)


def _names_of_points(mover: str) -> list[str]:
    """Return the names of the columns of backgammon; none where nobody is to move. mover: x or o."""
    lower = [*range(12, 6, -1), 0, *range(6, 0, -1)]  # as O counts, whose home is there; X counts from the other side
    points = [(25 - point, point) if mover == "o" else (point, 25 - point) for point in lower]
    names = [f"{above}/{below}" if 0 < below < 25 else "" for above, below in points]
    return names if mover in ("x", "o") else []


def _fen(text: str, form: Form) -> tuple[Signs, Sequence[str], Sequence[str], str] | None:
    """Return the same of Forsyth's notation: chess, and shogi, whose columns are counted from the right."""
    board, mover, hand = (text.split() + ["", ""])[:3]
    board, _, pocket = board.partition("[")
    digits = re.compile(r"\d+")
    table = [re.findall(r"\+?\D", digits.sub(lambda found: "." * int(found[0]), row)) for row in board.split("/")]
    height = len(table)
    width = len(table[0])
    is_shogi = form is FORMS["shogi"]
    columns = [str(width - c) for c in range(width)] if is_shogi else SMALL[:width]
    rows = list(SMALL[:height]) if is_shogi else [str(height - r) for r in range(height)]
    held = hand.strip("-") if is_shogi else pocket.rstrip("]")
    return table, columns, rows, f"in hand: {held}" if held else ""


_CHESS = Form(_fen, CAPITALS, SMALL, kinds=None, figures=CHESS, light=0)
_TILES = {str(2**k): str(2**k) for k in range(1, 18)}
_X_AND_O = Form(_grid, "x", "o")
FORMS = {
    "2048": Form(_rows, "2468", "", empty="0", kinds=_TILES),
    "amazons": Form(_grid, "X", "O", "#", kinds={"#": "#"}),
    "antichess": _CHESS,
    "backgammon": Form(_points, "x", "o", kinds={f"{n}{side}": str(n) for n in range(6, 16) for side in "xo"}),
    "banqi": Form(_rows, SMALL, CAPITALS, "?", kinds=None),
    "breakthrough": Form(_grid, "b", "w"),
    "catch": Form(_rows, "x", "", "o", kinds={"o": "o"}),
    "checkers": Form(_grid, "o8", "+*", kinds={"8": "K", "*": "k"}, figures={"K": CROWNED, "k": CROWNED}),
    "chess": _CHESS,
    "chinese_checkers": Form(_hexagons, "1", "2", further="3456"),
    "cliff_walking": Form(_rows, "P", "", "XG", kinds={"X": "X", "G": "G"}),
    "clobber": Form(_grid, "o", "x"),
    "connect_four": _X_AND_O,
    "crazyhouse": _CHESS._replace(figures=CHESS | PROMOTED),
    "cursor_go": Form(_grid, "X", "O", empty="+"),
    "einstein_wurfelt_nicht": Form(
        _rows, "w", "b", empty="_", kinds={f"{n}{side}": f"{side.upper()}{n}" for n in range(1, 7) for side in "wb"}
    ),
    "go": Form(_grid, "X", "O", empty="+"),
    "gomoku": Form(_grid, "b", "w"),
    "havannah": Form(_hexagons, "O", "@"),
    "hex": Form(_hexagons, "xyzX", "opqO", edges=(0, 1)),
    "lines_of_action": _X_AND_O,
    "mnk": _X_AND_O,
    "othello": Form(_grid, "x", "o", empty="-"),
    "pentago": Form(_grid, "O", "@"),
    "shogi": Form(_fen, CAPITALS, SMALL, kinds=None),
    "tic_tac_toe": _X_AND_O,
    "ultimate_tic_tac_toe": _X_AND_O,
    "xiangqi": Form(_grid, CAPITALS, SMALL, kinds=None),
    "y": Form(_hexagons, "O", "@"),
}
