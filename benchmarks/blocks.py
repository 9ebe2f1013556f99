"""Kinds of blocks: evaluations/s on one core, and what a network learns in equal time from one set of positions.

    python benchmarks/blocks.py --networks residual:4x48 global_pooling:4x48 --seconds 60
    python benchmarks/blocks.py --run runs/go9 --networks residual:4x48 global_pooling:4x48 --seconds 300

The positions are of random games of Connect Four, solved by BitBully: targets are the exact value and the moves that
keep it. With `--run` they are the newest ones that the run stored, with the targets and heads that it trains on; the
games of its newest iteration are the test. Networks take turns of a second, and seconds are of the processor, so that
other work on the machine slows all alike. `loss` is of positions that are not trained on, the sum over the heads;
`best_moves` is how often the most probable move is one of those with the largest target.
"""

import math
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from common import make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.config import schema
from az_mpi.evaluate.solver import positions, solve_connect4
from az_mpi.games.base import Game
from az_mpi.network import engines, resnet
from az_mpi.selfplay.record import Record
from az_mpi.storage import run_folder, segment
from az_mpi.train.loss import losses
from az_mpi.train.optimizer import AdamW
from az_mpi.train.replay import Replay, Samples, sample_dtype, to_samples

FIRST_PLY, LAST_PLY = 14, 34  # BitBully needs 20 ms for a position with fewer stones
NUM_TEST, NUM_DRAWN = 2000, 4000  # positions that are solved for the test; draws from its positions, each way round
LEARNING_RATE, FINAL, TURN_S = 0.002, 0.05, 1.0


class Lesson(NamedTuple):
    """What all networks learn, and on what they are tested."""

    game: Game
    network: schema.Network
    settings: schema.Train
    train: Replay
    test: Replay


def main():
    parser = make_parser(__doc__, runs=7)
    parser.add_argument("--run", type=Path, help="the folder of a run: learn from its games")
    parser.add_argument(
        "--networks",
        nargs="+",
        metavar="BLOCK:BxC",
        default=(
            "residual:4x48",
            "global_pooling:4x48",
            "squeeze_excitation:4x48",
            "bottleneck:7x48",
            "bottleneck:4x64",
        ),
    )
    parser.add_argument("--positions", type=int, help="to learn from (default 10,000; all of a run)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of training, for each network")
    parser.add_argument("--seeds", type=int, nargs="+", default=(1,))
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--engine", default="auto")
    arguments = parser.parse_args()
    take_one_core()
    lesson = stored(arguments.run, arguments.positions) if arguments.run else solved(arguments.positions or 10_000)
    rows = {}
    for seed in arguments.seeds:
        pupils = {text: Pupil(text, seed, lesson, arguments) for text in arguments.networks}
        while any(pupil.used_s < arguments.seconds for pupil in pupils.values()):
            for pupil in pupils.values():
                pupil.turn()
        for text, pupil in pupils.items():
            for name, figure in pupil.figures().items():
                rows.setdefault(f"{text}.{name}", []).append(figure)
    for text, rate in rates(lesson.game, pupils, arguments).items():
        rows[f"{text}.evaluations_per_s"] = rate
    tell(
        f"blocks, {lesson.game.name}, {lesson.train.num_positions} positions, {arguments.seconds:g} s",
        {name: spread(row) for name, row in rows.items()},
        arguments.json,
    )


def solved(num):
    """Return `num` positions of random games of Connect Four, and NUM_TEST (or as many) others, with exact targets."""
    game, settings = games.make("connect4"), schema.Network()
    heads = resnet.build(game, settings, 0).heads
    num_test = min(NUM_TEST, num)
    states = positions(game, num + num_test, 1, FIRST_PLY, LAST_PLY)
    known = solve_connect4(game, states)
    rows = np.zeros(len(states), sample_dtype(game, heads))
    rows["index"], rows["state"], rows["weight"], rows["value"] = np.arange(len(rows)), states, 1.0, known.values
    policy = known.keeps / known.keeps.sum(axis=1, keepdims=True)
    test, train = Replay(game, heads), Replay(game, heads)
    test.add(Samples.of(rows[:num_test], policy[:num_test]))
    train.add(Samples.of(rows[num_test:], policy[num_test:]))
    return Lesson(game, settings, schema.Train(), train, test)


