"""The keys of a configuration as typed, documented, strict models. Every default lives in this package."""

from typing import Annotated, Any, Literal

from pydantic import Field

from az_mpi.config.fields import Section, fixed, free, list_of, named, whole
from az_mpi.core.registry import (
    BLOCKS,
    CALLBACKS,
    ENGINES,
    EVALUATORS,
    GAMES,
    HEADS,
    OPPONENTS,
    OPTIMIZERS,
    SEARCHES,
    SINKS,
    SOLVERS,
)


class Network(Section):
    """The network, and what evaluates positions with it."""

    blocks: whole(1, 80) = fixed(
        5, "Blocks in the tower (the paper: 19). A resumed run may have more, not fewer.", may_rise=True
    )
    channels: whole(8, 1024, multiple_of=8) = fixed(64, "Filters of each convolution (the paper: 256).")
    block: named(BLOCKS) = fixed(
        "residual",
        (
            'The kind of blocks. "residual": two convolutions, as in the paper; "global_pooling": every second block '
            'also pools over the board (KataGo), or every n-th, "global_pooling(every=n)"; "squeeze_excitation": '
            'channels are weighed by their means over the board (Leela Chess Zero); "bottleneck": two residual blocks '
            "of half the channels in each block (KataGo's b18nbt)."
        ),
    )
    heads: list_of(HEADS) = fixed(
        ("policy", "value"),
        (
            'The network\'s outputs; the search needs a policy and a value. "wdl" is a value too, in three numbers: '
            'win, draw and loss, for games with draws. With "policy(any_size=True)" and "value(any_size=True)" no '
            "weight belongs to one board size, as on large boards, so that another size can be begun with the network. "
            'The names after "wdl" only train the network: docs/methods.md.'
        ),
    )
    engine: named(ENGINES) = free(
        "auto",
        (
            'What runs the network in self-play and matches. "auto": the fastest there is (a GPU, else OpenVINO, else '
            "torch)."
        ),
    )
    precision: Literal["auto", "fp32", "bf16", "int8"] = free(
        "auto",
        (
            'What the engine computes in, in self-play and matches; train.mixed_precision is about training. "auto": '
            "int8 where OpenVINO is measured to be faster so (not with selfplay.deterministic), else bf16 where the "
            "processor or GPU has it, else fp32. int8: the tower of residual blocks alone."
        ),
    )
    cache_bytes: whole(0) = free(
        2**26,
        "Memory of each rank in which self-play remembers evaluations until the weights change; 0: none. The ranks of "
        "a host share theirs, but for deterministic runs. A position takes 32 bytes, and 6 for each legal move.",
    )


