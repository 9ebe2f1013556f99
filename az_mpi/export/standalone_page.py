"""A network as one HTML file that plays by itself in any browser, without a server: rules, network and search in
JavaScript (the folder web), and the page that `az_mpi web` serves."""

import base64
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
PARAMETERS = ("k", "komi", "max_plies", "swap")  # of games, that their rules in JavaScript need
SETTINGS = ("simulations", "c_puct", "c_puct_base", "fpu_reduction")


def page(found: TrainedNetwork, operations: list[graph.Operation], outputs: dict[str, str]) -> str:
    """Return the page. operations, outputs: of `graph.operations`. Raises Refusal for a game without rules in
    JavaScript."""
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
    """Return the worker's JavaScript, with the rules of one game."""
    names = ["network.js", "search.js", "games/game.js", f"games/{rules}.js", "offline_game.js", "worker.js"]
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)


def pack(found: TrainedNetwork, operations: list[graph.Operation], outputs: dict[str, str]) -> dict[str, Any]:
    """Return what the worker begins with, JSON-able."""
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
    """Return what the rules in JavaScript need to know of a game. Raises Refusal if there are none."""
    package, _, rules = type(game).__module__.rpartition(".")
    if package != "az_mpi.games" or not (WEB / "games" / f"{rules}.js").is_file():
        there = sorted(path.stem for path in (WEB / "games").glob("*.js") if path.stem != "game")
        raise Refusal(f"{game.name} has no rules in JavaScript\n  there are: {', '.join(there)}")
    board, (planes, rows, columns) = game.board(game.initial(1)[0]), game.planes_shape
    return {
        "rules": rules,
        "rows": rows,
        "columns": columns,
        "num_planes": planes,
        "shape": board.shape,
        "column_names": board.columns,
        "row_names": board.rows,
        "edges": board.edges,
        **{name: getattr(game, name) for name in PARAMETERS if hasattr(game, name)},
    }


def _inside_script(text):
    """Return a text that does not end the script element that it is in."""
    if "<!--" in text or "</script" in text.lower():
        text = text.replace("<", "\\u003c")  # only in strings of JSON: our own JavaScript has neither
    return text
