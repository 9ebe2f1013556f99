"""The keys of a configuration as typed, documented, strict models. Every default lives here and nowhere else."""

import functools
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from az_mpi.core.registry import CALLBACKS, ENGINES, EVALUATORS, GAMES, HEADS, OPPONENTS, SEARCHES, SINKS, SOLVERS

LARGEST = 2**63 - 1  # the largest whole number allowed: int64 in messages and files


def _fixed(default, description, may_change=False, **limits):
    """Return a field that a resumed run must not change (unless `may_change`)."""
    return Field(default, description=description, json_schema_extra={"may_change": may_change}, **limits)


def _free(default, description, **limits):
    """Return a field that a resumed run may change."""
    return _fixed(default, description, may_change=True, **limits)


def _whole(low, high=LARGEST, **more):
    """Return the type of a whole number from `low` to `high`."""
    return Annotated[int, Field(ge=low, le=high, **more)]


def _named(registry):
    """Return the type of a name that is looked up in a registry."""
    return Annotated[str, registry, AfterValidator(functools.partial(_known, registry))]


def _known(registry, name):
    if problem := registry.problem(name):
        raise ValueError(problem)
    return name


def _list_of(registry):
    """Return the type of a list of names that are looked up in a registry."""
    return Annotated[tuple[_named(registry), ...], AfterValidator(_distinct)]


def _distinct(items):
    if len(set(items)) < len(items):
        raise ValueError("named twice")
    return items


