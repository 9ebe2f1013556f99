"""pgx's own AlphaZero example (JAX) in Connect Four: trains it for a given time, or answers with a network of it.

    python -m venv jax-env && jax-env/bin/pip install jax pgx mctx dm-haiku optax omegaconf pydantic
    jax-env/bin/python benchmarks/others/pgx_example.py train pgx/examples/alphazero FOLDER --seconds 545 \\
        num_channels=32 num_layers=3 selfplay_batch_size=256
    jax-env/bin/python benchmarks/others/pgx_example.py serve pgx/examples/alphazero FOLDER

It needs nothing of az_mpi and runs in an environment of its own. The example's train.py runs unchanged, with words
`key=value` as it takes them. Three things that it imports are replaced: wandb, which reports to a server; its baseline
network, of which pgx has none for Connect Four; and `jax.device_put_replicated` where JAX no longer has it. Its own
clock decides when it ends: the hours that its log counts, which are of self-play and training. Each core is a device
of JAX, over which the example splits its games and batches (--devices).

`serve` reads the newest checkpoint below FOLDER and answers on its standard output. A request is a line of JSON,
{"ask": "evaluate", "search" or "planes", "num": n, "simulations": s}, and n rows after it: planes, uint8 [n, 2, 6, 7],
to evaluate, otherwise moves from the start of the game, int8 [n, 42], filled up with -1. Its answers are bytes:
float32 [n, 8], seven logits and the value; int8 [n], the columns that mctx's Gumbel search chooses without noise, with
the example's own evaluation of leaves; uint8 [n, 2, 6, 7], the planes after the moves. The first one is a line of JSON
with the settings of the network.
"""

import argparse
import contextlib
import importlib
import json
import os
import pickle
import runpy
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

CELLS, COLUMNS = 42, 7
GAME = "env_id=connect_four"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "serve"))
    parser.add_argument("example", type=Path, help="the folder of train.py")
    parser.add_argument("folder", type=Path, help="its checkpoints are in FOLDER/checkpoints")
    parser.add_argument("words", nargs="*", metavar="key=value", help="of the example's Config")
    parser.add_argument("--seconds", type=float, default=60.0, help="of self-play and training (default 60)")
    parser.add_argument("--devices", type=int, default=0, help="of JAX; 0, the default: as many as there are cores")
    arguments = parser.parse_intermixed_args()
    devices = 1 if arguments.what == "serve" else arguments.devices or len(os.sched_getaffinity(0))
    prepare(arguments.example.resolve(), devices)
    if arguments.what == "serve":
        serve(arguments.folder.resolve())
    else:
        print(json.dumps(train(arguments, devices)))


def prepare(example, devices):
    """Let train.py find what it imports. It must be called before JAX is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false "
        "intra_op_parallelism_threads=1"
    )
    sys.path.insert(0, str(example))
    import jax
    import jax.numpy as jnp
    import pgx

    if not hasattr(jax, "device_put_replicated"):
        jax.device_put_replicated = lambda tree, devices: jax.tree.map(lambda x: jnp.stack([x] * len(devices)), tree)
    pgx.make_baseline_model = lambda name: lambda planes: (jnp.zeros((len(planes), COLUMNS)), jnp.zeros(len(planes)))
    wandb: Any = ModuleType("wandb")
    wandb.init = lambda **settings: None
    sys.modules["wandb"] = wandb


class TimeIsUpError(Exception):
    pass


class Clock:
    """Stands for `wandb.log`: keeps the example's log, and ends it as near to `seconds` as its iterations allow."""

    def __init__(self, seconds):
        self.seconds, self.rows = seconds, []

    def __call__(self, row):
        self.rows.append(row)
        last_s = 3600 * (row["hours"] - self.rows[-2]["hours"]) if len(self.rows) > 1 else 0.0
        if last_s and 3600 * row["hours"] + last_s / 2 >= self.seconds:
            raise TimeIsUpError


