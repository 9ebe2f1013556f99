"""Go: drawn boards, positions counted, a slow second implementation that keeps the whole history, OpenSpiel."""

import numpy as np
import pytest
from helpers import stones
from referee import NUM_GAMES, agree

from az_mpi import games
from az_mpi.core.problems import Refusal
from az_mpi.games.go import REMEMBERED

LONG = "max_plies=1000"
FIVE = games.make(f"go(size=5,komi=0.5,{LONG})")


def played(game, words, states=None):
    states = game.initial(1) if states is None else states
    for word in words.split():
        states = game.play(states, np.array([game.text_to_action(states[0], word)]))
    return states


def drawn(drawing, player=0):
    """Return the state of FIVE that a drawing shows, with `player` to move. Stones are put down alternately; the player
    with fewer passes first."""
    cells = "".join(sum(stones(drawing), []))
    one, other = ([FIVE.cell_name(k) for k in range(25) if cells[k] == who] for who in "XO")
    length = max(len(one) - player, len(other))
    one, other = ["pass"] * (length + player - len(one)) + one, ["pass"] * (length - len(other)) + other
    states = played(FIVE, " ".join(word for pair in zip(one, other) for word in pair) + f" {one[-1]}" * player)
    assert shown(states) == cells and FIVE.to_play(states)[0] == player
    return states


def shown(states):
    return FIVE.show(states[0]).replace(" ", "").replace("\n", "")


def may(states, word):
    return bool(FIVE.legal(states)[0, [FIVE.action_to_text(None, a) for a in range(26)].index(word)])


@pytest.mark.long
@pytest.mark.parametrize("name", ["go(size=1)", "go(size=2)", "go(size=5)", "go", "go(size=13,komi=7.5,max_plies=60)"])
def test_check_accepts_many_sizes(name):
    assert games.check(games.make(name), num_games=8) == []


def test_stones_without_liberties_are_taken_off_several_groups_at_once():
    before = drawn(
        """
        . X O . .
        X O O . .
        O . . . .
        . . . . .
        . . . . .""",
        player=1,
    )
    assert shown(played(FIVE, "A5", before)) == "O.O.." + ".OO.." + "O...." + "....." + "....."
    before = drawn("""
        . O X . .
        O O X . .
        X X . . .
        . . . . .
        . . . . .""")
    assert shown(played(FIVE, "A5", before)) == "X.X.." + "..X.." + "XX..." + 10 * "."
    before = drawn("""
        . X O X .
        X O . O X
        . X O X .
        . . X . .
        . . . . .""")
    assert shown(played(FIVE, "C4", before)) == ".X.X." + "X.X.X" + ".X.X." + "..X.." + "....."


def test_suicide_is_not_allowed_unless_it_captures():
    state = drawn("""
        . O . . .
        O . . . .
        . . O O O
        . . O X X
        . . O X .""")
    assert not may(state, "A5") and not may(state, "E1") and may(state, "B4")
    assert np.argwhere(FIVE.planes(state)[0, 2]).tolist() == [[0, 0], [4, 4]]
    captures = drawn("""
        . O X . .
        O X . . .
        X . . . .
        . . . . .
        . . . . .""")
    assert may(captures, "A5")


KO = """
    . X O . .
    X . X O .
    . X O . .
    . . . . .
    . . . . ."""


def test_a_ko_may_be_retaken_after_a_move_elsewhere():
    taken = played(FIVE, "B4", drawn(KO, player=1))
    assert shown(taken) == ".XO.." + "XO.O." + ".XO.." + 10 * "." and FIVE.planes(taken)[0, 2].sum() == 1
    assert not may(taken, "C4")
    assert may(played(FIVE, "A1 E1", taken), "C4") and may(played(FIVE, "pass E1", taken), "C4")


def test_passes():
    one = played(FIVE, "C3 pass")
    assert not FIVE.terminal(one)[0][0] and FIVE.planes(one)[0, 4].all() and FIVE.planes(one)[0, 3].all()
    assert not FIVE.planes(played(FIVE, "C3 pass C4"))[0, 3:].any()
    both = played(FIVE, "C3 pass pass")
    assert [part.tolist() for part in FIVE.terminal(both)] == [[True], [-1.0]]  # all 25 points are Black's
    assert [part.tolist() for part in FIVE.terminal(played(FIVE, "pass pass"))] == [[True], [-1.0]]  # komi; Black moves


