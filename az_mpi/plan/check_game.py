"""python -m az_mpi check-game: whether the rules of a game hold together, how fast they are, and what learning the game
with the default settings takes.

Shapes: n positions, S numbers a state.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.core.arguments import Parser
from az_mpi.core.exit_codes import DONE, PROBLEMS
from az_mpi.core.printing import counted
from az_mpi.core.problems import OwnCodeError
from az_mpi.games import chance
from az_mpi.games.base import NOT_DESCRIBED, Game, described_planes, positions, results
from az_mpi.games.position_game import PositionGame
from az_mpi.games.random_games import random_actions, random_games
from az_mpi.network import engines, resnet
from az_mpi.search import tree
from az_mpi.selfplay.player import PARALLEL_GAMES
from az_mpi.telemetry.status_text import duration
from az_mpi.train.replay import HELD_POLICY, sample_dtype

PROG = "python -m az_mpi check-game"
ABOUT = """\
Check a game: play random games and look for broken rules and likely mistakes, draw an end that each player has won
(of one player: the best end and the worst one), time the rules, and say what learning the game with the default
settings takes in memory and time."""
EPILOG = """\
examples:
  python -m az_mpi check-game "othello(size=6)"
  python -m az_mpi check-game "my_game.py:MyGame(size=5)"

exit codes: 0 the rules hold together, perhaps with a warning, 1 they do not, 2 there is no such game
"""
NUM_CHECKED, NUM_GAMES, BATCH, TIMED_S = 64, 32, 256, 0.1
ROUNDS = 4  # of NUM_GAMES games, at most, in which ends that each player has won are looked for
WON = {0: "a win of the player who began", 1: "a win of the player who moved second", None: "a draw"}  # of two
MIB = 2**20
PLANES_SHOWN = 24


def main(arguments: list[str]) -> int:
    """Check the game that is named; return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG)
    parser.add_argument("game", metavar="NAME", help="as in the configuration's key game")
    name = parser.parse_args(arguments).game
    config = configuration.validate({"game": name}, "the command line")
    try:
        game = games.make(config.game)
        print(size_of(game))
        print(planes_of(game))
        warnings = games.check(game, NUM_CHECKED)
        rng = np.random.default_rng(0)
        states, mean_plies = random_positions(game, rng)
        ends = drawn_ends(game, rng)
    except (AssertionError, OwnCodeError) as why:
        print(f"broken: {why}\n  docs/games.md says what every game keeps; az_mpi/games/invariants.py is the check")
        return PROBLEMS
    print(
        f"rules hold in {NUM_CHECKED} random games{noted(warnings)}; a random game has {mean_plies:.0f} plies, "
        f"a position {game.legal(states).sum(axis=1).mean():.0f} legal moves\n\n{ends}\n"
    )
    rules_us = time_rules(game, states)
    for lines in (in_rows(rules_us), cost(game, config, states, mean_plies, sum(rules_us.values()))):
        print("\n".join(lines))
    for warning in warnings:
        print(f"\nWARNING: {warning}")
    return DONE


def size_of(game: Game) -> str:
    """Return the sizes of a game in one line."""
    channels, height, width = game.planes_shape
    kind = "" if game.num_players == 2 else f"{counted(game.num_players, 'player')}, "
    chance_of = f", {counted(game.num_outcomes, 'outcome')} of chance" if game.num_outcomes else ""
    return (
        f"{game.name}: {kind}{game.num_actions:,} actions{chance_of}, {counted(channels, 'plane')} of "
        f"{height} x {width}, {counted(len(game.symmetry_cells), 'symmetry', 'symmetries')}, at most "
        f"{counted(game.max_plies, 'ply', 'plies')}, "
        f"{game.state_size * game.state_dtype.itemsize:,} bytes a state; {_way_of(game)}"
    )


def _way_of(game):
    """Return how the rules of a game are written."""
    if not isinstance(game, PositionGame):
        return "rules for batches"
    return "rules for one position, compiled" if game.compiled else "rules for one position, as plain Python"


def planes_of(game: Game) -> str:
    """Return what the game says of its planes as lines."""
    texts, rows = described_planes(game)
    if set(texts) == {NOT_DESCRIBED}:
        num = len(game.describe_planes()[0])
        return (
            f"planes: not described; describe_planes has {num} texts for {len(texts)} planes"
            if num
            else "planes: not described (describe_planes would say what an exported network is fed with)"
        )
    lines = [f"  {k}: {text}" for k, text in enumerate(texts)]
    if len(lines) > PLANES_SHOWN:
        lines[PLANES_SHOWN - 1 : -1] = [f"  ... and {len(lines) - PLANES_SHOWN} more"]
    return "\n".join([f"planes, of which {rows}:", *lines])


