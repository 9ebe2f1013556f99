"""Searches by mctx, the program of the authors of Gumbel search, for test_gumbel.py to compare ours with.

    pip install mctx jax; python tests/unit/mctx_cases.py    # writes tests/data/mctx_cases.json

The policy is `mctx.gumbel_muzero_policy` without Gumbel noise. Values there are from -1 to 1 and are not rescaled, so
its `value_scale` is half our `gumbel_c_scale`. No case comes near the end of a game, as mctx has no proofs.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from az_mpi import games
from az_mpi.network.evaluators import Evaluator

FILE = Path(__file__).parents[1] / "data" / "mctx_cases.json"
# game, moves before, simulations, gumbel_actions, gumbel_c_visit, gumbel_c_scale
CASES = [
    ("connect4", [], 2, 16, 50.0, 1.0),
    ("connect4", [], 32, 16, 50.0, 0.3),
    ("connect4", [3], 40, 4, 50.0, 0.1),
    ("connect4", [3, 2], 61, 7, 10.0, 1.0),
    ("mnk(m=5,n=5,k=5)", [], 50, 16, 50.0, 0.2),
    ("mnk(m=5,n=5,k=5)", [12, 6], 100, 8, 20.0, 0.5),
    ("mnk(m=5,n=5,k=5)", [12], 40, 32, 5.0, 2.0),
]


class Waves(Evaluator):
    """Smooth numbers that differ from position to position: logits within 2 of 0, a value within 1 of 0."""

    def __init__(self, game):
        self.game = game
        inputs = int(np.prod(game.planes_shape))
        self.weights = np.cos(np.arange(inputs)[:, None] * 1.7 + np.arange(game.num_actions + 1) * 2.3 + 0.5)

    def __call__(self, states):
        planes = self.game.planes(states).reshape(len(states), -1).astype(np.float64)
        waves = np.sin(3 * planes @ self.weights + np.arange(self.game.num_actions + 1))
        return (2 * waves[:, :-1]).astype(np.float32), waves[:, -1].astype(np.float32)


def searched(name, moves, simulations, considered, c_visit, c_scale):
    """Return mctx's visits of the root's actions and of their actions, its training target and its choice."""
    import jax
    import jax.numpy as jnp
    import mctx

    game = games.make(name)
    evaluate, width = Waves(game), game.num_actions
    root = game.initial(1)
    for move in moves:
        root = game.play(root, np.array([move]))

    def numbers(states):
        logits, value = evaluate(states)
        return np.where(game.legal(states), logits, np.float32(-1e9)), value

    def play(states, actions):
        after = game.play(np.asarray(states), np.asarray(actions, np.int64))
        assert not game.terminal(after)[0].any(), "too near the end"
        return after, *numbers(after)

    shapes = (
        jax.ShapeDtypeStruct(root.shape, root.dtype),
        jax.ShapeDtypeStruct((1, width), np.float32),
        jax.ShapeDtypeStruct((1,), np.float32),
    )

    def recurrent(_, key, action, states):
        after, logits, value = jax.pure_callback(play, shapes, states, action)
        output = {"reward": jnp.zeros(1), "discount": -jnp.ones(1), "prior_logits": logits, "value": value}
        return mctx.RecurrentFnOutput(**output), after

    logits, value = numbers(root)
    begin = mctx.RootFnOutput(prior_logits=jnp.array(logits), value=jnp.array(value), embedding=jnp.array(root))
    found = mctx.gumbel_muzero_policy(
        None,
        jax.random.PRNGKey(0),
        begin,
        recurrent,
        simulations,
        invalid_actions=jnp.array(~game.legal(root)),
        max_num_considered_actions=considered,
        gumbel_scale=0.0,
        qtransform=lambda *tree: mctx.qtransform_completed_by_mix_value(
            *tree, value_scale=c_scale / 2, maxvisit_init=c_visit, rescale_values=False
        ),
    )
    tree = jax.tree.map(np.asarray, found.search_tree)
    below = [
        tree.children_visits[0, child].tolist() if child >= 0 else [0] * width for child in tree.children_index[0, 0]
    ]
    return {
        "visits": tree.children_visits[0, 0].tolist(),
        "below": below,
        "policy": np.asarray(found.action_weights)[0].tolist(),
        "action": int(found.action[0]),
    }


def main():
    import jax
    import mctx

    jax.config.update("jax_enable_x64", True)  # states are 64-bit integers
    text = json.dumps({"mctx": mctx.__version__, "jax": jax.__version__, "cases": [searched(*case) for case in CASES]})
    FILE.write_text(text.replace('{"visits"', '\n{"visits"') + "\n")


if __name__ == "__main__":
    main()
