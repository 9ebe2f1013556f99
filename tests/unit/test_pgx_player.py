"""benchmarks/others/pgx_player.py, with a program in the place of JAX that answers by az_mpi's own rules."""

import sys
from pathlib import Path

import numpy as np
import pytest

from az_mpi import games
from az_mpi.config import schema
from az_mpi.core.registry import OPPONENTS
from az_mpi.evaluate.arena import play_games
from az_mpi.evaluate.openings import openings
from az_mpi.evaluate.opponents import RandomPlayer
from az_mpi.games.random_games import random_games

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "benchmarks" / "others" / "pgx_player.py"
# It evaluates every position as won, prefers the first column, and as a search chooses the last legal column.
SERVER = """#!{python}
import json, sys
import numpy as np
sys.path.insert(0, {root!r})
from az_mpi import games

game = games.make("connect4")


def after(moves):
    states = game.initial(len(moves))
    for i, row in enumerate(moves):
        for action in row[row >= 0]:
            assert game.legal(states[i : i + 1])[0, action]
            states[i] = game.play(states[i : i + 1], np.array([action]))[0]
    return states


assert sys.argv[2:] == ["serve", "EXAMPLE", "FOLDER"]
sys.stdout.buffer.write(b'{{"words": []}}\\n')
sys.stdout.buffer.flush()
while line := sys.stdin.buffer.readline():
    request = json.loads(line)
    num, is_evaluation = request["num"], request["ask"] == "evaluate"
    rows = sys.stdin.buffer.read(num * (84 if is_evaluation else 42))
    if is_evaluation:
        answer = np.tile(np.float32([3, 0, 0, 0, 0, 0, 0, 1]), (num, 1))
    else:
        states = after(np.frombuffer(rows, np.int8).reshape(num, 42))
        answer = game.planes(states)
        if request["ask"] == "search":
            assert request["simulations"] == 7
            answer = (6 - np.argmax(game.legal(states)[:, ::-1], axis=1)).astype(np.int8)
    sys.stdout.buffer.write({changed}answer.tobytes())
    sys.stdout.buffer.flush()
"""


def player_of(folder, changed="", **arguments):
    """Return a `PgxPlayer` whose server is SERVER. changed: what stands before its answers."""
    program = folder / "server"
    program.write_text(SERVER.format(python=sys.executable, root=str(ROOT), changed=changed))
    program.chmod(0o755)
    words = {"python": str(program), "example": "EXAMPLE", "folder": "FOLDER"} | arguments
    name = f"{PLACE}:PgxPlayer({', '.join(f'{key}={value!r}' for key, value in words.items())})"
    offered = dict.fromkeys(("seed", "rank", "search", "best"))
    settings = schema.Evaluate(rollout_simulations=7)
    return OPPONENTS.make(name, game=games.make("connect4"), settings=settings, **offered)


def test_its_own_search_is_asked_with_moves_that_lead_to_each_position(tmp_path):
    game, player = games.make("connect4"), player_of(tmp_path)
    states = np.concatenate([states for states, _ in random_games(game, 30, np.random.default_rng(1))])
    last_legal = 6 - np.argmax(game.legal(states)[:, ::-1], axis=1)
    assert player.actions(game, states).tolist() == last_legal.tolist()


def test_the_search_of_az_mpi_uses_its_network(tmp_path):
    game, player = games.make("connect4"), player_of(tmp_path, search_of="zoo:connect4")
    assert player.searches.settings.simulations == 7
    logits, value = player.evaluate(game.initial(3))
    assert logits.tolist() == [[3, 0, 0, 0, 0, 0, 0]] * 3 and value.tolist() == [1, 1, 1]
    played = play_games(game, player, RandomPlayer((1,)), openings(game, 2, 2, 3), np.arange(4))
    assert [one.game_index for one in played] == [0, 1, 2, 3]


def test_a_server_that_shows_other_planes_ends_the_program(tmp_path):
    with pytest.raises(SystemExit, match="different planes"):
        player_of(tmp_path, changed="b'\\x01' + ")
