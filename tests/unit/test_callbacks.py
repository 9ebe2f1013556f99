"""Callbacks get games, iterations and evaluations, and a run continues without one that fails."""

import numpy as np
from helpers import make_config, play_games

from az_mpi import games
from az_mpi.core import registry
from az_mpi.network.evaluators import UniformEvaluator
from az_mpi.selfplay.player import Player
from az_mpi.telemetry.callbacks import Callbacks

TICTACTOE = games.make("tictactoe")
OWN = """
from az_mpi.telemetry.callbacks import Callback

class Notes(Callback):
    heard = []

    def __init__(self, rank, game, fails_in=""):
        self.rank, self.game, self.fails_in = rank, game, fails_in

    def on_game(self, game):
        self.note("game", game)

    def on_iteration(self, summary):
        self.note("iteration", summary)

    def on_evaluation(self, result):
        self.note("evaluation", result)

    def note(self, what, content):
        if what == self.fails_in:
            raise KeyError(what)
        self.heard.append((self.fails_in, self.rank, what, content))
"""


def test_each_callback_is_called_for_every_event_until_it_fails(tmp_path, caplog):
    (tmp_path / "own.py").write_text(OWN)
    own = f"{tmp_path}/own.py:Notes"
    callbacks = Callbacks([own, f"{own}(fails_in='iteration')"], tmp_path, 3, TICTACTOE)
    settings = make_config(selfplay={"parallel_games": 4}, search={"simulations": 5})
    record = play_games(Player(settings, TICTACTOE, UniformEvaluator(TICTACTOE), 3), range(6), iteration=2)
    callbacks.games(record)
    callbacks.iteration({"num_games": 6})
    callbacks.evaluation({"matches": {}})
    heard = registry.load(f"{tmp_path}/own.py")[0].Notes.heard
    assert [what for who, _, what, _ in heard if not who] == ["game"] * 6 + ["iteration", "evaluation"]
    assert [what for who, _, what, _ in heard if who] == ["game"] * 6
    assert {rank for _, rank, _, _ in heard} == {3}
    assert "Notes failed in on_iteration and is not called any more" in caplog.text and "KeyError" in caplog.text
    told = [game for who, _, what, game in heard if what == "game" and not who]
    assert [game.id for game in told] == record.games["id"].tolist()
    for game, row in zip(told, record.games):
        assert (game.iteration, game.rank, game.outcome, game.truncated) == (2, 3, row["outcome"], False)
        assert len(game.actions) == len(game.states) == len(game.players) == len(game.root_values) == row["length"]
        states = TICTACTOE.initial(1)
        for state, action, player in zip(game.states, game.actions, game.players):
            assert (state == states[0]).all() and player == TICTACTOE.to_play(states)[0]
            states = TICTACTOE.play(states, np.array([action]))
        ended, value = TICTACTOE.terminal(states)
        assert ended[0] and game.outcome == (value[0] if TICTACTOE.to_play(states)[0] == 0 else -value[0])


def test_without_callbacks_no_record_is_split_into_games(tmp_path):
    Callbacks([], tmp_path, 0, TICTACTOE).games(None)