class Search(Section):
    """The search for a move. "The paper" is Silver et al. 2018, with its pseudocode."""

    algorithm: named(SEARCHES) = fixed(
        "puct",
        (
            'The search in self-play. "puct" is that of AlphaZero. "gumbel" (Danihelka et al. 2022) learns from few '
            "simulations too, down to 2. In self-play it does not use c_puct, c_puct_base, fpu_reduction, the "
            "dirichlet keys, forced_playouts and root_policy_temperature. Matches and play take the same search, but "
            'in positions with more than 16 legal moves, or more than gumbel_actions, "gumbel" searches by PUCT, with '
            "c_puct, c_puct_base and fpu_reduction."
        ),
    )
    simulations: whole(1, 100_000) = fixed(
        100,
        "Simulations for each move, those that a reused tree brings along included (the paper: 800 new ones). A search "
        "whose result is proven ends earlier.",
    )
    c_puct: float = fixed(
        1.75,
        "Exploration: c_init of C(s) = log((1 + N(s) + c_base) / c_base) + c_init, beside Q from -1 to 1 (the paper: "
        "1.25, beside 0 to 1).",
        gt=0,
    )
    c_puct_base: float = fixed(19652.0, "c_base of C(s), in visits: how slowly exploration grows with N(s).", gt=0)
    fpu_reduction: float = fixed(
        0.25,
        "First-play urgency: an unvisited move starts at its parent's value less this times the square root of the "
        "visited moves' priors, and less 0 at a root that explores (KataGo's; not in the paper).",
        ge=0,
        le=2,
    )
    dirichlet_alpha: float = fixed(
        10.0,
        "Total concentration of the Dirichlet noise on the root's priors: each of k legal moves gets alpha = "
        "dirichlet_alpha / k.",
        gt=0,
    )
    dirichlet_fraction: float = fixed(
        0.25, "epsilon: share of the noise in the root's priors, (1 - epsilon) p + epsilon noise.", ge=0, le=1
    )
    root_policy_temperature: float = fixed(
        1.0,
        "In self-play the root's priors are P^(1 / this), scaled to sum 1, before noise; above 1 it explores more "
        "(KataGo: 1.1). Not Gumbel.",
        gt=0,
    )
    forced_playouts: float = fixed(
        0.0,
        "k: in self-play each move tried at the root gets at least sqrt(k P(a) N) visits, which the policy target "
        "leaves out (KataGo: 2); 0: none. Not Gumbel.",
        ge=0,
    )
    full_share: float = fixed(
        1.0,
        "Share of self-play moves that get a full search, of search.simulations (KataGo: 0.25). The others get "
        "search.fast_simulations without noise: they train all but the policy.",
        gt=0,
        le=1,
    )
    fast_simulations: whole(1, 100_000) = fixed(20, "Simulations of a fast search, with full_share below 1.")
    temperature: float = fixed(
        1.0,
        "tau in self-play: a move is drawn in proportion to N(a)^(1/tau); 0: the most visited move. Gumbel search has "
        "the improved policy in place of N, and no tau above 1.",
        ge=0,
    )
    temperature_plies: whole(0) = fixed(
        12,
        "Plies from the start of a game that are played at temperature; later ones at temperature_final (the paper: "
        "30).",
    )
    temperature_final: float = fixed(0.25, "tau of the plies after temperature_plies (the paper: 0).", ge=0)
    relative_values: bool = fixed(
        True,
        "In games of one player the search takes values relative to the range of those in its tree, as MuZero does "
        "(Schrittwieser et al. 2020, equation 5): small differences of scores decide as large ones do.",
    )
    reuse_tree: bool = fixed(True, "Start the next search from the subtree of the move that was played.")
    gumbel_actions: whole(1, 1024) = fixed(16, "m: actions that Gumbel search considers at the root in self-play.")
    gumbel_c_visit: float = fixed(
        50.0,
        "c_visit of sigma(q) = (c_visit + max_b N(b)) c_scale q, with which Gumbel search turns values, on a scale "
        "from 0 to 1, into logits.",
        ge=0,
    )
    gumbel_c_scale: float = fixed(1.0, "c_scale of sigma(q): the larger, the less the priors count.", gt=0)


