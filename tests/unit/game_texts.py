"""Random games, and what a file or a text of games holds, for tests."""

import numpy as np

from az_mpi.core.players import of_players
from az_mpi.games import chance
from az_mpi.games.random_games import random_actions
from az_mpi.records import game_files
from az_mpi.records.game_records import GameRecord, Thought, texts
from az_mpi.records.replaying import MoveWords, replay
from az_mpi.records.written_game import WrittenGame


def write(path, game, records):
    """Write games to a file, in the format of its suffix; a file that is there is replaced."""
    path.write_text("".join(texts(path.suffix, game, records)), encoding="utf-8")


def random_records(game, num, seed=1):
    """Return random games to their end by the rules, with values for the player to move."""
    rng, records = np.random.default_rng(seed), []
    for _ in range(num):
        states, moves, thoughts = game.initial(1), [], []
        while not game.terminal_at(states, len(moves))[0][0]:
            if chance.due(game, states)[0]:
                action = chance.draw(game, states, rng.random(1))
                thoughts.append(None)
            else:
                action = random_actions(game.legal(states), rng.random(1))
                thoughts.append(Thought(float(rng.uniform(-0.9, 0.9)), ((int(action[0]), 0.75),)))
            moves.append(int(action[0]))
            states = game.play(states, action)
        value = game.terminal_at(states, len(moves))[1]
        results = of_players(game.num_players, value, game.to_play(states))[0].tolist()
        more = {"results": results} if game.num_players != 2 else {}
        more |= {"score": float(game.score(states)[0])} if game.score_name else {}
        names = ("x", "y", "z")[: game.num_players]
        records.append(GameRecord(moves, results[0], names, thoughts=thoughts, **more))
    return records


def read_file(game, path, part_bytes=2**30):
    """Return what a file holds, as (the record, why each game is left out)."""
    file = game_files.look(path)
    parts = [part for unit in game_files.units([file.num_bytes], part_bytes) for part in unit]
    texts = [text for part in parts for text in game_files.games_in(file, part)]
    read = game_files.FORMATS[file.format].read
    written = [WrittenGame(fault=fault) if fault else read(text, game) for text, fault in texts]
    return replay(game, written, MoveWords(game))


def fault_of(game, text, format="pgn"):
    read = game_files.FORMATS[format].read(text, game)
    return replay(game, [read], MoveWords(game))[1][0]
