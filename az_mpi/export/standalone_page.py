"""A network as one HTML file that plays by itself in any browser, without a server. It holds the rules, the network and
the search in JavaScript (the folder web), and the page that `az_mpi web` serves."""

import base64
import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np

from az_mpi.core.problems import Refusal
from az_mpi.games.base import Game, described_planes
from az_mpi.network import graph
from az_mpi.play.web_server import page_with
from az_mpi.player.trained_network import TrainedNetwork

WEB = Path(__file__).parent / "web"
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' blob:; worker-src blob:; "
    "base-uri 'none'; form-action 'none'"
)
PARAMETERS = ("k", "komi", "max_plies", "swap", "exact")  # attributes of games that the rules in JavaScript need
SIZES = {"m", "n", "rows", "columns", "size"}  # parameters of games that only say how large the board is
SETTINGS = ("simulations", "c_puct", "c_puct_base", "fpu_reduction")


def page(found: TrainedNetwork, operations: list[graph.Operation], outputs: dict[str, str]) -> str:
    """Return the page of a network. operations, outputs: of `graph.operations`. Raises Refusal for a game without rules
    in JavaScript."""
    packed = pack(found, operations, outputs)
    parts = {
        "worker": ("text/plain", script(packed["game"]["rules"])),
        "model": ("application/json", json.dumps(packed)),
    }
    data = "\n".join(
        f'<script type="{kind}" id="{name}">{_inside_script(text)}</script>' for name, (kind, text) in parts.items()
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    text = page_with(WEB / "offline.js").replace('<script nonce="NONCE">', f"{data}\n<script>")
    return text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{meta}', 1)


def script(rules: str) -> str:
    """Return the JavaScript of the page's worker. rules: the name of the file in web/games with the rules."""
    names = ["network.js", "search.js", "games/game.js", f"games/{rules}.js", "offline_game.js", "worker.js"]
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)


def pack(found: TrainedNetwork, operations: list[graph.Operation], outputs: dict[str, str]) -> dict[str, Any]:
    """Return the worker's input, JSON-able: the game, the network with its weights, and the settings of the search."""
    searched = {name: outputs[name] for name in ("policy", "value")}
    needed = graph.needed(operations, set(searched.values()))
    tensors = [tensor.astype("<f4") for one in needed for tensor in one.tensors.values()]
    rows = [
        {
            "kind": one.kind,
            "output": one.output,
            "inputs": one.inputs,
            "settings": one.settings,
            "tensors": [tensor.shape for tensor in one.tensors.values()],
        }
        for one in needed
    ]
    search, (planes, board) = found.config.match_search(), described_planes(found.game)
    return {
        "game": spec(found.game),
        "network": {"operations": rows, "outputs": searched, "shape": found.game.planes_shape},
        "weights": base64.b64encode(np.concatenate([tensor.reshape(-1) for tensor in tensors]).tobytes()).decode(),
        "settings": {name: getattr(search, name) for name in SETTINGS},
        "about": {
            "game": found.game.name,
            "run": "az_mpi",
            "checkpoint": f"iteration {found.iteration}",
            "planes": planes,
            "planes_rows": board,
        },
    }


def spec(game: Game) -> dict[str, Any]:
    """Return what the rules in JavaScript need to know of a game. Raises Refusal if it has no rules in JavaScript, or
    a parameter that they do not know."""
    if game.num_players != 2 or game.num_outcomes:
        raise Refusal(
            f"{game.name} is no game of two players without chance, which the page without a server needs\n"
            "  python -m az_mpi web plays it"
        )
    package, _, rules = type(game).__module__.rpartition(".")
    if package != "az_mpi.games" or not (WEB / "games" / f"{rules}.js").is_file():
        there = sorted(path.stem for path in (WEB / "games").glob("*.js") if path.stem != "game")
        raise Refusal(f"{game.name} has no rules in JavaScript\n  there are: {', '.join(there)}")
    if unknown := inspect.signature(type(game)).parameters.keys() - SIZES - set(PARAMETERS):
        raise Refusal(f"{game.name}: the rules in JavaScript do not know its parameter {min(unknown)}")
    planes, rows, columns = game.planes_shape
    return {
        "rules": rules,
        "rows": rows,
        "columns": columns,
        "num_planes": planes,
        "initial_board": game.board(game.initial(1)[0]).described(),
        **{name: getattr(game, name) for name in PARAMETERS if hasattr(game, name)},
    }


def _inside_script(text):
    """Return a text changed so that it cannot end the script element around it."""
    if "<!--" in text or "</script" in text.lower():
        text = text.replace("<", "\\u003c")  # it is in strings of JSON; the JavaScript of this project has neither
    return text