class Selfplay(Section):
    """The games that ranks play against themselves."""

    num_games: whole(1) = free(
        512,
        "Games of an iteration, a TOTAL over all ranks. It may get a few more (fewer than there are ranks), and those "
        "that ranks play while others train; these extra games add no training steps.",
    )
    parallel_games: whole(0, 65_536) = free(
        0,
        "Games each rank plays at once (on EACH rank). 0: 256, or as many more as a measurement at the start finds to "
        "make the engine faster, up to half of the rank's share of num_games; with an engine on a GPU up to its share, "
        "8192 at most. With selfplay.deterministic nothing is measured: 256; on a GPU the share, 256 to 2048.",
    )
    evaluator: named(EVALUATORS) = free(
        "network",
        (
            'What evaluates positions in self-play; matches use the network. "uniform": equal priors and value 0, '
            'deterministic, for tests; "rollout": random play-outs.'
        ),
    )
    deterministic: bool = fixed(
        False,
        "Split num_games over the ranks exactly and seed each game by (seed, iteration, game index), so that any "
        'number of ranks makes the same games (not with the evaluator "rollout", which draws by rank).',
    )
    max_staleness: whole(0) = free(
        0,
        "The largest age of a game: the number of iterations from the weights with which it begins to the iteration "
        "that gets it. Games under way that would be older are abandoned, and new ones begin with newer weights. Use "
        "at least 1 if some ranks play while others train. 0: no limit.",
    )
    max_plies: whole(0) = free(
        0,
        "A game that reaches this many plies ends as a draw, in games of one player with the value that it has there; "
        "0: no limit but the game's own.",
    )
    start_share: float = fixed(
        0.0,
        "Share of the games that begin at a position of an earlier game, drawn from the window (Go-Exploit); while it "
        "is empty, as in --mode selfplay, none do.",
        ge=0,
        le=1,
    )
    random_plies: whole(0, 10_000) = fixed(
        0,
        "Each game begins with 0 to so many random moves, each number as likely, which are not searched, stored or "
        "trained on.",
    )
    resign_threshold: float = fixed(
        1.0,
        "In self-play the player to move resigns, and loses, if the root's value is below minus this (0.9, for "
        "example); 1: nobody resigns.",
        gt=0,
        le=1,
    )
    resign_play_on: float = fixed(
        0.1,
        "Share of the games in which nobody resigns. Of those in which a player would have resigned, the metric "
        "false_resign_rate is the share that this player did not lose.",
        gt=0,
        le=1,
    )
    surprise_share: float = fixed(
        0.0,
        "Share of a game's weight in training that goes to its positions in proportion to how far the search's policy "
        "is from the network's (KataGo: 0.5).",
        ge=0,
        le=1,
    )
    ranked_reward: float = fixed(
        0.0,
        "In games of one player the value of a position is 1 if the game ends above a threshold, -1 if below it, and "
        "drawn by lot if at it. The threshold is the result that this share of the newest games stays at or below "
        "(Laterre et al. 2018: 0.75); 0: the value is the game's result. docs/methods.md.",
        ge=0,
        le=0.99,
    )
    ranked_games: whole(1) = fixed(
        250, "The newest games of earlier iterations that the threshold of ranked_reward is made of."
    )
    weights: dict[str, Annotated[float, Field(gt=0)]] = free(
        {},
        (
            "Only with selfplay.deterministic, otherwise they are refused: how many games each rank of a host plays, "
            'relative to the others, such as {"node2": 2.0} for twice as many on node2. A host is named as in '
            "train.root_host; one that is not named counts 1."
        ),
    )


class Exchange(Section):
    """How finished games travel from the ranks that played them to root and to the trainers."""

    every_s: float = free(
        20.0,
        "Seconds of self-play between exchanges, which store finished games and send them to the trainers. 0, and "
        "always with selfplay.deterministic: one exchange, when the iteration has all of its games.",
        ge=0,
    )
    compress: bool = free(True, "Compress games on their way between ranks.")
    chunk_bytes: whole(1024, 2**31 - 1) = free(2**28, "Most bytes that one rank sends in one round of messages.")


class Replay(Section):
    """The window: the newest positions, from which training samples are drawn.

    It holds window_growth of all positions made so far, but at least window_min and at most window_max. With
    window_exponent it grows more and more slowly.
    """

    window_min: whole(1) = fixed(20_000, "Positions the window holds at least, once so many were made.")
    window_max: whole(1) = fixed(1_000_000, "Positions the window holds at most.")
    window_growth: float = fixed(0.5, "Share of all positions made so far that the window holds.", ge=0, le=1)
    window_exponent: float = fixed(
        1.0,
        (
            "alpha: below 1 the window holds c (1 + window_growth ((N / c)^alpha - 1) / alpha) of N positions, c = "
            "window_min (KataGo: 0.75, with window_growth 0.4 and window_min 250000); 1: window_growth N."
        ),
        gt=0,
        le=1,
    )


