"""Kinds of blocks: evaluations/s on one core, and what a network learns in equal time from positions with exact values.

    python benchmarks/blocks.py --networks residual:4x48 global_pooling:4x48 --seconds 60

The positions are of random games of Connect Four, solved by BitBully: targets are the exact value and the moves that
keep it. Networks take turns of a second, and seconds are of the processor, so that other work on the machine slows all
alike. `loss` is of positions that are not trained on: the policy's cross entropy and the value's squared error.
"""

import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from common import make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.evaluate.solver import positions, solve_connect4
from az_mpi.network import engines, resnet
from az_mpi.train.optimizer import AdamW

GAME = games.make("connect4")
FIRST_PLY, LAST_PLY, TEST_NUM = 14, 34, 2000  # BitBully needs 20 ms for a position with fewer stones
LEARNING_RATE, FINAL, TURN_S = 0.002, 0.05, 1.0


def main():
    parser = make_parser(__doc__, runs=7)
    parser.add_argument("--networks", nargs="+", metavar="BLOCK:BxC", default=(
        "residual:4x48", "global_pooling:4x48", "squeeze_excitation:4x48", "bottleneck:7x48", "bottleneck:4x64"))
    parser.add_argument("--positions", type=int, default=12_000)
    parser.add_argument("--seconds", type=float, default=30.0, help="of training, for each network")
    parser.add_argument("--seeds", type=int, nargs="+", default=(1,))
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--engine", default="auto")
    arguments = parser.parse_args()
    take_one_core()
    data, rows = labelled(arguments.positions), {}
    for seed in arguments.seeds:
        pupils = {text: Pupil(text, seed, data, arguments) for text in arguments.networks}
        while any(pupil.used_s < arguments.seconds for pupil in pupils.values()):
            for pupil in pupils.values():
                pupil.turn()
        for text, pupil in pupils.items():
            for name, figure in pupil.figures().items():
                rows.setdefault(f"{text}.{name}", []).append(figure)
    for text, rate in rates(pupils, arguments).items():
        rows[f"{text}.evaluations_per_s"] = rate
    tell(f"blocks, {len(data[0])} positions, {arguments.seconds:g} s", {n: spread(r) for n, r in rows.items()},
         arguments.json)


def labelled(num):
    """Return (planes [P, C, H, W], the moves that keep the value as probabilities [P, A], values [P]), float32, of
    `num` positions of random games and of their mirror images; the first TEST_NUM have no mirror image."""
    states = positions(GAME, num, 1, FIRST_PLY, LAST_PLY)
    solved = solve_connect4(GAME, states)
    test_num = min(TEST_NUM, len(states) // 2)
    parts = [GAME.planes(states), solved.keeps / solved.keeps.sum(axis=1, keepdims=True), solved.values]
    turned = [parts[0][test_num:, :, :, ::-1], parts[1][test_num:, ::-1], parts[2][test_num:]]
    tensors = (torch.from_numpy(np.concatenate(pair).astype(np.float32)) for pair in zip(parts, turned))
    return [*tensors, test_num]


class Pupil:
    """A network in training."""

    def __init__(self, text, seed, data, arguments):
        block, _, size = text.rpartition(":")
        blocks, channels = map(int, size.split("x"))
        self.network = resnet.build(GAME, models.Network(blocks=blocks, channels=channels, block=block), seed)
        self.optimizer = AdamW(self.network.parameters(), lr=LEARNING_RATE, weight_decay=1e-4, fused=True)
        self.data, self.arguments, self.rng = data, arguments, np.random.default_rng(seed)
        self.used_s, self.steps_num = 0.0, 0

    def turn(self):
        """Train for TURN_S; the rate falls as a cosine over all seconds."""
        planes, policy, value, test_num = self.data
        begun = time.process_time()
        end = begun + min(TURN_S, self.arguments.seconds - self.used_s)
        while (now := time.process_time()) < end:
            done = (self.used_s + now - begun) / self.arguments.seconds
            self.optimizer.param_groups[0]["lr"] = LEARNING_RATE * (
                FINAL + (1 - FINAL) * (1 + math.cos(math.pi * done)) / 2)
            at = self.rng.integers(test_num, len(value), self.arguments.batch_size)
            self.optimizer.zero_grad()
            sum(losses(self.network, planes[at], policy[at], value[at])).backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            self.steps_num += 1
        self.used_s += time.process_time() - begun

    @torch.inference_mode()
    def figures(self):
        """Return what the network has learnt."""
        planes, policy, value, test_num = (part[:TEST_NUM] if torch.is_tensor(part) else part for part in self.data)
        planes, policy, value = planes[:test_num], policy[:test_num], value[:test_num]
        by_head = [loss.item() for loss in losses(self.network, planes, policy, value)]
        kept = policy.gather(1, self.network(planes)["policy"].argmax(1, keepdim=True)) > 0
        return {"loss": sum(by_head), "policy_loss": by_head[0], "value_loss": by_head[1],
                "best_moves": kept.float().mean().item(), "steps_num": self.steps_num,
                "parameters_num": resnet.parameters_num(self.network.tower)}  # fmt: skip


def losses(network, planes, policy, value):
    outputs = network(planes.contiguous(memory_format=torch.channels_last))
    logits = outputs["policy"].log_softmax(dim=1)
    return -(policy * logits).sum(dim=1).mean(), ((outputs["value"] - value) ** 2).mean()


def rates(pupils, arguments):
    """Return {network: evaluations per second of the processor, one for each turn} at 128 positions."""
    planes = np.random.default_rng(0).integers(0, 2, (128, *GAME.planes_shape)).astype(np.uint8)
    made = {text: engines.make(arguments.engine, pupil.network, GAME, "cpu", 1)[0] for text, pupil in pupils.items()}
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
