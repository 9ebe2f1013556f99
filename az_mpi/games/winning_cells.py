"""Which cells have won a game: lines of pieces in a row, and chains from one edge of a board to the other."""

import numpy as np

Cells = tuple[tuple[int, int], ...]  # (row, column) each
LINES = (0, 1), (1, 0), (1, 1), (1, -1)
HEX_NEIGHBOURS = (1, 0), (1, -1), (0, 1), (0, -1), (-1, 0), (-1, 1)


def lines(players: np.ndarray, k: int, exact: bool = False) -> Cells:
    """Return the cells of all lines of k or more pieces of one player, int8 [H, W] as in `Board.players`. exact: leave
    out lines of more than k."""
    around = np.pad(players, 1, constant_values=-1)  # a row and a column more on each side, without pieces
    found: set[tuple[int, int]] = set()
    for row, column in np.argwhere(players >= 0).tolist():
        for down, right in LINES:
            run = [(row + step * down, column + step * right) for step in range(-1, k + 1)]
            (r, c) = run[-2]
            if not (r < players.shape[0] and 0 <= c < players.shape[1]):
                continue
            before, *line, after = [around[r + 1, c + 1] == players[row, column] for r, c in run]
            if all(line) and not (exact and (before or after)):
                found |= set(run[1:-1])
    return tuple(sorted(found))


def chain(players: np.ndarray) -> Cells:
    """Return the cells of a shortest chain on a board of hexagons, int8 [H, W] as in `Board.players`: of player 0 from
    the top to the bottom, or of player 1 from the left to the right; () if there is none."""
    for player, axis in ((0, 0), (1, 1)):
        along = players if axis == 0 else players.T  # a neighbour's neighbour is the same on the mirrored board
        if path := _down(along == player):
            return tuple(sorted(cell if axis == 0 else cell[::-1] for cell in path))
    return ()


def _down(own):
    """Return a shortest chain of the cells `own`, bool [H, W], from the first row to the last one, or None."""
    came_from = {(0, int(column)): None for column in np.flatnonzero(own[0])}
    queue = list(came_from)
    for cell in queue:
        if cell[0] == len(own) - 1:
            path = [cell]
            while (cell := came_from[cell]) is not None:
                path.append(cell)
            return path
        for down, right in HEX_NEIGHBOURS:
            r = cell[0] + down
            c = cell[1] + right
            if 0 <= r < own.shape[0] and 0 <= c < own.shape[1] and own[r, c] and (r, c) not in came_from:
                came_from[r, c] = cell
                queue.append((r, c))
    return None