class Train(Section):
    """Who trains, on what and how fast."""

    ranks: Literal["auto", "all", "root_host", "gpu"] | whole(1) = free(
        "auto",
        (
            'Who trains: "all" ranks, those on the "root_host", one for each "gpu", or a number of ranks. The others '
            'play meanwhile. "auto": "gpu" if any rank has a GPU, otherwise "all".'
        ),
    )
    root_host: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=253)] = free(
        "",
        (
            "The host of root, the rank that writes the files of the run: its full or short name or IPv4 address. Its "
            'ranks come first, so train.ranks "root_host" and numbers begin there. "": the first host listed to '
            "mpirun or launch. If GPUs train and this host has none, root is on the first host that has."
        ),
    )
    backend: Literal["auto", "horovod", "ddp"] = free(
        "auto",
        (
            'What sums gradients over the train ranks. "ddp" is torch.distributed. "auto": Horovod, or '
            "torch.distributed where a rank cannot use Horovod, as without a build for GPUs; a note at the start says "
            "why."
        ),
    )
    batch_size: whole(1) = free(1024, "Samples in one optimiser step: a TOTAL over all train ranks.")
    batch_growth: float = fixed(
        1.0,
        (
            "The batch of the last iteration, in units of batch_size; it grows by the same factor in each iteration. "
            'With the schedule "constant" it takes the place of a falling learning rate: fewer and larger steps, '
            "which many ranks share better. A rank computes at most its part of batch_size at once."
        ),
        ge=1,
    )
    replay_ratio: float = fixed(4.0, "Samples drawn from the window for each new position.", gt=0)
    root_value_share: float = fixed(
        0.5,
        "Share of the search's root value q in the value target: (1 - share) z + share q, where z is the result of "
        "the game. It makes the target less noisy (the paper: 0). With three players or more the target is z.",
        ge=0,
        le=1,
    )
    root_value_horizon: whole(0, 100_000) = fixed(
        0,
        "0: q is the root value of the position itself. Otherwise q is an exponential average of the root values of "
        "this position and of later ones, and of the result after the last one; the values lie this many positions "
        "later on average.",
    )
    optimizer: named(OPTIMIZERS) = fixed(
        "adamw",
        (
            'What takes the steps: "adamw"; "sgd", with Nesterov momentum; "muon", orthogonalised momentum for the '
            'weights of the tower and AdamW for the others. Each takes arguments, such as "sgd(momentum=0.95)", and '
            "wants a learning_rate of its own; docs/methods.md. A class of torch.optim is written torch.optim:RAdam."
        ),
    )
    learning_rate: float = free(0.002, "Learning rate at its peak, after the warm-up.", gt=0)
    warmup_steps: whole(0) = fixed(50, "Optimiser steps in which the learning rate rises to its peak.")
    schedule: Literal["constant", "cosine"] = fixed(
        "cosine", 'Learning rate after the warm-up; "cosine" falls over all iterations, or over hours.'
    )
    final_learning_rate: float = fixed(0.1, "End of the cosine, as a fraction of learning_rate.", ge=0, le=1)
    weight_decay: float = fixed(
        1e-4, "Weight decay, decoupled in adamw and muon; in sgd a part of the gradient (the paper's c).", ge=0
    )
    gradient_clip: float = fixed(1.0, "Largest global L2 norm of the gradient; a longer one is scaled down.", gt=0)
    value_loss_weight: float = fixed(
        1.0,
        "Weight of the value loss (z - v)^2 beside the policy loss -pi log p; z and v are for the player to move, in "
        "[-1, 1].",
        gt=0,
    )
    ema_decay: float = free(
        0.0,
        "Decay d of an average of the weights, such as 0.99: after each step average = d average + (1 - d) weights. "
        "The average plays, is evaluated and exported; training continues from the weights. 0: no average.",
        ge=0,
        le=0.9999,
    )
    mixed_precision: Literal["auto"] | bool = free(
        "auto",
        (
            'Train in bf16 autocast. "auto": where the processor or GPU has bf16; false: in fp32, on GPUs with TF32 '
            "convolutions. Self-play and matches have network.precision."
        ),
    )
    bad_steps_max: whole(1) = free(
        3,
        "A step whose loss or gradient is not finite is skipped. After so many in a row training goes back to the "
        "last good checkpoint with half the learning rate, at most 3 times in a run.",
    )
    hours: float = free(
        0.0,
        "Hours that all starts of the run may take together. The time of starts without this key does not count. "
        "Learning rate and batch size follow this clock. The run ends after the iteration in which the hours are used "
        "up, or after `iterations` if that is sooner. 0: iterations alone.",
        ge=0,
    )
    max_steps: whole(0) = free(0, "The run ends with the iteration that reaches so many steps; 0: no limit.")


