"""The choice of the engine that evaluates a network on this rank, and of its precision.

The built-in engines of the registry are functions here. They refuse what this rank cannot do.
"""

from functools import partial

import torch

from az_mpi.core.problems import NotHere, Refusal
from az_mpi.core.registry import ENGINES
from az_mpi.games.base import Game
from az_mpi.network.engines import int8, openvino_engine, timing
from az_mpi.network.engines.engine import Engine
from az_mpi.network.engines.openvino_engine import Int8Engine, OpenVinoEngine
from az_mpi.network.engines.torch_engine import TorchEngine, has_bf16

CONFIGURED = "as configured"
AS_SET = f" ({CONFIGURED})"
NUM_TIMED = 32  # positions a turn


def make(
    name: str,
    network: torch.nn.Module,
    game: Game,
    device: torch.device | str,
    threads: int,
    precision: str = "auto",
    timed: bool = False,
) -> tuple[Engine, str]:
    """Return (an engine with the weights of `network`, the choice and its reason in words).

    name: `network.engine`. device: of torch. threads: of engines on a CPU. precision: "fp32", "bf16", "int8" or "auto",
    which is bf16 if the device supports it. timed: "auto" may also choose int8, if a measurement says it is faster.
    Raises Refusal if this rank cannot use this engine or precision.
    """
    engine = ENGINES.make(
        name, network=network, game=game, device=torch.device(device), threads=threads, precision=precision, timed=timed
    )
    return engine, engine.choice or engine.describe + AS_SET


def fastest(
    network: torch.nn.Module, game: Game, device: torch.device, threads: int, precision: str, timed: bool
) -> Engine:
    """Return the fastest engine that this rank can use."""
    without_openvino = "there is a GPU"
    if device.type == "cpu":
        without_openvino = openvino_engine.missing(network, game)
    if without_openvino:
        return with_torch(network, game, device, precision, f"auto: {without_openvino}")
    return with_openvino(network, game, threads, precision, timed, "auto: the fastest on processors")


def with_openvino(
    network: torch.nn.Module, game: Game, threads: int, precision: str, timed: bool, reason: str = CONFIGURED
) -> Engine:
    """Return an OpenVINO engine, which runs on the CPU even if the rank has a GPU."""
    if problem := openvino_engine.missing(network, game):
        raise Refusal(
            f'network.engine = "openvino"\n  {problem}\n'
            "  make setup installs it; or let each rank choose with --set network.engine=auto"
        )
    if precision == "int8" and not int8.has_int8():
        raise _lacking("int8", "no 8-bit multiplications on this processor (AVX2, AVX512-VNNI or AMX)")
    rest, why = _precision(torch.device("cpu"), "auto" if precision == "int8" else precision)
    if precision == "int8":
        return _chosen(Int8Engine(network, game, threads, rest, int8.random_bits(game)), "int8", AS_SET, reason)
    engine = OpenVinoEngine(network, game, threads, rest)
    if precision == "auto" and timed and int8.has_int8():
        planes = int8.random_bits(game)
        in_int8 = Int8Engine(network, game, threads, rest, planes)
        gain = _gain(in_int8, engine, planes[:NUM_TIMED])
        if gain >= timing.GAIN_MIN:  # int8 takes new weights later and is less exact
            return _chosen(in_int8, "int8", f" ({gain:.1f} times as fast as {rest} here)", reason)
        why += " (int8 is no faster here)"
    return _chosen(engine, rest, why, reason)


def _gain(engine, other, planes):
    """Return how many times as fast as the other an engine is."""
    taken, other_taken = timing.shortest(*(partial(each.evaluate, planes) for each in (engine, other)))
    return other_taken / taken


def with_torch(
    network: torch.nn.Module, game: Game, device: torch.device, precision: str, reason: str = CONFIGURED
) -> Engine:
    """Return a PyTorch engine on the rank's GPU, or on the CPU if it has none."""
    if precision == "int8":
        if reason == CONFIGURED:
            raise Refusal(
                'network.precision = "int8"\n'
                '  only OpenVINO on a processor has it, and network.engine is "torch"\n'
                "  let each rank choose with --set network.precision=auto, or --set network.engine=auto"
            )
        raise _lacking(
            "int8",
            f"only OpenVINO on a processor has it; here the engine would be torch ({reason.removeprefix('auto: ')})",
        )
    precision, why = _precision(device, precision)
    if device.type == "cuda":
        from az_mpi.network.engines.cuda_engine import CudaEngine

        return _chosen(CudaEngine(network, game, device, precision), precision, why, reason)
    return _chosen(TorchEngine(network, game, precision), precision, why, reason)


def _precision(device, wanted):
    """Return ("fp32" or "bf16", why in words)."""
    if wanted == "bf16" and not has_bf16(device):
        what = "GPU (compute capability below 8.0)" if device.type == "cuda" else "processor (AVX512-BF16 or AMX)"
        raise _lacking("bf16", f"no bf16 instructions on this {what}")
    if wanted != "auto":
        return wanted, AS_SET
    return ("bf16", "") if has_bf16(device) else ("fp32", " (no bf16 instructions here)")


def _lacking(precision, what):
    return NotHere(
        f'network.precision = "{precision}"\n  {what}\n  let each rank choose with --set network.precision=auto'
    )


def _chosen(engine, precision, why, reason):
    engine.precision = precision
    engine.choice = engine.describe + (AS_SET if reason == CONFIGURED and why == AS_SET else f"{why} ({reason})")
    return engine
