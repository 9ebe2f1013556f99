"""A program of our own that plays tic-tac-toe by GTP or UCI: the first empty cell from a1 on. Standard library alone.

python programs_engine.py gtp|uci HOW [MOVE] [FILE]: from its move number MOVE on it does HOW: "plays", "is_silent",
"dies", "cheats" (a cell that is taken), "resigns", "babbles", "eats" (memory). "refuses": any size of board. It appends
its process id to FILE when it starts, and what it is told.
"""

import os
import sys
import time

CELLS = [column + row for row in "123" for column in "abc"]


def fail(how, taken):
    """Return what to play instead of a good move; may not return."""
    if how == "is_silent":
        time.sleep(60)
    if how == "dies":
        print("out of ideas", file=sys.stderr)
        sys.exit(3)
    if how == "eats":
        return len(bytearray(2**33)) and "a1"
    if how == "babbles":
        while True:
            sys.stdout.write("x" * 10_000)
    return taken[0] if how == "cheats" else "resign"


def main(protocol, how="plays", at=0, file=os.devnull):
    notes, taken, num_asked = open(file, "a", buffering=1), [], 0
    notes.write(f"{os.getpid()}\n")
    for line in sys.stdin:
        words = line.split()
        notes.write(line)
        if words[0] == "play":
            taken.append(words[2].lower())
        elif words[0] == "clear_board":
            taken = []
        elif words[0] == "position":
            taken = words[3:]
        answer = ""
        if words[0] in ("genmove", "go"):
            answer = next(cell for cell in CELLS if cell not in taken)
            if how != "plays" and num_asked >= int(at):
                answer = fail(how, taken)
            num_asked += 1
            taken.append(answer)
        if protocol == "gtp":
            if words[0] == "list_commands":
                answer = "boardsize\nclear_board\nplay\ngenmove"
            refused = how == "refuses" and words[0] == "boardsize"
            print(f"{'?' if refused else '='} {'unacceptable size' if refused else answer}\n", flush=True)
        elif words[0] == "uci":
            print(
                "id name own\noption name Skill type spin default 1 min 0 max 9\n"
                "option name UCI_Variant type combo default chess var chess var tictactoe\nuciok",
                flush=True,
            )
        elif words[0] == "isready":
            print("readyok", flush=True)
        elif words[0] == "go":
            print(f"info depth 1\nbestmove {answer} ponder a1", flush=True)


main(*sys.argv[1:])