def stored(run, num):
    """Return the newest `num` positions that a run stored, or all, without its newest iteration, which is the test."""
    config = run_folder.recorded_config(run, {})
    game = games.make(config.game)
    heads = resnet.build(game, config.network, 0).heads
    stored_games = segment.paths(run / "games")
    newest = max((iteration for iteration, _ in stored_games), default=0)
    if not newest:
        raise SystemExit(f"{run} has no games of a second iteration: train on it until there are some")
    train, test = Replay(game, heads), Replay(game, heads)
    for replay, is_test in ((train, False), (test, True)):
        parts = [segment.read(path, game) for iteration, path in stored_games if (iteration == newest) == is_test]
        replay.add(to_samples(Record.join(game, parts), game, heads, config.train, 0))
    train.forget(train.num_positions - (num or train.num_positions))
    return Lesson(game, config.network, config.train, train, test)


class Pupil:
    """A network in training."""

    def __init__(self, text, seed, lesson, arguments):
        block, _, size = text.rpartition(":")
        blocks, channels = map(int, size.split("x"))
        settings = lesson.network.model_copy(update={"blocks": blocks, "channels": channels, "block": block})
        self.network = resnet.build(lesson.game, settings, seed)
        self.optimizer = AdamW(self.network.parameters(), lr=LEARNING_RATE, weight_decay=1e-4, fused=True)
        self.lesson, self.arguments, self.rng = lesson, arguments, np.random.default_rng(seed)
        self.used_s, self.num_steps = 0.0, 0

    def turn(self):
        """Train for TURN_S; the rate falls as a cosine over all seconds."""
        begun = time.process_time()
        end = begun + min(TURN_S, self.arguments.seconds - self.used_s)
        while (now := time.process_time()) < end:
            done = (self.used_s + now - begun) / self.arguments.seconds
            self.optimizer.param_groups[0]["lr"] = LEARNING_RATE * (
                FINAL + (1 - FINAL) * (1 + math.cos(math.pi * done)) / 2
            )
            batch = sample(self.lesson.train, self.rng, self.arguments.batch_size)
            self.optimizer.zero_grad()
            by_head, weights = losses(self.network, batch), self.weights()
            (sum(weights[name] * by_head[name] for name in by_head) / self.arguments.batch_size).backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            self.num_steps += 1
        self.used_s += time.process_time() - begun

    def weights(self):
        """Return {head: its weight in the loss}."""
        return {name: head.weight(self.lesson.settings) for name, head in self.network.heads.items()}

    @torch.inference_mode()
    def figures(self):
        """Return what the network has learnt."""
        batch = sample(self.lesson.test, np.random.default_rng(0), NUM_DRAWN)  # the same ones for each network
        by_head = {name: loss.item() / NUM_DRAWN for name, loss in losses(self.network, batch).items()}
        logits = self.network(batch["planes"])["policy"].masked_fill(batch["policy"] < 0, -torch.inf)
        chosen = logits.argmax(1, keepdim=True)
        best = batch["policy"].gather(1, chosen)[:, 0] == batch["policy"].amax(1)
        return {
            "loss": sum(weight * by_head[name] for name, weight in self.weights().items()),
            **{f"{name}_loss": loss for name, loss in by_head.items()},
            "best_moves": best.float().mean().item(),
            "num_steps": self.num_steps,
            "num_parameters": resnet.num_parameters(self.network.tower),
        }


def sample(replay, rng, num):
    """Return a batch of `num` positions as tensors, planes float32 in channels_last."""
    batch = {name: torch.from_numpy(part) for name, part in replay.sample(rng, num).items()}
    return batch | {"planes": batch["planes"].float().contiguous(memory_format=torch.channels_last)}


def rates(game, pupils, arguments):
    """Return {network: evaluations per second of the processor, one for each turn} at 128 positions."""
    planes = np.random.default_rng(0).integers(0, 2, (128, *game.planes_shape)).astype(np.uint8)
    made = {text: engines.make(arguments.engine, pupil.network, game, "cpu", 1)[0] for text, pupil in pupils.items()}
    found = {text: [] for text in made}
    for _ in range(arguments.runs):
        for text, engine in made.items():
            engine.evaluate(planes)
            begun, rounds = time.process_time(), 0
            while (took := time.process_time() - begun) < 0.5:
                engine.evaluate(planes)
                rounds += 1
            found[text].append(rounds * len(planes) / took)
    return found


if __name__ == "__main__":
    main()
