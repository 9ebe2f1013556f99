"""The same self-play with pgx and mctx (JAX): Connect Four, a residual network of 5 blocks of 64 channels, on one core,
or on a GPU if JAX sees one.

    python -m venv jax-env && jax-env/bin/pip install jax pgx mctx
    taskset -c 0 jax-env/bin/python benchmarks/others/pgx_mctx.py
    jax-env/bin/python benchmarks/others/pgx_mctx.py --dtype bfloat16 --batches 1024 4096 16384    # with jax[cuda13]
    python benchmarks/others/turns.py --run RUN 'jax-env/bin/python benchmarks/others/pgx_mctx.py --counts 64'

It needs nothing of az_mpi and runs in an environment of its own. The network is that of az_mpi (3x3 convolutions, heads
of 32 channels), in f32, which is what JAX computes on processors, or in bfloat16 (--dtype, for GPUs); the search is
mctx's Gumbel MuZero policy over the true rules, as in pgx's own AlphaZero example. Prints simulations/s and positions/s
for each batch size, the median of the runs, and the network alone.
"""

import argparse
import json
import os
import statistics
import time
from functools import partial

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import mctx
import pgx

ENV = pgx.make("connect_four")
CELLS = 42


def parameters(key, blocks, channels, dtype):
    """Return random weights in the order in which `network` reads them."""
    shapes = [(3, 3, 2, channels), *[(3, 3, channels, channels)] * 2 * blocks, (1, 1, channels, 32)]
    shapes += [(32 * CELLS, 7), (1, 1, channels, 32), (32 * CELLS, 64), (64, 1)]
    keys = jax.random.split(key, len(shapes))
    weights = [
        jax.random.normal(k, s) * (s[-2] * (s[0] if len(s) == 4 else 1) ** 2) ** -0.5 for k, s in zip(keys, shapes)
    ]
    return [w.astype(dtype) for w in weights]


def network(weights, x):
    """Observation [B, 6, 7, 2] -> (logits [B, 7], value [B])."""
    stem, *tower, policy_conv, policy_out, value_conv, hidden, out = weights

    def conv(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    x = jax.nn.relu(conv(x.astype(stem.dtype), stem))
    for first, second in zip(tower[::2], tower[1::2]):
        x = jax.nn.relu(x + conv(jax.nn.relu(conv(x, first)), second))
    logits = jax.nn.relu(conv(x, policy_conv)).reshape(len(x), -1) @ policy_out
    value = jax.nn.relu(jax.nn.relu(conv(x, value_conv)).reshape(len(x), -1) @ hidden) @ out
    return logits.astype(jnp.float32), jnp.tanh(value[:, 0].astype(jnp.float32))


def recurrent(weights, _, action, state):
    player = state.current_player
    state = jax.vmap(ENV.step)(state, action)
    logits, value = network(weights, state.observation)
    logits = jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min)
    reward = state.rewards[jnp.arange(len(player)), player]
    output = mctx.RecurrentFnOutput(
        reward=reward,
        discount=jnp.where(state.terminated, 0.0, -1.0),
        prior_logits=logits,
        value=jnp.where(state.terminated, 0.0, value),
    )
    return output, state


@partial(jax.jit, static_argnums=3)
def move(weights, state, key, simulations):
    """Search every game, play the moves and begin ended games again."""
    logits, value = network(weights, state.observation)
    root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
    chosen = mctx.gumbel_muzero_policy(
        weights,
        key,
        root,
        recurrent,
        simulations,
        invalid_actions=~state.legal_action_mask,
        qtransform=mctx.qtransform_completed_by_mix_value,
        gumbel_scale=1.0,
    )
    keys = jax.random.split(key, len(logits))
    return jax.vmap(pgx.experimental.auto_reset(ENV.step, ENV.init))(state, chosen.action, keys)


def print_counts(weights, key, batch, simulations):
    """Play until the process is ended; print a line of totals after each move of all games."""
    state, moves = jax.jit(jax.vmap(ENV.init))(jax.random.split(key, batch)), 0
    while True:
        key, _ = jax.random.split(key)
        state = jax.block_until_ready(move(weights, state, key, simulations))
        moves += batch
        print(json.dumps({"simulations": moves * simulations, "moves": moves}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--batches", type=int, nargs="+", default=(16, 64, 256))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the network")
    parser.add_argument(
        "--counts",
        type=int,
        metavar="BATCH",
        help="play for ever, so many games at once, and print totals, for turns.py",
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    key = jax.random.PRNGKey(0)
    weights = parameters(key, 5, 64, arguments.dtype)
    if arguments.counts:
        print_counts(weights, key, arguments.counts, arguments.simulations)
    evaluate = jax.jit(network)
    rows = []
    for batch in arguments.batches:
        state = jax.jit(jax.vmap(ENV.init))(jax.random.split(key, batch))
        state = jax.block_until_ready(move(weights, state, key, arguments.simulations))
        jax.block_until_ready(evaluate(weights, state.observation))
        moves, evaluations = [], []
        for _ in range(arguments.runs):
            key, _ = jax.random.split(key)
            begun = time.perf_counter()
            state = jax.block_until_ready(move(weights, state, key, arguments.simulations))
            moves.append(batch / (time.perf_counter() - begun))
            begun = time.perf_counter()
            jax.block_until_ready(evaluate(weights, state.observation))
            evaluations.append(batch / (time.perf_counter() - begun))
        positions = statistics.median(moves)
        rows.append(
            {
                "batch": batch,
                "positions_per_s": positions,
                "simulations_per_s": positions * arguments.simulations,
                "bare_evaluations_per_s": statistics.median(evaluations),
            }
        )
    if arguments.json:
        print(
            json.dumps(
                {
                    "benchmark": "pgx and mctx",
                    "jax": jax.__version__,
                    "pgx": pgx.__version__,
                    "backend": jax.default_backend(),
                    "dtype": arguments.dtype,
                    "rows": rows,
                }
            )
        )
        return
    print(
        f"pgx {pgx.__version__}, mctx, jax {jax.__version__} on {jax.default_backend()}, {arguments.dtype}, "
        f"{arguments.simulations} simulations a move"
    )
    for row in rows:
        print(
            "  batch {batch:>4}: {simulations_per_s:>8,.0f} simulations/s  {positions_per_s:>7,.1f} positions/s  "
            "{bare_evaluations_per_s:>8,.0f} bare evaluations/s".format(**row)
        )


if __name__ == "__main__":
    main()
