"""Random positions to start from: the openings of matches, and play-outs that are cut off.

A set depends on its seed alone, never on the number of ranks: every rank draws the whole set and takes its part.
Shapes: S numbers a state, A actions.
"""

import numpy as np

# A set counts as complete when this many rounds of play-outs in a row bring nothing new.
IDLE_ROUNDS, ROUND_LEAST = 8, 256


def openings(game, num, plies, seed):
    """Return `num` states after `plies` uniformly random moves, none of them ended, state_dtype [num, S].

    They are all different while there are enough; then they repeat in the same order. Where no game lasts that long,
    the longest openings there are take their place. seed: whole numbers, as numpy's generators take them.
    """
    rng, plies = np.random.default_rng(seed), min(plies, game.max_plies)
    while not len(found := distinct(game, np.full(num, plies), rng)):
        plies -= 1
    return found[np.arange(num) % len(found)]


def distinct(game, plies, rng, least_legal=1):
    """Return states at the depths `plies`, int [n], by random play, all different, state_dtype [m, S], m <= n.

    None is ended or has fewer than `least_legal` legal moves. m < n where some depth has no more of them. A play-out
    that gives nothing new is drawn again, so a state is as likely as random play makes it.
    """
    missing, seen, found, idle = np.asarray(plies), set(), [], 0
    while len(missing) and idle < IDLE_ROUNDS:
        depths = np.resize(missing, max(len(missing), ROUND_LEAST))
        wanted = np.bincount(missing)
        states, depths = _play_out(game, depths, rng)
        enough = game.legal(states).sum(axis=1) >= least_legal
        idle += 1
        for state, depth in zip(states[enough], depths[enough]):
            if wanted[depth] and (key := state.tobytes()) not in seen:
                seen.add(key)
                found.append(state)
                wanted[depth] -= 1
                idle = 0
        missing = np.repeat(np.arange(len(wanted)), wanted)
    return np.array(found, game.state_dtype).reshape(-1, game.state_size)


def random_actions(legal, uniform):
    """Return the legal action that each number in [0, 1) stands for, int64 [n]. legal: bool [n, A]; uniform: [n]."""
    rank = (uniform * legal.sum(axis=1)).astype(np.int64)
    return np.argmax(np.cumsum(legal, axis=1) > rank[:, None], axis=1)


def _play_out(game, depths, rng):
    """Return (states [m, S], depths [m]) of those of n random games that are not over after depths [n] moves."""
    states = game.initial(len(depths))
    for ply in range(int(depths.max())):
        going = np.flatnonzero(depths > ply)
        states[going] = game.play(states[going], random_actions(game.legal(states[going]), rng.random(len(going))))
        ended, _ = game.terminal(states)
        states, depths = states[~ended], depths[~ended]
    return states, depths
