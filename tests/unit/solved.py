"""Exact solvers of small problems, to compare searches and networks with."""

from itertools import combinations

import numpy as np


def shortest_tour(points):
    """Return the length of the shortest round tour through points, [n, 2], n up to 14, by Held and Karp (1962)."""
    n = len(points)
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    best = {(frozenset([k]), k): distance[0, k] for k in range(1, n)}
    for size in range(2, n):
        for visited in map(frozenset, combinations(range(1, n), size)):
            for last in visited:
                before = visited - {last}
                best[visited, last] = min(best[before, k] + distance[k, last] for k in before)
    return min(best[frozenset(range(1, n)), k] + distance[k, 0] for k in range(1, n))


def solve_pig(goal, sweeps=2000, within=1e-12):
    """Return the probability that the player to move wins Pig, float64 [goal, goal, goal + 6]: of the own points, the
    other's, and the total of this turn; and whether to hold is at least as good there, bool, by value iteration (Neller
    and Presser 2004). A total that reaches the goal has won."""
    own, total = np.arange(goal)[:, None, None], np.arange(goal + 6)[None, None]
    won = np.broadcast_to(own + total >= goal, (goal, goal, goal + 6))
    chance = np.where(won, 1.0, 0.5)
    for _ in range(sweeps):
        turned = np.concatenate([chance, np.ones((1, goal, goal + 6))])[:, :, 0]  # [own, other] at a turn's beginning
        other = 1 - turned[:goal].T  # that of a player whose turn ends with nothing: the other one is to move
        throw = np.zeros_like(chance) + other[:, :, None] / 6
        for eyes in range(2, 7):
            ahead = np.minimum(np.arange(goal + 6) + eyes, goal + 5)
            throw += np.where(own + total + eyes >= goal, 1.0, chance[:, :, ahead]) / 6
        held = np.minimum(own + total, goal - 1)
        hold = 1 - turned[np.arange(goal)[None, :, None], held]
        hold = np.where(total > 0, hold, 0.0)
        after = np.where(won, 1.0, np.maximum(throw, hold))
        if np.abs(after - chance).max() < within:
            break
        chance = after
    return after, hold >= throw
