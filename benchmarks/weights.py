"""What it would cost and save to compress the weights that travel to ranks that only play.

    python benchmarks/weights.py --networks 5x64 20x256

For each network and method: `.size`, its bytes over those of float32; `.pack_s` and `.unpack_s`, processor seconds on
one core; `.pays_below_gbit_per_s`, the speed of a network on which packing, sending fewer bytes and unpacking takes as
long as sending float32. All but bf16 are exact. `delta` is against the weights `--steps` optimiser steps before.
"""

import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from common import make_parser, spread, take_one_core, tell

from az_mpi import games
from az_mpi.config import schema as models
from az_mpi.network import resnet
from az_mpi.train.loss import losses
from az_mpi.train.optimizer import AdamW

NUM_PLANES = 4  # bytes of a float32


def main():
    parser = make_parser(__doc__, runs=5)
    parser.add_argument(
        "--networks", nargs="+", default=("4x48", "5x64", "10x128", "20x256"), metavar="BxC", help="blocks x channels"
    )
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    take_one_core()
    for name in arguments.networks:
        blocks, channels = map(int, name.split("x"))
        before, after = learn(blocks, channels, arguments.steps)
        figures = [measure(before, after) for _ in range(arguments.runs)]
        tell(
            f"weights of {name}, {after.nbytes:,} bytes",
            {key: spread([f[key] for f in figures]) for key in figures[0]},
            arguments.json,
        )


def learn(blocks, channels, steps):
    """Return a network's weights, float32 [n], after `steps` optimiser steps on random positions, and after twice as
    many."""
    game, generator = games.make("connect4"), torch.Generator().manual_seed(1)
    network = resnet.build(game, models.Network(blocks=blocks, channels=channels), seed=1)
    optimizer, found = AdamW(network.parameters(), lr=0.002, weight_decay=1e-4, fused=True), []
    for _ in range(2):
        for _ in range(steps):
            planes = torch.randint(0, 2, (16, *game.planes_shape), generator=generator).float()
            policy = torch.randn(16, game.num_actions, generator=generator).softmax(dim=1)
            value = torch.randn(16, generator=generator).sign()
            optimizer.zero_grad()
            batch = {"planes": planes, "policy": policy, "value": value, "weight": torch.ones(16)}
            (sum(losses(network, batch).values()) / 16).backward()
            optimizer.step()
        found.append(torch.cat([p.detach().reshape(-1) for p in network.parameters()]).numpy())
    return found


def measure(before, after):
    """Return one turn of every method."""
    words, base = after.view(np.uint32), before.view(np.uint32)
    methods = {
        "shuffle_zlib": (lambda: pack(words, NUM_PLANES), lambda packed: unpack(packed, NUM_PLANES)),
        # An exponent's 8 bits, of few different values, are one byte of a word that is turned by one bit.
        "exponent_zlib": (lambda: pack(turned(words, 1), 1), lambda packed: turned(unpack(packed, 1), 31)),
        "exponent_huffman": (
            lambda: pack(turned(words, 1), 1, zlib.Z_HUFFMAN_ONLY),
            lambda packed: turned(unpack(packed, 1), 31),
        ),
        "delta_shuffle_zlib": (
            lambda: pack(words ^ base, NUM_PLANES),
            lambda packed: unpack(packed, NUM_PLANES) ^ base,
        ),
        "bf16": (
            lambda: [torch.from_numpy(after).bfloat16()],
            lambda packed: packed[0].float().numpy().view(np.uint32),
        ),
    }
    figures = {}
    for name, (make, restore) in methods.items():
        begun = time.process_time()
        packed = make()
        middle = time.process_time()
        restored = restore(packed)
        seconds = middle - begun, time.process_time() - middle
        assert name == "bf16" or (restored == words).all(), name
        size = sum(part.nbytes if hasattr(part, "nbytes") else len(part) for part in packed)
        figures |= {f"{name}.size": size / after.nbytes, f"{name}.pack_s": seconds[0], f"{name}.unpack_s": seconds[1]}
        figures[f"{name}.pays_below_gbit_per_s"] = 8e-9 * (after.nbytes - size) / max(sum(seconds), 1e-9)
    return figures


def turned(words, bits):
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def pack(words, num, strategy=zlib.Z_DEFAULT_STRATEGY):
    """Return words, uint32 [n], byte plane by byte plane, of which the `num` highest are compressed."""
    planes = np.ascontiguousarray(words.view(np.uint8).reshape(-1, NUM_PLANES).T)
    stream = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, strategy)
    return [planes[: NUM_PLANES - num], stream.compress(planes[NUM_PLANES - num :].tobytes()) + stream.flush()]


def unpack(packed, num):
    plain, content = packed
    rest = np.frombuffer(zlib.decompress(content), np.uint8).reshape(num, -1)
    return np.ascontiguousarray(np.concatenate([plain, rest]).T).view(np.uint32)[:, 0]


if __name__ == "__main__":
    main()