class Section(BaseModel):
    """Base of all sections: nothing unknown, nothing converted, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Network(Section):
    """The network, and what evaluates positions with it."""

    blocks: _whole(1, 80) = _fixed(5, "Residual blocks in the tower (the paper: 19).")
    channels: _whole(8, 1024, multiple_of=8) = _fixed(64, "Filters of each convolution (the paper: 256).")
    heads: _list_of(HEADS) = _fixed(("policy", "value"), (
        'The network\'s outputs; the search needs a policy and a value. "wdl" is a value too, in three numbers: win, '
        "draw and loss, for games with draws."),
                                    strict=False)  # strict would refuse JSON's list for a tuple
    engine: _named(ENGINES) = _free("auto", (
        'What runs the network in self-play and matches. "auto": the fastest there is (a GPU, else OpenVINO, else '
        'torch).'))
    precision: Literal["auto", "fp32", "bf16", "int8"] = _free("auto", (
        'What the engine computes in, in self-play and matches; train.mixed_precision is about training. "auto": int8 '
        'where OpenVINO is measured to be faster so (not with selfplay.deterministic), else bf16 where the processor '
        'or GPU has it, else fp32. int8: the tower of residual blocks alone.'))
    cache_bytes: _whole(0) = _free(2**26, "Memory of each rank in which self-play remembers evaluations until the "
                                   "weights change; 0: none. A position takes 32 bytes, and 6 for each legal move.")


class Search(Section):
    """The search for a move. "The paper" is Silver et al. 2018, with its pseudocode."""

    algorithm: _named(SEARCHES) = _fixed("puct", (
        'The search, in self-play and in matches. "puct" is that of AlphaZero. "gumbel" (Danihelka et al. 2022) learns '
        'from few simulations too, down to 2; of the keys here it uses its own, simulations and reuse_tree.'))
    simulations: _whole(1, 100_000) = _fixed(100, "Simulations for each move (the paper: 800).")
    c_puct: float = _fixed(1.75, "Exploration: c_init of C(s) = log((1 + N(s) + c_base) / c_base) + c_init (the paper: "
                           "1.25).", gt=0)
    c_puct_base: float = _fixed(19652.0, "c_base of C(s), in visits: how slowly exploration grows with N(s).", gt=0)
    fpu_reduction: float = _fixed(0.25, "First-play urgency: how far below its parent's value an unvisited move "
                                  "starts, seen by the player to move at the parent (not in the paper).", ge=0, le=2)
    dirichlet_alpha: float = _fixed(10.0, "Total concentration of the Dirichlet noise on the root's priors: each of k "
                                    "legal moves gets alpha = dirichlet_alpha / k.", gt=0)
    dirichlet_fraction: float = _fixed(0.25, "epsilon: share of the noise in the root's priors, (1 - epsilon) p + "
                                       "epsilon noise.", ge=0, le=1)
    root_policy_temperature: float = _fixed(1.0, "In self-play the root's priors are P^(1 / this), scaled to sum 1, "
                                            "before noise; above 1 it explores more (KataGo: 1.1). Not Gumbel.", gt=0)
    forced_playouts: float = _fixed(0.0, "k: in self-play a move at the root that was tried gets sqrt(k P(a) N) visits "
                                    "at least, which are taken off the policy target again (KataGo: 2); 0: none. Not "
                                    "Gumbel.", ge=0)
    full_share: float = _fixed(1.0, "Share of the moves of self-play with a search of simulations (KataGo: 0.25). The "
                               "others have a fast one, without noise, which makes no policy target.", gt=0, le=1)
    fast_simulations: _whole(1, 100_000) = _fixed(20, "Simulations of a fast search, with full_share below 1.")
    temperature: float = _fixed(1.0, "tau in self-play: a move is drawn in proportion to N(a)^(1/tau); 0: the most "
                                "visited move.", ge=0)
    temperature_plies: _whole(0) = _fixed(12, "Plies from the start of a game that are played at temperature; later "
                                          "ones at temperature_final (the paper: 30).")
    temperature_final: float = _fixed(0.25, "tau of the plies after temperature_plies (the paper: 0).", ge=0)
    reuse_tree: bool = _fixed(True, "Start the next search from the subtree of the move that was played.")
    gumbel_actions: _whole(1, 1024) = _fixed(16, "m: actions at the root that Gumbel search draws and compares.")
    gumbel_c_visit: float = _fixed(50.0, "c_visit of sigma(q) = (c_visit + max_b N(b)) c_scale q, with which Gumbel "
                                   "search turns values, on a scale from 0 to 1, into logits.", ge=0)
    gumbel_c_scale: float = _fixed(1.0, "c_scale of sigma(q): the larger, the less the priors count.", gt=0)


class Selfplay(Section):
    """The games that ranks play against themselves."""

    games_num: _whole(1) = _free(512, "Games that an iteration asks for: a TOTAL over all ranks. It may get a few more "
                                 "(fewer than there are ranks), and the games that ranks play while others train. "
                                 "Training draws samples for games_num games.")
    parallel_games: _whole(0, 65_536) = _free(0, "Games each rank plays at once (on EACH rank). 0: 256; with an "
                                              "engine on a GPU the rank's share of games_num, 256 to 2048.")
    evaluator: _named(EVALUATORS) = _free("network", (
        'What evaluates positions in self-play; matches use the network. "uniform": equal priors and value 0, '
        'deterministic, for tests; "rollout": random play-outs.'))
    deterministic: bool = _fixed(False, "Split games_num over the ranks exactly and seed each game by (seed, "
                                 "iteration, game index), so that any number of ranks makes the same games.")
    max_plies: _whole(0) = _free(0, "A game that reaches this many plies ends as a draw (value 0 for both players); "
                                 "0: no limit but the game's own.")
    resign_threshold: float = _fixed(1.0, "In self-play the player to move resigns, and loses, if the root's value is "
                                     "below minus this (AlphaGo Zero: 0.9); 1: nobody resigns.", gt=0, le=1)
    resign_play_on: float = _fixed(0.1, "Share of the games in which nobody resigns. The metric false_resign_rate says "
                                   "in how many of these the player who would have resigned did not lose.", gt=0, le=1)
    surprise_share: float = _fixed(0.0, "Share of a game's weight in training that goes to its positions in proportion "
                                   "to how far the search's policy is from the network's (KataGo: 0.5).", ge=0, le=1)
    weights: dict[str, Annotated[float, Field(gt=0)]] = _free({}, (
        'With selfplay.deterministic: the share of games of each rank of a host, such as {"node2": 2.0} for twice as '
        'many as elsewhere. A host that is not named counts 1.'))


class Exchange(Section):
    """How finished games travel from the ranks that played them to root and to the trainers."""

    every_s: float = _free(20.0, "Seconds of self-play between exchanges, which store finished games and send them to "
                           "the trainers. 0, and always with selfplay.deterministic: one exchange, when the iteration "
                           "has all of its games.", ge=0)
    compress: bool = _free(True, "Compress games on their way between ranks.")
    chunk_bytes: _whole(1024, 2**31 - 1) = _free(2**28, "Most bytes that one rank sends in one round of messages.")


class Replay(Section):
    """The window: the newest positions, from which training samples are drawn.

    It holds window_growth of all positions made so far, but at least window_min and at most window_max.
    """

    window_min: _whole(1) = _fixed(20_000, "Positions the window holds at least, once so many were made.")
    window_max: _whole(1) = _fixed(1_000_000, "Positions the window holds at most.")
    window_growth: float = _fixed(0.5, "Share of all positions made so far that the window holds.", ge=0, le=1)


class Train(Section):
    """Who trains, on what and how fast."""

    ranks: Literal["all", "root_host", "gpu"] | _whole(1) = _free("all", (
        'Who trains: "all" ranks, those on the "root_host", those that own a "gpu", or a number of ranks. The others '
        'go on playing meanwhile.'))
    root_host: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=253)] = _free("", (
        'The host of root, the rank that writes the files of the run: its name or IPv4 address. Its ranks come first, '
        'so train.ranks "root_host" and numbers begin there. "": the first host listed to mpirun or launch.'))
    backend: Literal["horovod", "ddp"] = _free("horovod", 'What sums gradients over the train ranks. "ddp" is '
                                               'torch.distributed, for where Horovod cannot be built.')
    batch_size: _whole(1) = _free(1024, "Samples in one optimiser step: a TOTAL over all train ranks.")
    replay_ratio: float = _fixed(4.0, "Samples drawn from the window for each new position.", gt=0)
    root_value_share: float = _fixed(0.5, "Share of the search's root value q in the value target: (1 - share) z + "
                                     "share q, where z is the result of the game. It makes the target less noisy "
                                     "(the paper: 0).", ge=0, le=1)
    learning_rate: float = _free(0.002, "Learning rate at its peak, after the warm-up.", gt=0)
    warmup_steps: _whole(0) = _fixed(50, "Optimiser steps in which the learning rate rises to its peak.")
    schedule: Literal["constant", "cosine"] = _fixed("cosine", 'Learning rate after the warm-up; "cosine" falls over '
                                                     'all iterations.')
    final_learning_rate: float = _fixed(0.1, "End of the cosine, as a fraction of learning_rate.", ge=0, le=1)
    weight_decay: float = _fixed(1e-4, "Weight decay (the paper's c).", ge=0)
    gradient_clip: float = _fixed(1.0, "Largest global L2 norm of the gradient; a longer one is scaled down.", gt=0)
    value_loss_weight: float = _fixed(1.0, "Weight of the value loss (z - v)^2 beside the policy loss -pi log p; z and "
                                      "v are for the player to move, in [-1, 1].", gt=0)
    mixed_precision: Literal["auto"] | bool = _free("auto", (
        'Train in bf16 autocast. "auto": where the processor or GPU has bf16; false: in fp32, on GPUs with TF32 '
        'convolutions. Self-play and matches have network.precision.'))
    bad_steps_max: _whole(1) = _free(3, "A step whose loss or gradient is not finite is skipped. After so many in a "
                                     "row training goes back to the last good checkpoint with half the learning rate, "
                                     "at most 3 times in a run.")
    max_steps: _whole(0) = _free(0, "The run ends with the iteration that reaches so many steps; 0: no limit.")


class Evaluate(Section):
    """Matches and comparisons that say how well the network plays."""

    every: _whole(0) = _free(5, "Iterations between evaluations. The last iteration is always followed by one; 0: only "
                             "that one.")
    games_num: _whole(2, multiple_of=2) = _free(100, "Games against each opponent, half with each colour: a TOTAL over "
                                                "all ranks.")
    simulations: _whole(0) = _free(0, "Simulations for each move of a match game; 0: search.simulations.")
    opponents: _list_of(OPPONENTS) = _free(
        ("best", "random", "rollout"), 'Who is played: the "best" network so far, "random" moves, a search on '
        '"rollout" values; "zoo:NAME", a network that comes with az_mpi; in games of OpenSpiel "mcts_bot", its own '
        "search. Other programs: \"gtp(command='gnugo --mode gtp')\", \"uci(command='stockfish', seconds=0.1)\"; "
        "docs/play.md has their arguments.",
        strict=False)  # strict would refuse JSON's list for a tuple
    rollout_simulations: _whole(1) = _free(400, 'Simulations for each move of the "rollout" opponent.')
    opening_plies: _whole(0) = _free(2, "Random plies before a match game; each opening is played with both colours.")
    solver: _named(SOLVERS) = _free("auto", 'The exact solver; "auto": the one that the game names, if it names one.')
    solver_positions: _whole(0) = _free(500, "Positions (the same ones in every run) on which moves are compared with "
                                        "the exact solver, if the game has one; 0: none.")


class Checkpoint(Section):
    """How often the state of the run is saved."""

    every: _whole(1) = _free(1, "Iterations between checkpoints.")
    keep: _whole(1) = _free(3, "Newest checkpoints that are kept.")


class Storage(Section):
    """How long a run waits for a file system that fails."""

    give_up_s: float = _free(600.0, "Seconds a run waits for a full or failing disk, then leaves with 75.", ge=0)


class Fault(Section):
    """Lost and hanging ranks. docs/reliability.md says what a run survives."""

    hang_s: float = _free(60.0, "Seconds without a sign of life after which a rank is killed; 0: never.", ge=0)
    copy_every: _whole(0) = _free(1, (
        "Where one rank trains and others play: optimiser steps between partner checkpoints, copies of the trainer's "
        "weights and optimiser in the memory of a second rank. Losing the trainer loses at most these steps; with 0 "
        "there are no copies, and it loses all steps since the last checkpoint. A step waits until the copy before it "
        "is made, so a larger number helps a GPU with short steps. Only used where a job survives a lost rank (mpirun "
        "--with-ft ulfm)."))


class Report(Section):
    """Numbers for people."""

    summary_frequency: _whole(1) = _free(50, "Optimiser steps between summaries, which show the mean loss of "
                                    "their batches; 1: the loss of each batch.")
    tensorboard: bool = _free(True, "Write TensorBoard files beside metrics.jsonl.")
    sinks: _list_of(SINKS) = _free((), "Further sinks of the metrics, beside metrics.jsonl and TensorBoard.",
                                   strict=False)


class Config(Section):
    """The whole configuration. Only `game` has no default."""

    game: _named(GAMES) = _fixed(..., "The game to learn.")
    seed: _whole(0) = _fixed(1, "Seed of everything random.")
    iterations: _whole(1) = _free(40, "Iterations of the run; each is one round of self-play and training.")
    max_hours: float = _free(0.0, "Hours that one start of the run may take: at 0.99 of them it stores what is "
                             "finished and leaves with status 75, to be started again; 0: no limit.", ge=0)
    callbacks: _list_of(CALLBACKS) = _free((), "Classes that see every finished game, iteration and evaluation.",
                                           strict=False)
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

    @model_validator(mode="after")
    def _agree(self):
        for low, high in NOT_MORE:
            if contradict(low, high, flat(self)):
                raise ValueError(f"{low} must not be more than {high}")
        return self


# Pairs of keys: the value of the first must not be more than that of the second.
NOT_MORE = (("replay.window_min", "replay.window_max"), ("train.ranks", "train.batch_size"))


def flat(config: Section) -> dict[str, Any]:
    """Return {dotted key: value} of a configuration."""
    rows = {}
    for name, value in config:
        rows |= {f"{name}.{key}": item for key, item in value} if isinstance(value, Section) else {name: value}
    return rows


def contradict(low: str, high: str, values: dict[str, Any]) -> bool:
    """Return whether key `low` is more than key `high`. A word ("all") or a missing value contradicts nothing."""
    pair = [values.get(key) for key in (low, high)]
    return all(isinstance(value, int) for value in pair) and pair[0] > pair[1]