def train(arguments, devices):
    """Run the example for about `--seconds`; return what it made, JSON-able."""
    import jax
    import pgx

    arguments.folder.mkdir(parents=True, exist_ok=True)
    clock = Clock(arguments.seconds)
    vars(sys.modules["wandb"])["log"] = clock
    # It saves its network where it evaluates it, and evaluations do not count in its hours.
    words = [GAME, "eval_interval=1", "max_num_iters=1000000", *arguments.words]
    sys.argv = ["train.py", *words]
    begun = time.perf_counter()
    program = str(arguments.example.resolve() / "train.py")
    os.chdir(arguments.folder)
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(TimeIsUpError):
        runpy.run_path(program, run_name="__main__")
    seconds = [3600 * row["hours"] for row in clock.rows]
    return {
        "program": "pgx's AlphaZero example",
        "jax": jax.__version__,
        "pgx": pgx.__version__,
        "devices": devices,
        "words": words,
        "seconds": seconds[-1],
        "first_iteration_seconds": seconds[1],
        "wall_seconds": time.perf_counter() - begun,
        "iterations": clock.rows[-1]["iteration"],
        "positions": clock.rows[-1]["frames"],
        "positions_per_s_after_the_first_iteration": (clock.rows[-1]["frames"] - clock.rows[1]["frames"])
        / (seconds[-1] - seconds[1] or 1.0),
        "losses": [[row["train/policy_loss"], row["train/value_loss"]] for row in clock.rows[1:]],
        "checkpoint": str(newest(Path.cwd())),
    }


def newest(folder):
    return max(folder.glob("checkpoints/*/*.ckpt"), key=lambda path: (path.parent.name, path.name))


class Settings:
    """Stands for the example's Config in a checkpoint: train.py reads its settings when it is imported."""

    def __setstate__(self, state):
        self.words = [f"{key}={value}" for key, value in state["__dict__"].items()]


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        return Settings if (module, name) == ("__main__", "Config") else super().find_class(module, name)


def serve(folder):
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the example prints is no answer
    with newest(folder).open("rb") as file:
        saved = Reader(file).load()
    sys.argv = ["train.py", *saved["config"].words]
    network = Network(importlib.import_module("train"), saved["model"])
    kept = {key: saved[key] for key in ("iteration", "frames", "hours")}
    answers.write(json.dumps({"words": saved["config"].words, **kept}).encode() + b"\n")
    answers.flush()
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        answers.write(network.answer(request, sys.stdin.buffer).tobytes())
        answers.flush()


class Network:
    """A trained network of the example. module: its train.py, imported."""

    def __init__(self, module, model):
        import jax

        self.module, self.model = module, model
        self._evaluate = jax.jit(lambda model, planes: module.forward.apply(*model, planes, is_eval=True)[0])
        self._replay = jax.jit(self._after)
        self._search = jax.jit(self._choose, static_argnums=2)

    def answer(self, request, stream):
        """Return the answer to a request, an array, whose rows follow on `stream`."""
        import numpy as np

        num, evaluates = request["num"], request["ask"] == "evaluate"
        shape = (2, 6, COLUMNS) if evaluates else (CELLS,)
        dtype = np.uint8 if evaluates else np.int8
        rows = np.frombuffer(stream.read(num * int(np.prod(shape))), dtype).reshape(num, *shape)
        # Each new number of rows would be compiled, so the rows are filled up to 16, 64, 256, ...
        filled = next(filled for filled in (16 * 4**k for k in range(16)) if filled >= num)
        rows = np.concatenate([rows, np.repeat(rows[:1], filled - num, axis=0)])
        if request["ask"] == "evaluate":
            logits, value = self._evaluate(self.model, rows.transpose(0, 2, 3, 1).astype(bool))
            return np.concatenate([logits, np.asarray(value)[:, None]], axis=1, dtype=np.float32)[:num]
        state = self._replay(rows)
        if request["ask"] == "planes":
            return np.asarray(state.observation)[:num].transpose(0, 3, 1, 2).astype(np.uint8)
        return np.asarray(self._search(self.model, state, request["simulations"]))[:num].astype(np.int8)

    def _after(self, moves):
        """Return the states after moves, [n, 42]."""
        import jax
        import jax.numpy as jnp

        env = self.module.env

        def step(state, actions):
            later = jax.vmap(env.step)(state, jnp.maximum(actions, 0).astype(jnp.int32))
            return jax.tree.map(lambda a, b: jax.vmap(jnp.where)(actions >= 0, a, b), later, state), None

        state = jax.vmap(env.init)(jax.random.split(jax.random.PRNGKey(0), len(moves)))
        return jax.lax.scan(step, state, moves.T)[0]

    def _choose(self, model, state, simulations):
        """Return the action of a search of each state, [n]."""
        import jax
        import mctx

        (logits, value), _ = self.module.forward.apply(*model, state.observation, is_eval=True)
        return mctx.gumbel_muzero_policy(
            params=model,
            rng_key=jax.random.PRNGKey(0),
            root=mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state),
            recurrent_fn=self.module.recurrent_fn,
            num_simulations=simulations,
            invalid_actions=~state.legal_action_mask,
            qtransform=mctx.qtransform_completed_by_mix_value,
            gumbel_scale=0.0,
        ).action


if __name__ == "__main__":
    main()