class Evaluate(Section):
    """Matches and comparisons that say how well the network plays."""

    every: whole(0) = free(
        5, "Iterations between evaluations. The last iteration is always followed by one; 0: only that one."
    )
    num_games: whole(2, multiple_of=2) = free(
        100,
        "Games against each opponent, each seat (colour) equally often, or of one player so many seeds: a TOTAL over "
        "all ranks.",
    )
    simulations: whole(0, 1_000_000) = free(
        0, "Simulations for each move in matches, and in play if nobody says how many; 0: search.simulations."
    )
    opponents: list_of(OPPONENTS) = free(
        ("best", "random", "rollout"),
        'Who is played: the "best" network so far, "random" moves, "greedy" moves (the best after one move by the '
        'rules), a search on "rollout" values; by default, in games of one player "best", "random" and "greedy"; '
        '"zoo:NAME", a network that comes with az_mpi; in games of OpenSpiel "mcts_bot", its own search. Other '
        "programs: \"gtp(command='gnugo --mode gtp')\", \"uci(command='stockfish', seconds=0.1)\"; docs/play.md has "
        "their arguments.",
    )
    rollout_simulations: whole(1, 1_000_000) = free(400, 'Simulations for each move of the "rollout" opponent.')
    opening_plies: whole(0) = free(
        2,
        "Random plies before a match game; each opening is played from every seat. Games of one player with chance "
        "moves begin without any.",
    )
    solver: named(SOLVERS) = free("auto", 'The exact solver; "auto": the one that the game names, if it names one.')
    solver_positions: whole(0) = free(
        500,
        "Positions (the same ones in every run) on which moves are compared with the exact solver, if the game has "
        "one; 0: none.",
    )


class Checkpoint(Section):
    """How often the state of the run is saved."""

    every: whole(1) = free(1, "Iterations between checkpoints.")
    keep: whole(1) = free(3, "Newest checkpoints that are kept.")
    keep_best: whole(2) = free(
        64,
        "Networks in best/ that are kept: half of them are the newest ones, and the others lie evenly over the older "
        "iterations, on a logarithmic scale.",
    )


class Storage(Section):
    """Who writes games, how many are kept, and how long a run waits for a file system that fails."""

    ranks_per_writer: whole(2) = free(
        64,
        (
            "Ranks whose games one of them writes, at least. Root writes for all ranks of a job of fewer than twice as "
            "many. One core stores about 24,000 games of Connect Four a second."
        ),
    )
    keep_windows: whole(0) = free(
        0,
        "Games on disk: of so many replay windows, counted back from the newest checkpoint; segments before them are "
        "removed, but for those that ranked_reward needs. 2 is enough to resume. 0: all games are kept.",
    )
    give_up_s: float = free(600.0, "Seconds a run waits for a full or failing disk, then leaves with 75.", ge=0)


class Fault(Section):
    """Lost and hanging ranks. docs/reliability.md says what a run survives."""

    hang_s: float = free(
        60.0, "Seconds without a sign of life after which a rank is killed; 0: never.", ge=0, le=2**53 - 1
    )
    copy_every: whole(0) = free(
        1,
        (
            "Where one rank trains and others play: optimiser steps between partner checkpoints, copies of the "
            "trainer's weights and optimiser in the memory of a second rank. Losing the trainer loses at most these "
            "steps; with 0 there are no copies, and it loses all steps since the last checkpoint. A step waits until "
            "the copy before it is made, so a larger number helps a GPU with short steps. Only used where a job "
            "survives a lost rank (mpirun --with-ft ulfm)."
        ),
    )


class Report(Section):
    """Numbers for people."""

    summary_frequency: whole(1) = free(
        50, "Optimiser steps between summaries, which show the mean loss of their batches; 1: the loss of each batch."
    )
    tensorboard: bool = free(True, "Write TensorBoard files beside metrics.jsonl.")
    sinks: list_of(SINKS) = free((), "Further sinks of the metrics, beside metrics.jsonl and TensorBoard.")


class Config(Section):
    """The whole configuration. Only `game` has no default."""

    game: named(GAMES) = fixed(..., "The game to learn.")
    seed: whole(0) = fixed(1, "Seed of everything random.")
    iterations: whole(1) = free(40, "Iterations of the run; each is one round of self-play and training.")
    max_hours: float = free(
        0.0,
        "Hours that one start of the run may take, or all jobs of one launch together: at 0.99 of them it stores what "
        "is finished and leaves with status 75, to be started again; 0: no limit.",
        ge=0,
    )
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
