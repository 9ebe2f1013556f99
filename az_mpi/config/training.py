"""The exchange of games, the replay window and training: the sections of a configuration about how ranks learn."""

from typing import Annotated, Literal

from pydantic import Field

from az_mpi.config.fields import Section, fixed, free, named, whole
from az_mpi.core.registry import OPTIMIZERS


class Exchange(Section):
    """How finished games travel from the ranks that played them to root and to the trainers."""

    every_s: float = free(20.0, "Seconds of self-play between exchanges, which store finished games and send them to "
                           "the trainers. 0, and always with selfplay.deterministic: one exchange, when the iteration "
                           "has all of its games.", ge=0)
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
    window_exponent: float = fixed(1.0, (
        "alpha: below 1 the window holds c (1 + window_growth ((N / c)^alpha - 1) / alpha) of N positions, c = "
        "window_min (KataGo: 0.75, with window_growth 0.4 and window_min 250000); 1: window_growth N."), gt=0, le=1)


class Train(Section):
    """Who trains, on what and how fast."""

    ranks: Literal["auto", "all", "root_host", "gpu"] | whole(1) = free("auto", (
        'Who trains: "all" ranks, those on the "root_host", one for each "gpu", or a number of ranks. The others '
        'go on playing meanwhile. "auto": "gpu" if any rank has a GPU, otherwise "all".'))
    root_host: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=253)] = free("", (
        'The host of root, the rank that writes the files of the run: its full or short name or IPv4 address. Its '
        'ranks come first, so train.ranks "root_host" and numbers begin there. "": the first host listed to mpirun or '
        'launch. If GPUs train and this host has none, root is on the first host that has.'))
    backend: Literal["auto", "horovod", "ddp"] = free("auto", (
        'What sums gradients over the train ranks. "ddp" is torch.distributed. "auto": Horovod, or torch.distributed '
        'where a rank cannot use Horovod, as without a build for GPUs; a note at the start says why.'))
    batch_size: whole(1) = free(1024, "Samples in one optimiser step: a TOTAL over all train ranks.")
    batch_growth: float = fixed(1.0, (
        "The batch of the last iteration, in units of batch_size; it grows by the same factor in each iteration. With "
        'the schedule "constant" it takes the place of a falling learning rate: fewer and larger steps, which many '
        "ranks share better. A rank computes at most its part of batch_size at once."), ge=1)
    replay_ratio: float = fixed(4.0, "Samples drawn from the window for each new position.", gt=0)
    root_value_share: float = fixed(0.5, "Share of the search's root value q in the value target: (1 - share) z + "
                                     "share q, where z is the result of the game. It makes the target less noisy "
                                     "(the paper: 0).", ge=0, le=1)
    optimizer: named(OPTIMIZERS) = fixed("adamw", (
        'What takes the steps: "adamw"; "sgd", with Nesterov momentum; "muon", orthogonalised momentum for the weights '
        'of the tower and AdamW for the others. Each takes arguments, such as "sgd(momentum=0.95)", and wants a '
        "learning_rate of its own; docs/methods.md. A class of torch.optim is written torch.optim:RAdam."))
    learning_rate: float = free(0.002, "Learning rate at its peak, after the warm-up.", gt=0)
    warmup_steps: whole(0) = fixed(50, "Optimiser steps in which the learning rate rises to its peak.")
    schedule: Literal["constant", "cosine"] = fixed("cosine", 'Learning rate after the warm-up; "cosine" falls over '
                                                     'all iterations, or over hours.')
    final_learning_rate: float = fixed(0.1, "End of the cosine, as a fraction of learning_rate.", ge=0, le=1)
    weight_decay: float = fixed(1e-4, "Weight decay (the paper's c).", ge=0)
    gradient_clip: float = fixed(1.0, "Largest global L2 norm of the gradient; a longer one is scaled down.", gt=0)
    value_loss_weight: float = fixed(1.0, "Weight of the value loss (z - v)^2 beside the policy loss -pi log p; z and "
                                      "v are for the player to move, in [-1, 1].", gt=0)
    ema_decay: float = free(0.0, "Decay d of an average of the weights, such as 0.99: after each step average = d "
                             "average + (1 - d) weights. The average plays, is evaluated and exported; training goes "
                             "on from the weights. 0: no average.", ge=0,
                             le=0.9999)
    mixed_precision: Literal["auto"] | bool = free("auto", (
        'Train in bf16 autocast. "auto": where the processor or GPU has bf16; false: in fp32, on GPUs with TF32 '
        'convolutions. Self-play and matches have network.precision.'))
    bad_steps_max: whole(1) = free(3, "A step whose loss or gradient is not finite is skipped. After so many in a "
                                     "row training goes back to the last good checkpoint with half the learning rate, "
                                     "at most 3 times in a run.")
    hours: float = free(0.0, "Hours of the whole run, summed over its starts; those without this key do not count. "
                         "Learning rate and batch size follow this clock. The run ends after the iteration in which "
                         "the hours are used up, or after `iterations` if that is sooner. 0: iterations alone.", ge=0)
    max_steps: whole(0) = free(0, "The run ends with the iteration that reaches so many steps; 0: no limit.")
