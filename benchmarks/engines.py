"""Inference engines on one core, torch's on the GPU if there is one: evaluations/s by batch size, and how long new
weights take to reach them.

    python benchmarks/engines.py --blocks 10 --channels 128

`new_weights_s` is from the trained network to the first evaluation with it.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from common import bare_rate, make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network import engines, resnet
from az_mpi.network.engines.int8 import has_int8

KINDS = {"openvino": ("openvino", "auto"), "openvino_int8": ("openvino", "int8"), "torch": ("torch", "auto")}
HERE = tuple(kind for kind, (_, precision) in KINDS.items() if precision != "int8" or has_int8())


def main():
    parser = make_parser(__doc__, runs=5)
    parser.add_argument("--game", default="connect4", choices=games.NAMES)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--block", default="residual", help="network.block")
    parser.add_argument("--engines", nargs="+", choices=KINDS, default=HERE)
    parser.add_argument("--batches", nargs="+", type=int, default=(1, 8, 32, 64, 100, 256))
    arguments = parser.parse_args()
    take_one_core()
    game = games.make(arguments.game)
    settings = models.Network(blocks=arguments.blocks, channels=arguments.channels, block=arguments.block)
    network = resnet.build(game, settings, seed=1)
    where = "cuda:0" if torch.cuda.is_available() else "cpu"
    made = {kind: engines.make(KINDS[kind][0], network, game, where, 1, KINDS[kind][1]) for kind in arguments.engines}
    figures = [measure(made, network, game, arguments.batches) for _ in range(arguments.runs)]
    choices = ", ".join(choice for _, choice in made.values())
    tell(
        f"engines {game.name} {settings.blocks}x{settings.channels} {settings.block}, {choices}",
        {name: spread([f[name] for f in figures]) for name in figures[0]},
        arguments.json,
    )


def measure(made, network, game, batches):
    """Return one turn of every engine at every batch size."""
    figures = {}
    for name, (engine, _) in made.items():
        begun = time.perf_counter()
        engine.load(network)
        engine.evaluate(game.planes(game.initial(1)))
        figures[f"{name}.new_weights_s"] = time.perf_counter() - begun
    for batch in batches:  # engines take turns, so that a machine whose speed drifts slows all
        for name, (engine, _) in made.items():
            figures[f"{name}.evaluations_per_s.{batch}"] = bare_rate(engine, game, batch)
    return figures


if __name__ == "__main__":
    main()
