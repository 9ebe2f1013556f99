"""python -m az_mpi ladder RUN: play the checkpoints of a run against each other, for one Elo curve.

In games of three or more players a network's rating is from comparisons: of the results of one network, which is alone,
and of another one in all other seats. In games of one player every network plays the same seeds, and has scores."""

import argparse
import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from az_mpi.core import files
from az_mpi.core.arguments import Parser, count, even
from az_mpi.core.printing import bounds, counted
from az_mpi.core.problems import NotNow, Refusal, escape, write_file
from az_mpi.evaluate.match import add_strength
from az_mpi.mpi.frame import run_command

if TYPE_CHECKING:
    from az_mpi.mpi.world import World

PROG = "python -m az_mpi ladder"
NAME = "ladder.json"
PLAYERS_KEPT = 4  # networks in memory
ABOUT = """\
Play the networks that a run has kept, its checkpoints and its best networks, against each other, and fit one Elo to
each. The result is RUN/ladder.json, which `python -m az_mpi report RUN` draws."""
EPILOG = """\
Of n networks each meets those 1, 2, 4, 8, ... places later. Games that are in RUN/ladder.json are not played again:
the same command continues where an earlier one ended, and adds networks that are new. With mpirun the ranks share the
games.
"""


def main(arguments: list[str]) -> int:
    """Play a ladder and print its ratings; return the exit status. Raises Refusal."""
    parser = Parser(PROG, ABOUT, EPILOG, run=True)
    parser.add_argument(
        "--every", type=count, default=1, metavar="K", help="only every K-th network, and the newest (default 1: all)"
    )
    parser.add_argument("--games", type=even, default=40, metavar="N", help="games of each pair, even (default 40)")
    add_strength(parser)
    parser.add_argument("--fresh", action="store_true", help="start again, without the games in RUN/ladder.json")
    return run_command(parser, arguments, _ladder)


def _ladder(world: "World", given: argparse.Namespace) -> None:
    """Collective over world."""
    from az_mpi.mpi.agreement import everywhere

    plan = world.from_root(lambda: _plan(given))
    ladder = everywhere(world, lambda: Ladder(world, given.run, plan))
    if ladder.game.num_players == 1:
        for number, name in enumerate(plan["networks"], 1):
            ladder.score(name, given.games, f"{number} of {len(plan['networks'])}")
        pairs = []
    else:
        pairs = meetings(len(plan["networks"]))
    for number, (i, j) in enumerate(pairs, 1):
        ladder.meet(i, j, given.games, f"{number} of {len(pairs)}")
    if pairs:
        ladder.rate()
    if world.is_root:
        print(table(ladder.data), flush=True)


def meetings(num: int) -> list[tuple[int, int]]:
    """Return the pairs (i, j) of players that meet, i < j: 1, 2, 4, 8, ... apart, neighbours first.

    Neighbours are about equally strong, so their games tell most. But along a chain of neighbours alone errors add up;
    with the longer steps any two players are at most about log2(num) games apart."""
    steps = [2**k for k in range(max(num - 1, 0).bit_length())]
    return [(i, i + step) for step in steps for i in range(num - step)]


def network_names(run: Path) -> list[str]:
    """Return the names of the networks that a run has kept, oldest first: of whole iterations alone."""
    best = (name.removesuffix(".safetensors") for name in files.names(run / "best"))
    return sorted({name for name in (*best, *files.names(run / "checkpoints")) if name.isdecimal()})


def _plan(given):
    """Return the ladder so far as its file has it, with the networks that are to play. Raises Refusal."""
    from az_mpi.storage.run_folder import recorded_config

    config = recorded_config(given.run)  # it refuses what is no run
    names = network_names(given.run)
    if len(names) < 2:
        raise Refusal(
            f"{given.run} has {counted(len(names), 'network')} in checkpoints/ and best/: a ladder needs two\n"
            "  train longer, or keep more checkpoints (checkpoint.keep)"
        )
    chosen = sorted({*names[:: given.every], names[-1]})
    simulations = given.simulations or config.match_search().simulations
    settings = {"simulations": simulations, "opening_plies": given.opening_plies}
    data = {**settings, "seed": config.seed, "pairs": []}
    path = given.run / NAME
    if files.is_there(path) and not given.fresh:
        data = _read(path)
        if wrong := [key for key, value in settings.items() if data[key] != value]:
            key = wrong[0]
            raise Refusal(
                f"{escape(str(path))} has games with {key} = {data[key]}, not {settings[key]}\n"
                "  give the same settings to continue, or --fresh to start again"
            )
    return {"ratings": [], "scores": []} | data | {"networks": chosen}


