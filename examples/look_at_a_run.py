"""What a run has stored, and its network, as one looks at them in a notebook: python examples/look_at_a_run.py RUN

Each part between two blank lines can be a cell.
"""

import sys

import h5py
import numpy as np

import az_mpi

RUN = sys.argv[1]


# games.h5 shows all segments of the run as groups. Each has columns of its games and of their positions.
def columns(group):
    return {name: column[...] for name, column in group.items()}


with h5py.File(f"{RUN}/games.h5") as file:
    segments = {name: (columns(group["games"]), columns(group["positions"])) for name, group in file.items()}

for name, (games, positions) in segments.items():
    shares = " ".join(f"{np.mean(games['outcome'] == result):.0%}" for result in (1, 0, -1))
    nums = f"{len(games['id'])} games, {len(positions['ply'])} positions"
    print(f"{name}: {nums}; first player won, drew, lost: {shares}")

# The positions of a game follow each other. root_value is the search's, for the player to move.
player = az_mpi.load_player(RUN)
game = player.game
games, positions = segments[max(segments)]
of_first = positions["game"] == games["id"][0]

columns_used = (positions[name][of_first] for name in ("state", "action", "root_value"))
for state, action, value in zip(*columns_used):
    _, network = player.evaluate(state[None])
    print(f"{game.action_to_text(state, action):>5}  search {value:+.2f}  newest network {network[0]:+.2f}")
print(game.show(game.play(state[None], np.array([action]))[0]))

# What the newest network would play at the start.
start = player.draw(game.initial(1)[0])  # where chance moves first, such as a throw of dice
found = player.search(start, simulations=100)
for action in np.argsort(-found.policy)[:3]:
    print(f"{game.action_to_text(start, action):>5}  {found.policy[action]:.0%}")
