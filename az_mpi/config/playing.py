"""The network, the search and the games of self-play: the sections of a configuration about how ranks play."""

from typing import Annotated, Literal

from pydantic import Field

from az_mpi.config.fields import Section, fixed, free, list_of, named, whole
from az_mpi.core.registry import BLOCKS, ENGINES, EVALUATORS, HEADS, SEARCHES


class Network(Section):
    """The network, and what evaluates positions with it."""

    blocks: whole(1, 80) = fixed(5, "Blocks in the tower (the paper: 19). A resumed run may have more, not fewer.",
                                 may_rise=True)
    channels: whole(8, 1024, multiple_of=8) = fixed(64, "Filters of each convolution (the paper: 256).")
    block: named(BLOCKS) = fixed("residual", (
        'The kind of blocks. "residual": two convolutions, as in the paper; "global_pooling": every second block also '
        'pools over the board (KataGo), or every n-th, "global_pooling(every=n)"; "squeeze_excitation": channels are '
        'weighed by their means over the board (Leela Chess Zero); "bottleneck": two residual blocks of half the '
        "channels in each block (KataGo's b18nbt)."))
    heads: list_of(HEADS) = fixed(("policy", "value"), (
        'The network\'s outputs; the search needs a policy and a value. "wdl" is a value too, in three numbers: win, '
        "draw and loss, for games with draws. The names after \"wdl\" only train the network: docs/methods.md."))
    engine: named(ENGINES) = free("auto", (
        'What runs the network in self-play and matches. "auto": the fastest there is (a GPU, else OpenVINO, else '
        'torch).'))
    precision: Literal["auto", "fp32", "bf16", "int8"] = free("auto", (
        'What the engine computes in, in self-play and matches; train.mixed_precision is about training. "auto": int8 '
        'where OpenVINO is measured to be faster so (not with selfplay.deterministic), else bf16 where the processor '
        'or GPU has it, else fp32. int8: the tower of residual blocks alone.'))
    cache_bytes: whole(0) = free(2**26, "Memory of each rank in which self-play remembers evaluations until the "
                                   "weights change; 0: none. The ranks of a host share theirs, but for deterministic "
                                   "runs. A position takes 32 bytes, and 6 for each legal move.")


class Search(Section):
    """The search for a move. "The paper" is Silver et al. 2018, with its pseudocode."""

    algorithm: named(SEARCHES) = fixed("puct", (
        'The search in self-play. "puct" is that of AlphaZero. "gumbel" (Danihelka et al. 2022) learns from few '
        'simulations too, down to 2. It does not use c_puct, c_puct_base, fpu_reduction, the dirichlet keys, '
        'forced_playouts and root_policy_temperature. Matches and play take the same search, but in positions with '
        'more than 16 legal moves, or more than gumbel_actions, "gumbel" searches by PUCT.'))
    simulations: whole(1, 100_000) = fixed(100, "Simulations for each move (the paper: 800).")
    c_puct: float = fixed(1.75, "Exploration: c_init of C(s) = log((1 + N(s) + c_base) / c_base) + c_init, beside Q "
                           "from -1 to 1 (the paper: 1.25, beside 0 to 1).", gt=0)
    c_puct_base: float = fixed(19652.0, "c_base of C(s), in visits: how slowly exploration grows with N(s).", gt=0)
    fpu_reduction: float = fixed(0.25, "First-play urgency: an unvisited move starts at its parent's value less "
                                  "this times the square root of the visited moves' priors (KataGo's; not in the "
                                  "paper).", ge=0, le=2)
    dirichlet_alpha: float = fixed(10.0, "Total concentration of the Dirichlet noise on the root's priors: each of k "
                                    "legal moves gets alpha = dirichlet_alpha / k.", gt=0)
    dirichlet_fraction: float = fixed(0.25, "epsilon: share of the noise in the root's priors, (1 - epsilon) p + "
                                       "epsilon noise.", ge=0, le=1)
    root_policy_temperature: float = fixed(1.0, "In self-play the root's priors are P^(1 / this), scaled to sum 1, "
                                            "before noise; above 1 it explores more (KataGo: 1.1). Not Gumbel.", gt=0)
    forced_playouts: float = fixed(0.0, "k: in self-play each move tried at the root gets at least sqrt(k P(a) N) "
                                    "visits, which the policy target leaves out (KataGo: 2); 0: none. Not Gumbel.",
                                    ge=0)
    full_share: float = fixed(1.0, "Share of self-play moves that get a full search, of search.simulations (KataGo: "
                               "0.25). The others get search.fast_simulations without noise: they train all but "
                               "the policy.", gt=0, le=1)
    fast_simulations: whole(1, 100_000) = fixed(20, "Simulations of a fast search, with full_share below 1.")
    temperature: float = fixed(1.0, "tau in self-play: a move is drawn in proportion to N(a)^(1/tau); 0: the most "
                                "visited move. Gumbel search has the improved policy in place of N, and no tau above "
                                "1.", ge=0)
    temperature_plies: whole(0) = fixed(12, "Plies from the start of a game that are played at temperature; later "
                                          "ones at temperature_final (the paper: 30).")
    temperature_final: float = fixed(0.25, "tau of the plies after temperature_plies (the paper: 0).", ge=0)
    reuse_tree: bool = fixed(True, "Start the next search from the subtree of the move that was played.")
    gumbel_actions: whole(1, 1024) = fixed(16, "m: actions that Gumbel search considers at the root in self-play.")
    gumbel_c_visit: float = fixed(50.0, "c_visit of sigma(q) = (c_visit + max_b N(b)) c_scale q, with which Gumbel "
                                   "search turns values, on a scale from 0 to 1, into logits.", ge=0)
    gumbel_c_scale: float = fixed(1.0, "c_scale of sigma(q): the larger, the less the priors count.", gt=0)