@pytest.mark.parametrize("komi, black", [(2, 1), (4, 0), (4.5, -1), (-3, 1)])
def test_area_is_stones_and_what_one_colour_alone_surrounds(komi, black):
    """Black has 10 stones and 4 points, White 9 stones and 1 point; D1 touches both, so nobody has it."""
    game = games.make(f"go(size=5,komi={komi},{LONG})")
    state = drawn("""
        . . X O .
        . . X O O
        X X X O O
        X X O O O
        X X O . X""")
    assert game.terminal(played(FIVE, "pass pass", state))[1].tolist() == [black]


def test_a_game_against_other_programs_continues_until_both_pass():
    rules = games.make("go(size=5,komi=7,max_plies=2)").untruncated()
    assert not rules.terminal(played(rules, "a1 b1 c1"))[0][0]
    assert rules.terminal(played(rules, "a1 b1 c1 pass pass"))[0][0]


def test_a_game_that_is_cut_is_scored_as_it_stands():
    game = games.make("go(size=5,komi=0.5,max_plies=3)")
    assert not game.terminal(played(game, "C3 pass"))[0][0]
    assert [part.tolist() for part in game.terminal(played(game, "C3 pass C4"))] == [[True], [-1.0]]
    assert games.make("go(size=7)").max_plies == 98


@pytest.mark.long
@pytest.mark.parametrize("size, known", [(1, 1), (2, 57), (3, 12675)])
def test_legal_positions_are_counted_right(size, known):
    """All that can be reached; those with the same stones, mover and last pass are gone on from once."""
    game = games.make(f"go(size={size},{LONG})")
    states, seen = game.initial(1), {}
    while len(states):
        row, action = np.nonzero(game.legal(states) & ~game.terminal(states)[0][:, None])
        after = game.play(states[row], action)
        new = {}
        for k, key in enumerate(after[:, [0, 1, 3]] & np.array([2**64 - 1, 2**64 - 1, 7], np.uint64)):
            if key.tobytes() not in seen:
                new[key.tobytes()] = k
                seen[key.tobytes()] = tuple(key[:2] if key[2] & np.uint64(1) == 0 else key[1::-1])
        states = after[list(new.values())]
    assert len(set(seen.values()) | {(0, 0)}) == known


class Slow:
    """Go by its rules on sets of points, with all positions that there were."""

    def __init__(self, size):
        self.size, self.board, self.player, self.history = size, {}, 0, [frozenset()]

    def beside(self, p):
        return [
            q
            for q in ((p[0] + d, p[1] + e) for d, e in ((0, 1), (1, 0), (0, -1), (-1, 0)))
            if 0 <= q[0] < self.size and 0 <= q[1] < self.size
        ]

    def group(self, board, p):
        found, todo = {p}, [p]
        while todo:
            more = {q for q in self.beside(todo.pop()) if board.get(q) == board[p]} - found
            found |= more
            todo += more
        return found, any(q not in board for p in found for q in self.beside(p))

    def after(self, p):
        """Return the board after a move; None if that is suicide."""
        board = self.board | {p: self.player}
        for q in self.beside(p):
            if board.get(q) == 1 - self.player:
                found, alive = self.group(board, q)
                board = board if alive else {key: who for key, who in board.items() if key not in found}
        return board if self.group(board, p)[1] else None

    def legal(self, remembered):
        """Return the points that may be played where the last `remembered` positions may not come back."""
        empty = [(r, c) for r in range(self.size) for c in range(self.size) if (r, c) not in self.board]
        boards = {p: self.after(p) for p in empty}
        before = set(self.history[-remembered:])
        return [p for p, board in boards.items() if board is not None and frozenset(board.items()) not in before]

    def play(self, p):
        if p:
            self.board = self.after(p)
            self.history.append(frozenset(self.board.items()))
        self.player = 1 - self.player


