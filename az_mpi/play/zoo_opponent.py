"""Networks that come with az_mpi as opponents in matches: `evaluate.opponents` = ["zoo:connect4"]."""

from az_mpi.config import schema
from az_mpi.core.problems import Refusal
from az_mpi.evaluate.opponents import SearchPlayer
from az_mpi.games.base import Game
from az_mpi.play.loaded_player import load_player


def of_zoo(name: str, game: Game, search: schema.Search) -> SearchPlayer:
    """Return a player with the network `name`, on the CPU or the first GPU, and the run's search. Raises Refusal if
    there is none, or it is for another game."""
    player = load_player(f"zoo:{name}")
    if player.game.name != game.name:
        raise Refusal(f"it plays {player.game.name}, and game is {game.name}")
    return SearchPlayer(player.evaluator, search)
