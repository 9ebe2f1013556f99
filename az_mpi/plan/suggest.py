"""python -m az_mpi suggest: writes a configuration for a game and a time, from speeds measured on these hosts."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np

from az_mpi import games
from az_mpi.config import load as configuration
from az_mpi.config.schema import Config
from az_mpi.core.arguments import Parser, positive
from az_mpi.core.exit_codes import DONE
from az_mpi.core.host_names import is_here
from az_mpi.core.printing import counted
from az_mpi.core.problems import Refusal, escape, write_file
from az_mpi.doctor import trial
from az_mpi.evaluate.evaluation import opponent_names
from az_mpi.launch import check, hosts, mpi_job, mpirun
from az_mpi.plan import check_game, sizing
from az_mpi.telemetry import console
from az_mpi.telemetry.status_text import duration

PROG = "python -m az_mpi suggest"
ABOUT = """\
Write a configuration for a game and a time: how large a network, how many simulations, games and iterations, and what
window. It measures a few networks on the hosts of the run, for about a minute, and takes the largest one for which the
time is enough. Where there are GPUs, give it a rank for each."""
EPILOG = """\
examples:
  python -m az_mpi suggest connect4 --hours 0.2 --np 2
  python -m az_mpi suggest "go(size=9)" --hours 24 --hosts "node1:8,node2:8" --output go9.json
  python -m az_mpi suggest "my_game.py:MyGame(size=5)" --hours 3 --np 4