def _read(path):
    try:
        data = files.read_json(path)
        if not {"simulations", "opening_plies", "seed", "pairs"} <= data.keys():
            raise ValueError("a part of it is missing")
        return data
    except (OSError, ValueError, AttributeError) as error:
        raise Refusal(f"{escape(str(path))} cannot be read: {error}\n  --fresh starts again") from error


class Ladder:
    """The matches between the networks of a run. data: what RUN/ladder.json has."""

    def __init__(self, world: "World", run: Path, data: dict[str, Any]):
        from az_mpi.player.loaded_player import load_player, on_rank
        from az_mpi.player.network_paths import find_network

        self.world = world
        self.run = run
        self.data = data
        self.names = data["networks"]
        where = on_rank(world)
        self._load = functools.lru_cache(PLAYERS_KEPT)(lambda name: load_player(find_network(run, name), **where))
        first = self._load(self.names[0])
        self.game = first.game
        self._settings = first.settings.model_copy(update={"simulations": data["simulations"]})

    def _player(self, name):
        from az_mpi.evaluate.opponents import SearchPlayer

        return SearchPlayer(self._load(name).evaluator, self._settings)

    def _players(self, what, *names):
        """Return the players of these networks; None, and say so, if one is gone: a run under way keeps few
        checkpoints. What was played counts all the same. Collective."""
        from az_mpi.mpi.agreement import everywhere

        try:
            return everywhere(self.world, lambda: [self._player(name) for name in names])
        except NotNow:  # the file system fails, and the network may be there
            raise
        except Refusal as gone:
            if self.world.is_root:
                print(f"  {what}: left out: {gone}", file=sys.stderr, flush=True)
            return None

    def meet(self, i: int, j: int, num_games: int, where: str) -> None:
        """Play what is missing of a match between two networks, and save it. Collective."""
        first = self.names[i]
        second = self.names[j]
        row = next((row for row in self.data["pairs"] if (row["first"], row["second"]) == (first, second)), None)
        counts = {"wins": 0, "draws": 0, "losses": 0} if self.game.num_players == 2 else {"num_games": 0, "sets": []}
        row = row or {"first": first, "second": second, **counts}
        done = played_in(row)
        if done >= in_whole_sets(num_games, self.game.num_players):
            return
        players = self._players(f"match {where}", first, second)
        if not players:
            return
        seed = (self.data["seed"], int(first), int(second), done)
        text = self._add(row, players, num_games - done, seed)
        if row not in self.data["pairs"]:
            self.data["pairs"].append(row)
        if self.world.is_root:
            print(f"  match {where}: {second} against {first}: {text}", file=sys.stderr, flush=True)
        self._save()

    def _add(self, row, players, num_games, seed):
        """Play games and add them to the row of their match; return the row as text, as the second network sees it."""
        from az_mpi.evaluate.arena import play_match

        game, plies = self.game, self.data["opening_plies"]
        if game.num_players == 2:
            result = play_match(self.world, game, *players, num_games, plies, seed)
            for key in ("wins", "draws", "losses"):
                row[key] += getattr(result, key)
            if game.num_outcomes:
                row["sets"] = [*row.get("sets", []), *result.pairs]
            return f"won {row['losses']}, drew {row['draws']}, lost {row['wins']}"
        # Each network is alone against the other one in half of the sets.
        for k, (alone, others) in enumerate((players, players[::-1])):
            result = play_match(self.world, game, alone, others, max(num_games // 2, 1), plies, (*seed, k))
            sets = result.ahead.mean(axis=1).tolist()
            row["sets"] += [1 - ahead for ahead in sets] if k else sets
        row["num_games"] = len(row["sets"]) * game.num_players
        return f"ahead in {1 - sum(row['sets']) / len(row['sets']):.3f} of comparisons, {row['num_games']} games"

    def score(self, name: str, num_games: int, where: str) -> None:
        """Let a network play the seeds of a game of one player, if it has not, and save its scores. Collective."""
        from az_mpi.evaluate.arena import SEEDS, play_match
        from az_mpi.evaluate.rating import score_summary
        from az_mpi.evaluate.tally import Scores

        known = {row["name"]: row["num_games"] for row in self.data["scores"]}
        if known.get(name, 0) >= num_games:
            return
        players = self._players(f"network {where}", name)
        if not players:
            return
        result = play_match(self.world, self.game, players[0], None, num_games, self.data["opening_plies"], SEEDS)
        assert isinstance(result, Scores)
        row = {"name": name, "iteration": int(name), **score_summary(result)}
        kept = [one for one in self.data["scores"] if one["name"] != name]
        self.data["scores"] = sorted([*kept, row], key=lambda one: one["iteration"])
        self.data["score_name"] = self.game.score_name or "value"
        if self.world.is_root:
            print(f"  network {where}: {name}: mean {row['score_mean']:.5g}", file=sys.stderr, flush=True)
        self._save()

    def rate(self) -> None:
        """Fit a rating to each network, from all games, and save it. Networks of earlier ladders that the run has
        removed since are rated too, if games link them to the others. Collective."""
        import numpy as np

        from az_mpi.evaluate.rating import Z_95, bradley_terry, connected, variance_of_sets

        pairs = [(row["first"], row["second"]) for row in self.data["pairs"]]
        first = next((name for name in self.names if any(name in pair for pair in pairs)), None)
        names = sorted(connected(pairs, first)) if first else []
        place = {name: k for k, name in enumerate(names)}
        points = np.zeros((len(names), len(names)))
        spread = np.full(points.shape, np.nan)
        played = np.zeros(len(names), int)
        for row in self.data["pairs"]:
            if row["first"] in place:
                i = place[row["first"]]
                j = place[row["second"]]
                num = played_in(row)
                won = row["wins"] + row["draws"] / 2 if "wins" in row else num * np.mean(row["sets"])
                points[i, j] += won
                points[j, i] += num - won
                played[[i, j]] += num
                if sets := row.get("sets"):
                    spread[i, j] = spread[j, i] = num**2 / len(sets) * variance_of_sets(sets)
        elo, error = bradley_terry(points, spread)
        self.data["ratings"] = [
            {
                "name": name,
                "iteration": int(name),
                "num_games": int(num),
                "elo": rating,
                "elo_low": rating - Z_95 * deviation,
                "elo_high": rating + Z_95 * deviation,
            }
            for name, num, rating, deviation in zip(names, played, elo.tolist(), error.tolist())
        ]
        self._save()

    def _save(self):
        text = json.dumps(self.data, indent=1) + "\n"
        self.world.from_root(lambda: write_file(self.run / NAME, text))


def in_whole_sets(num_games: int, num_players: int) -> int:
    """Return how many of `num_games` games of a pair are played: of three or more players both networks are alone in
    as many whole sets."""
    each = num_players if num_players == 2 else 2 * num_players
    return max(num_games // each, 1) * each


def played_in(row: dict[str, Any]) -> int:
    """Return how many games of a match the row of a ladder has."""
    return row["num_games"] if "num_games" in row else row["wins"] + row["draws"] + row["losses"]


def table(data: dict[str, Any]) -> str:
    """Return the ratings, or the scores of games of one player, as lines of text."""
    if data["scores"]:
        return _scores(data)
    lines = [f"{'network':<10}{'games':>8}{'Elo':>8}   95 %"]
    for row in data["ratings"]:
        lines.append(
            f"{row['name']:<10}{row['num_games']:>8}{row['elo']:>+8.0f}   [{row['elo_low']:+.0f}, "
            f"{row['elo_high']:+.0f}]"
        )
    return "\n".join([*lines, f"{data['simulations']} simulations a move; the first network has Elo 0"])


def _scores(data):
    lines = [f"{'network':<10}{'games':>8}{'mean':>10}{'best':>10}{'median':>10}   95 % of the mean"]
    for row in data["scores"]:
        numbers = "".join(f"{row[f'score_{key}']:>10.5g}" for key in ("mean", "best", "median"))
        lines.append(f"{row['name']:<10}{row['num_games']:>8}{numbers}  {bounds(row, 'score_mean', '.5g')}")
    return "\n".join([*lines, f"{data['simulations']} simulations a move; {data['score_name']}, on the same seeds"])
