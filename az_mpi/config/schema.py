"""The keys of a configuration as typed, documented, strict models. Every default lives in this room."""

from typing import Any

from az_mpi.config.fields import Section, fixed, free, list_of, named, whole
from az_mpi.config.playing import Network, Search, Selfplay
from az_mpi.config.training import Exchange, Replay, Train
from az_mpi.core.registry import CALLBACKS, GAMES, OPPONENTS, SINKS, SOLVERS


class Evaluate(Section):
    """Matches and comparisons that say how well the network plays."""

    every: whole(0) = free(5, "Iterations between evaluations. The last iteration is always followed by one; 0: only "
                             "that one.")
    games_num: whole(2, multiple_of=2) = free(100, "Games against each opponent, half with each colour: a TOTAL over "
                                                "all ranks.")
    simulations: whole(0, 1_000_000) = free(0, "Simulations for each move in matches, and in play if nobody says "
                                           "how many; 0: search.simulations.")
    opponents: list_of(OPPONENTS) = free(
        ("best", "random", "rollout"), 'Who is played: the "best" network so far, "random" moves, a search on '
        '"rollout" values; "zoo:NAME", a network that comes with az_mpi; in games of OpenSpiel "mcts_bot", its own '
        "search. Other programs: \"gtp(command='gnugo --mode gtp')\", \"uci(command='stockfish', seconds=0.1)\"; "
        "docs/play.md has their arguments.")
    rollout_simulations: whole(1, 1_000_000) = free(400, 'Simulations for each move of the "rollout" opponent.')
    opening_plies: whole(0) = free(2, "Random plies before a match game; each opening is played with both colours.")
    solver: named(SOLVERS) = free("auto", 'The exact solver; "auto": the one that the game names, if it names one.')
    solver_positions: whole(0) = free(500, "Positions (the same ones in every run) on which moves are compared with "
                                        "the exact solver, if the game has one; 0: none.")


class Checkpoint(Section):
    """How often the state of the run is saved."""

    every: whole(1) = free(1, "Iterations between checkpoints.")
    keep: whole(1) = free(3, "Newest checkpoints that are kept.")


class Storage(Section):
    """How long a run waits for a file system that fails."""

    give_up_s: float = free(600.0, "Seconds a run waits for a full or failing disk, then leaves with 75.", ge=0)


class Fault(Section):
    """Lost and hanging ranks. docs/reliability.md says what a run survives."""

    hang_s: float = free(60.0, "Seconds without a sign of life after which a rank is killed; 0: never.", ge=0)
    copy_every: whole(0) = free(1, (
        "Where one rank trains and others play: optimiser steps between partner checkpoints, copies of the trainer's "
        "weights and optimiser in the memory of a second rank. Losing the trainer loses at most these steps; with 0 "
        "there are no copies, and it loses all steps since the last checkpoint. A step waits until the copy before it "
        "is made, so a larger number helps a GPU with short steps. Only used where a job survives a lost rank (mpirun "
        "--with-ft ulfm)."))


class Report(Section):
    """Numbers for people."""

    summary_frequency: whole(1) = free(50, "Optimiser steps between summaries, which show the mean loss of "
                                    "their batches; 1: the loss of each batch.")
    tensorboard: bool = free(True, "Write TensorBoard files beside metrics.jsonl.")
    sinks: list_of(SINKS) = free((), "Further sinks of the metrics, beside metrics.jsonl and TensorBoard.")


class Config(Section):
    """The whole configuration. Only `game` has no default."""

    game: named(GAMES) = fixed(..., "The game to learn.")
    seed: whole(0) = fixed(1, "Seed of everything random.")
    iterations: whole(1) = free(40, "Iterations of the run; each is one round of self-play and training.")
    max_hours: float = free(0.0, "Hours that one start of the run may take: at 0.99 of them it stores what is "
                             "finished and leaves with status 75, to be started again; 0: no limit.", ge=0)
    callbacks: list_of(CALLBACKS) = free((), "Classes that see every finished game, iteration and evaluation.")
    network: Network = Network()
    search: Search = Search()
    selfplay: Selfplay = Selfplay()
    exchange: Exchange = Exchange()
    replay: Replay = Replay()
    train: Train = Train()
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoint = Checkpoint()
    storage: Storage = Storage()
    fault: Fault = Fault()
    report: Report = Report()

    def match_search(self) -> Search:
        """Return the settings of the search in matches and in play: `search`, with `evaluate.simulations` if given."""
        return self.search.model_copy(update={"simulations": self.evaluate.simulations or self.search.simulations})


def flat(config: Section) -> dict[str, Any]:
    """Return {dotted key: value} of a configuration."""
    rows = {}
    for name, value in config:
        rows |= {f"{name}.{key}": item for key, item in value} if isinstance(value, Section) else {name: value}
    return rows