exit codes: 0 written, 2 it cannot be as asked: nothing was written
"""
GIB = 2**30
TOO_FEW = {"": "", "positions": "too few positions", "games": "too few games an iteration"}


def main(arguments: list[str]) -> int:
    """Run the command and return its exit status. Raises Refusal."""
    options = _parser().parse_args(arguments)
    chosen, num_ranks = hosts.choose(hosts.listed(options), np=options.np)
    if options.output.exists() or not options.output.parent.is_dir():
        why = "exists already" if options.output.exists() else "its folder does not exist"
        raise Refusal(f"--output {escape(str(options.output))}: {why}\n  give another name")
    asked = configuration.validate({"game": options.game}, "the command line", folders=[Path.cwd()]).game
    logdir = f"runs/{options.output.stem}"
    with mpi_job.interruptible():
        rules = _rules(asked)
        words = json.dumps({"game": asked, "rules": rules, "hours": options.hours})
        job = mpirun.JobSpec([sys.executable, "-m", "az_mpi.plan.speeds", words], chosen, num_ranks)
        found = _run(check.checked_line(job, logdir, options.no_check))
    config = configuration.validate(found["config"], "suggest")
    prediction = trial.predict(config, found["figures"])
    if prediction["hours"] > options.hours:
        one = duration(prediction["hours"] * 3600)
        raise Refusal(f"--hours {options.hours:g}: one game takes {one} here\n  give more --hours")
    write_file(options.output, _written(found["config"]))
    command = shlex.join(
        [*_start(options, chosen, num_ranks), "--config_file", str(options.output), "--logdir", logdir]
    )
    if options.json:
        print(json.dumps({**found, "prediction": prediction, "file": str(options.output), "next": command}))
    else:
        print(
            "\n".join(
                [*explained(found, config, prediction, options.hours), f"written: {options.output}", f"next: {command}"]
            )
        )
    return DONE


def _parser():
    parser = Parser(PROG, ABOUT, EPILOG)
    parser.add_argument("game", metavar="GAME", help="as in the configuration's key game")
    parser.add_argument("--hours", type=positive, required=True, metavar="H", help="hours that the run may take")
    hosts.add_options(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        default=Path("suggested.json"),
        help="the configuration to write (default suggested.json)",
    )
    parser.add_argument("--json", action="store_true", help="print what was measured and chosen as one JSON object")
    return parser


def _start(options, chosen, num_ranks):
    """Return the words that start a run: mpirun on this machine alone, launch on other hosts or in a Slurm job."""
    if options.hostfile is None and len(chosen) == 1 and is_here(chosen[0].name):
        slots = ["-H", f"localhost:{num_ranks}"] if num_ranks > 1 else []  # there may be fewer cores than ranks
        # Measured so too. mpirun alone binds each of two ranks to one core; unbound ones divide the cores.
        return ["mpirun", "-np", str(num_ranks), *slots, "--bind-to", "none", "python", "run_dist.py"]
    return ["python", "-m", "az_mpi", "launch", *hosts.words(options), "--"]


def _rules(name: str) -> sizing.Rules:
    """Return the `Rules` that random games of the game `name` show."""
    game = games.make(name)
    states, length = check_game.random_positions(game, np.random.default_rng(0))
    us = check_game.time_rules(game, states)
    ply_us = us["play"] + us["terminal"] + us["legal, twice"] / 2
    return sizing.Rules(float(game.legal(states).sum(axis=1).mean()), ply_us, length, game.num_players)


def _run(command: list[str]) -> dict[str, Any]:
    """Return the JSON object that the job prints. Raises Refusal if it fails."""
    ended = mpi_job.run_child(command)
    found = ended.result
    if ended.status or found is None:
        raise Refusal(
            f"the measurement ended with status {ended.status}, see above: {' '.join(command)}\n"
            f"  `{command[0]} -np N python -m az_mpi doctor` says what is wrong with a job here"
        )
    if "refused" in found:
        raise Refusal(found["refused"])
    return found


def _written(data: dict[str, Any]) -> str:
    """Return a configuration as JSON, with a line for each key or section."""
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()) + "\n}\n"


def _fast(search):
    if search.full_share == 1:
        return ""
    return f", for {search.full_share:.0%} of the moves; the others get {search.fast_simulations}"


def _value_target(train):
    if horizon := train.root_value_horizon:
        return (
            f"root values of later positions, {counted(horizon, 'move')} later on average, as in configs/2048.json; "
            f"its loss has the weight {train.value_loss_weight:g}"
        )
    return (
        f"{train.root_value_share:g} of the search's root value, the rest of the game's result "
        f"({sizing.SHORT_GAME_SHARE:g} in games of up to {sizing.SHORT_GAME} random plies)"
    )


def explained(found: dict[str, Any], config: Config, prediction: dict[str, Any], hours: float) -> list[str]:
    """Return lines on what was measured, and what was chosen and why. prediction: of `trial.predict` for `config`."""
    figures = found["figures"]
    num_games = config.selfplay.num_games
    iterations = config.iterations
    rows = [("network", "moves/s", "s a training step", "positions in this time", "wanted", "")]
    for size, one, made, lacks in found["tried"]:
        rows.append(
            (
                "{} x {}".format(*size),
                f"{sum(one['moves_per_s']):,.0f}",
                f"{one['step_s']:.3f}",
                f"{made * one['mean_length']:,.0f}",
                f"{sizing.positions_wanted(*size):,}",
                TOO_FEW[lacks],
            )
        )
    rivals = opponent_names(config, games.make(config.game))
    share = prediction["train_s"] / (prediction["train_s"] + prediction["play_s"])
    return [
        f"measured on {counted(len(figures['hosts']), 'rank')}, with the search that is chosen:",
        *(f"  {line}" for line in console.table(rows)),
        *(f"note: {note}" for note in found["notes"]),
        f"network       {config.network.blocks} x {config.network.channels}: "
        + (
            "the smallest, and even for it the time is short"
            if found["tried"][0][-1]
            else f"the largest that gets {sizing.POSITIONS_PER_WEIGHT} positions for each weight of its tower"
        ),
        f"search        Gumbel, {config.search.simulations} simulations, {config.search.gumbel_actions} actions at the "
        f"root{_fast(config.search)}; {counted(config.selfplay.random_plies, 'ply', 'plies')} of random moves at most",
        f"self-play     {sum(figures['moves_per_s']):,.0f} moves/s, {prediction['games_per_s'] * 3600:,.0f} games/h of "
        f"{figures['mean_length']:.0f} moves (from {figures['length_from']})",
        f"iterations    {iterations} of {counted(num_games, 'game')}: {prediction['play_s']:.1f} s of play, "
        f"{prediction['train_s']:.1f} s of training ({share:.0%} of the time), {prediction['step_s']:.3f} s a step of "
        f"{counted(config.train.batch_size, 'sample')}",
        f"value target  {_value_target(config.train)}",
        f"window        {config.replay.window_max:,} positions: {sizing.WINDOW_ITERATIONS} iterations, or what memory "
        "allows",
        f"memory        up to {max(figures['peak_bytes']) / GIB:.1f} GiB a rank",
        f"time          {prediction['hours']:.2f} of {hours:g} hours; the rest is for evaluations (each of "
        f"{config.evaluate.num_games} games against {', '.join(rivals)}) and what is unforeseen",
    ]