@pytest.mark.process
def test_a_slow_implementation_agrees_and_superko_reaches_as_far_as_it_says():
    """On tiny boards positions come back all the time: those of the last 16 never, older ones at times."""
    rng, longer_cycles, by_superko = np.random.default_rng(0), 0, 0
    for size, num_games in ((2, 24), (3, 12), (5, 3)):
        game = games.make(f"go(size={size},{LONG})")
        for _ in range(num_games):
            states, slow, passed = game.initial(1), Slow(size), False
            for _ in range(20 * size):
                legal = np.flatnonzero(game.legal(states)[0, :-1])
                points = [divmod(int(j), size) for j in legal]
                assert points == slow.legal(REMEMBERED)
                longer_cycles += len(points) - len(slow.legal(10**6))
                by_superko += len(slow.legal(2)) - len(points)  # 2: a simple ko
                j = int(rng.choice(legal)) if len(legal) and rng.random() < 0.9 else size * size
                if passed and j == size * size:
                    break
                passed = j == size * size
                slow.play(None if passed else divmod(j, size))
                states = game.play(states, np.array([j]))
                shown = {divmod(k, size): w for k, w in enumerate(game.board(states[0]).players.reshape(-1)) if w >= 0}
                assert shown == slow.board
    assert longer_cycles > 0 and by_superko > 10


@pytest.mark.long
@pytest.mark.parametrize("size, komi", [(9, 7.0), (5, 0.5), (19, 7.5)])
@NUM_GAMES
def test_openspiel_agrees(size, komi, num_games):
    """There points are numbered from the bottom row, and who repeats a position draws: such moves are left out."""
    number = np.append(np.arange(size * size).reshape(size, size)[::-1].reshape(-1), size * size)

    def theirs(state, player, actions, other):
        return number[actions]

    def legal(other, ours):
        repeats = [a for a in other.legal_actions() if a not in ours and other.child(a).is_terminal()]
        return [a for a in other.legal_actions() if a not in repeats]

    game = games.make(f"go(size={size},komi={komi})")
    num_games //= 16 if size == 19 else 1
    agree(game, f"go(board_size={size},komi={komi})", theirs, num_games, legal_there=legal)


@pytest.mark.parametrize("size", [5, 9])
def test_states_without_marks_on_stones_as_earlier_versions_have_them_are_continued(size):
    """Only empty points were marked then, and bit 3 of `turn` was off. A run's archive and files have such states."""
    game, rng = games.make(f"go(size={size},{LONG})"), np.random.default_rng(3)
    words, states, marked = game.words, game.initial(20), 0
    for _ in range(3 * size * size):
        old = states.copy()
        stones = old[:, :words] | old[:, words : 2 * words]
        marked += int((old[:, 2 * words : 3 * words] & stones != 0).sum())
        old[:, 2 * words : 3 * words] &= ~stones
        old[:, 3 * words] &= ~np.uint64(8)
        for name in ("legal", "planes", "to_play", "terminal", "canonical_key"):
            new, was = getattr(game, name)(states), getattr(game, name)(old)
            assert all((one == other).all() for one, other in zip(new, was)), name
        legal = game.legal(states)
        legal[:, -1] &= legal.sum(axis=1) == 1  # passes only where nothing else is legal
        actions = np.argmax(legal * rng.random(legal.shape), axis=1)
        states, after = game.play(states, actions), game.play(old, actions)
        assert (states == after).all()
        live = ~game.terminal(states)[0]
        states[~live] = game.initial(int((~live).sum()))
    assert marked > 500


def test_names_and_what_is_refused():
    for name in ("go(size=9,komi=7)", "go(size=19,komi=7.5)", "go(size=5,komi=-1,max_plies=60)"):
        assert games.make(name).name == name
    game = games.make("go")
    assert game.name == "go(size=9,komi=7)" and game.state_size * game.state_dtype.itemsize == 184
    assert [game.action_to_text(None, a) for a in (0, 8, 72, 80, 81)] == ["A9", "J9", "A1", "J1", "pass"]
    refused = {
        "size=20": "size is 20; allowed: a whole number from 1 to 19",
        "komi=6.7": "komi is 6.7",
        "komi='7'": "komi is '7'; allowed: a multiple of 0.5",
        "max_plies=-1": "max_plies is -1",
        "superko=8": "takes no argument superko",
    }
    for arguments, said in refused.items():
        with pytest.raises(Refusal, match=said):
            games.make(f"go({arguments})")