class Selfplay(Section):
    """The games that ranks play against themselves."""

    games_num: whole(1) = free(512, "Games of an iteration, a TOTAL over all ranks. It may get a few more (fewer than "
                                 "there are ranks), and those that ranks play while others train; these extra games "
                                 "add no training steps.")
    parallel_games: whole(0, 65_536) = free(0, "Games each rank plays at once (on EACH rank). 0: 256; with an "
                                              "engine on a GPU the rank's share of games_num, 256 to 2048.")
    evaluator: named(EVALUATORS) = free("network", (
        'What evaluates positions in self-play; matches use the network. "uniform": equal priors and value 0, '
        'deterministic, for tests; "rollout": random play-outs.'))
    deterministic: bool = fixed(False, "Split games_num over the ranks exactly and seed each game by (seed, "
                                 "iteration, game index), so that any number of ranks makes the same games (not with "
                                 'the evaluator "rollout", which draws by rank).')
    max_plies: whole(0) = free(0, "A game that reaches this many plies ends as a draw (value 0 for both players); "
                                 "0: no limit but the game's own.")
    start_share: float = fixed(0.0, "Share of the games that begin at a position of an earlier game, drawn from the "
                                "window (Go-Exploit); while it is empty, as in --mode selfplay, none do.", ge=0, le=1)
    random_plies: whole(0, 10_000) = fixed(0, "Each game begins with 0 to so many random moves, each number as likely, "
                                      "which are not searched, stored or trained on.")
    resign_threshold: float = fixed(1.0, "In self-play the player to move resigns, and loses, if the root's value is "
                                     "below minus this (0.9, for example); 1: nobody resigns.", gt=0, le=1)
    resign_play_on: float = fixed(0.1, "Share of the games in which nobody resigns. The metric false_resign_rate is "
                                   "the share of these that the one who would have resigned did not lose.", gt=0, le=1)
    surprise_share: float = fixed(0.0, "Share of a game's weight in training that goes to its positions in proportion "
                                   "to how far the search's policy is from the network's (KataGo: 0.5).", ge=0, le=1)
    weights: dict[str, Annotated[float, Field(gt=0)]] = free({}, (
        'Only with selfplay.deterministic, otherwise they are refused: how many games each rank of a host plays, '
        'relative to the others, such as {"node2": 2.0} for twice as many on node2. A host is named as in '
        'train.root_host; one that is not named counts 1.'))