def random_positions(game: Game, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return (the positions of NUM_GAMES random games where a player is to move, [n, S]; how many a game has)."""
    seen = [states for states, _ in random_games(game, NUM_GAMES, rng)]
    return np.concatenate(seen), sum(map(len, seen)) / NUM_GAMES


def noted(warnings: list[str]) -> str:
    """Return the words that point to warnings, which are printed last; "" without any."""
    return f", BUT SEE THE {counted(len(warnings), 'WARNING', 'WARNINGS')} AT THE END" if warnings else ""


def drawn_ends(game: Game, rng: np.random.Generator) -> str:
    """Play random games; return as text the end of one that each player has won, and the end of a draw if nobody has
    won any. Of a game of one player: the ends with the largest and the smallest value."""
    if game.num_players == 1:
        played = sorted(played_games(game, rng), key=lambda one: one[1][0])
        best, worst = drawn_end(game, *played[-1]), drawn_end(game, *played[0])
        return best if best == worst else f"{best}\n\n{worst}"
    found = {}  # the player with the largest result, None for a draw: (actions, results) of the first such game
    for _ in range(ROUNDS):
        for actions, values in played_games(game, rng):
            found.setdefault(winner(values), (actions, values))
        if len(found.keys() - {None}) == game.num_players:
            break
    players = range(game.num_players)
    drawn = [drawn_end(game, *found[player]) for player in players if player in found]
    never = " or ".join(won(game, player) for player in players if player not in found)
    if not drawn:
        drawn = [drawn_end(game, *found[None])]
    return "\n\n".join([*drawn, f"no random game ended with {never}"] if never else drawn)


def winner(values: list[float]) -> int | None:
    """Return the player whose result, of P, is the largest; None if several have it."""
    best = [player for player, value in enumerate(values) if value == max(values)]
    return best[0] if len(best) == 1 else None


def won(game: Game, player: int | None) -> str:
    """Return what it is called that a player of two or more has won, or nobody."""
    return WON[player] if game.num_players == 2 or player is None else f"a win of player {player}"


def played_games(game: Game, rng: np.random.Generator) -> list[tuple[list[int], list[float]]]:
    """Play NUM_GAMES random games; return of each that ended (its actions with chance's outcomes, the result of each
    player)."""
    states = game.initial(NUM_GAMES)
    number = np.arange(NUM_GAMES)  # of the game that each state belongs to
    moves = [[] for _ in range(NUM_GAMES)]
    found = {}  # by the game's number
    for _ in range(game.max_plies):
        if not len(states):
            break
        due = chance.due(game, states)
        actions = np.empty(len(states), np.int64)
        for rows, choose in ((due, chance.draw), (~due, _random)):
            if rows.any():
                actions[rows] = choose(game, states[rows], rng.random(int(rows.sum())))
        for i, action in zip(number, actions.tolist()):
            moves[i].append(action)
        states = game.play(states, actions)
        ended, values = results(game, states)
        found |= dict(zip(number[ended].tolist(), values[ended].tolist()))
        states = states[~ended]
        number = number[~ended]
    return [(moves[i], result) for i, result in sorted(found.items())]


def _random(game, states, uniform):
    return random_actions(game.legal(states), uniform)


def drawn_end(game: Game, actions: list[int], values: list[float]) -> str:
    """Return the last moves of a game, its last two positions and its result as text. values: of each player."""
    states = list(positions(game, game.initial(1)[0], actions))
    words = [_word(game, state, action) for state, action in zip(states[-8:], actions[-8:])]
    end = game.play(states[-1][None], np.array(actions[-1:]))[0]
    moves = " ".join([*(["..."] if len(actions) > 8 else []), *words[:-1]])
    after = f", after {moves}" if moves else ""
    kind = f" with {won(game, winner(values))}" if game.num_players > 1 else ""
    return "\n".join(
        [
            f"a random game{kind}{after}",
            game.show(states[-1]),
            f"and {words[-1]}: {_result(game, end, values)}",
            game.show(end),
        ]
    )


def _word(game, state, action):
    is_drawn = chance.due(game, state[None])[0]
    return f"[{game.outcome_to_text(state, action)}]" if is_drawn else game.action_to_text(state, action)


def _result(game, end, values):
    if game.num_players > 2:
        return ", ".join(f"{value:+g} for player {player}" for player, value in enumerate(values))
    if game.num_players == 1:
        score = game.score(end[None])
        return f"a value of {values[0]:+g}" + ("" if score is None else f", {score[0]:,g} {game.score_name}")
    value = float(game.terminal(end[None])[1][0])
    player = int(game.to_play(end[None])[0])
    return f"{values[0]:+g} for the player who began (the value is {value:+g} for player {player}, who is to move)"


def time_rules(game: Game, states: np.ndarray) -> dict[str, float]:
    """Return microseconds a state of what one simulation asks of the rules, in batches of BATCH states."""
    states = np.resize(states[np.linspace(0, len(states) - 1, BATCH).astype(int)], (BATCH, game.state_size))
    actions = random_actions(game.legal(states), np.random.default_rng(0).random(BATCH))
    calls = {
        "play": lambda: game.play(states, actions),
        "terminal": lambda: game.terminal(states),
        "legal, twice": lambda: (game.legal(states), game.legal(states)),
        "to_play": lambda: game.to_play(states),
        "canonical_key": lambda: game.canonical_key(states),
        "planes": lambda: game.planes(states),
    }
    if game.num_outcomes:
        chance_states = chance_positions(game, np.random.default_rng(0))
        if len(chance_states):
            chance_states = np.resize(chance_states, (BATCH, game.state_size))
            calls["chances"] = lambda: game.chances(chance_states)
    return {name: timed(call) * 1e6 / BATCH for name, call in calls.items()}


def chance_positions(game: Game, rng: np.random.Generator) -> np.ndarray:
    """Return positions of random games where it is chance's move, [n, S]."""
    starts, seen = game.initial(NUM_GAMES), []
    seen.append(starts[chance.due(game, starts)])
    for states, legal in random_games(game, NUM_GAMES, rng):
        after = game.play(states, random_actions(legal, rng.random(len(states))))
        seen.append(after[chance.due(game, after)])
    return np.concatenate(seen)


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes: the least of all calls within TIMED_S, after one that may compile."""
    call()
    took = []
    end = time.perf_counter() + TIMED_S
    while len(took) < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun)
    return min(took)


def in_rows(rules_us: dict[str, float]) -> list[str]:
    """Return the times as lines."""
    rows = [*rules_us.items(), ("all rules", sum(rules_us.values()))]
    return [f"microseconds a state, one core, batches of {BATCH}:", *(f"  {name:<14} {us:8.2f}" for name, us in rows)]


def cost(game: Game, config: Any, states: np.ndarray, mean_plies: float, rules_us: float) -> list[str]:
    """Return lines on the memory and the time that the default settings take."""
    network = resnet.build(game, config.network, config.seed)
    engine, choice = engines.make(config.network.engine, network, game, "cpu", threads=1)
    planes = game.planes(np.resize(states, (BATCH, game.state_size)))
    evaluation_us = timed(lambda: engine.evaluate(planes)) * 1e6 / BATCH
    num_legal = game.legal(states).sum(axis=1).mean()
    trees = config.selfplay.parallel_games or PARALLEL_GAMES
    simulations = config.search.simulations
    window = config.replay.window_max
    node = tree.NODE.itemsize + game.state_size * game.state_dtype.itemsize + num_legal * tree.EDGE.itemsize
    row = sample_dtype(game, network.heads).itemsize + 8 + num_legal * HELD_POLICY.itemsize
    parameters = resnet.num_parameters(network)
    heads = ", ".join(f"{name} {resnet.num_parameters(head):,}" for name, head in network.heads.items())
    num_games = config.selfplay.num_games
    seconds = num_games * mean_plies * simulations * (rules_us + evaluation_us) / 1e6
    return [
        f"with the defaults ({config.network.blocks} x {config.network.channels} network, {simulations} simulations), "
        "one rank on one core:",
        f"  network        {parameters:,} parameters ({heads}); {evaluation_us:.0f} us an evaluation ({choice})",
        f"  rules          {rules_us / (rules_us + evaluation_us):.1%} of the time of rules and evaluations",
        f"  search trees   {trees * (simulations + 1) * node / MIB:,.0f} MiB ({counted(trees, 'game')} at once)",
        f"  window         up to {window * row / MIB:,.0f} MiB ({window:,} positions, over all ranks that train)",
        f"  cache          up to {config.network.cache_bytes / MIB:,.0f} MiB",
        f"  self-play      up to {duration(seconds)} an iteration ({counted(num_games, 'game')} as long as random "
        "ones)",
    ]
