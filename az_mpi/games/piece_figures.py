"""Figures of pieces as the data of SVG paths, for `Board.figures`: in a cell from -50 to 50, filled by "evenodd"."""

_PAWN = ("M0 -33a13 13 0 0 1 8 23c4 3 6 6 6 10h-6c1 12 5 18 15 25v11h-46v-11c10 -7 14 -13 15 -25h-6c0 -4 2 -7 6 -10"
         "a13 13 0 0 1 8 -23z")  # fmt: skip
_ROOK = "M-24 36v-9l5 -5v-27l-6 -6v-20h11v8h8v-8h12v8h8v-8h11v20l-6 6v27l5 5v9z"
_BISHOP = ("M0 -41a5 5 0 0 1 4 8c10 7 15 17 15 25c0 8 -4 13 -8 17h5l2 10c8 2 10 4 10 8v9h-56v-9c0 -4 2 -6 10 -8l2 -10h5"
           "c-4 -4 -8 -9 -8 -17c0 -8 5 -18 15 -25a5 5 0 0 1 4 -8zM4 -24l-7 13 4 2 7 -13z")  # fmt: skip
_QUEEN = ("M-23 36v-8l3 -8L-34 -14 -19 0 -17 -26 -7 -3 0 -31 7 -3 17 -26 19 0 34 -14 20 20l3 8v8z"
          "M-39 -18a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0zM-22 -31a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"
          "M-4.5 -36a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0zM13 -31a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z"
          "M30 -18a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z")  # fmt: skip
_KING = ("M-3 -44h6v6h6v6h-6v8C12 -32 35 -25 31 -7 28 4 22 10 20 20l3 8v8h-46v-8l3 -8C-22 10 -28 4 -31 -7"
         "C-35 -25 -12 -32 -3 -24v-8h-6v-6h6z")  # fmt: skip
_KNIGHT = ("M-21 36C-21 18 -1 13 -3 -5 -8 1 -15 2 -20 8c-3 4 -8 4 -11 -1c-2 -4 1 -7 3 -11l8 -15c2 -6 6 -9 10 -11"
           "l2 -11 9 8C20 -29 30 -9 27 36zM-12 -17a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z")  # fmt: skip
_DISC = "M-40 0a40 40 0 1 0 80 0a40 40 0 1 0 -80 0z"
CROWNED = _DISC + "M-20 17l-6 -30 15 12 11 -20 11 20 15 -12 -6 30z"  # a king of checkers
CHESS = {"p": _PAWN, "r": _ROOK, "b": _BISHOP, "q": _QUEEN, "k": _KING, "n": _KNIGHT}
CHESS |= {letter.upper(): figure for letter, figure in CHESS.items()}
