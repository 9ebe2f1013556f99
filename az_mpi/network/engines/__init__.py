"""The choice of the engine that evaluates a network on this rank, and of its precision.

The built-in engines of the registry are functions here. They refuse what this rank cannot do.
"""

import torch

from az_mpi.core.problems import Refusal
from az_mpi.core.registry import ENGINES
from az_mpi.games.base import Game
from az_mpi.network.engines import openvino_engine
from az_mpi.network.engines.engine import Engine
from az_mpi.network.engines.openvino_engine import OpenVinoEngine
from az_mpi.network.engines.torch_engine import TorchEngine, has_bf16


def make(name: str, network: torch.nn.Module, game: Game, device: torch.device | str, threads: int,
         precision: str = "auto") -> tuple[Engine, str]:
    """Return (an engine with the weights of `network`, the choice and its reason in words).

    name: `network.engine`. device: of torch. threads: of engines on a CPU. precision: "fp32", "bf16" or "auto", which
    is bf16 if the device supports it. Raises Refusal if this rank cannot use this engine or precision.
    """
    engine = ENGINES.make(name, network=network, game=game, planes_shape=game.planes_shape, device=torch.device(device),
                          threads=threads, precision=precision)  # fmt: skip
    return engine, engine.choice or f"{engine.describe} (as configured)"


def fastest(network: torch.nn.Module, planes_shape: tuple[int, int, int], device: torch.device, threads: int,
            precision: str) -> Engine:
    """Return the fastest engine that this rank can use."""
    without_openvino = "there is a GPU"
    if device.type == "cpu":
        without_openvino = openvino_engine.missing(network, planes_shape)
    if without_openvino:
        return with_torch(network, planes_shape, device, precision, f"auto: {without_openvino}")
    return with_openvino(network, planes_shape, threads, precision, "auto: the fastest on processors")


def with_openvino(network: torch.nn.Module, planes_shape: tuple[int, int, int], threads: int, precision: str,
                  reason: str = "as configured") -> Engine:
    """Return an OpenVINO engine, which runs on the CPU even if the rank has a GPU."""
    if problem := openvino_engine.missing(network, planes_shape):
        raise Refusal(f'network.engine = "openvino"\n  {problem}\n'
                      "  make setup installs it; or let each rank choose with --set network.engine=auto")
    precision, why = _precision(torch.device("cpu"), precision)
    return _chosen(OpenVinoEngine(network, planes_shape, threads, precision), why, reason)


def with_torch(network: torch.nn.Module, planes_shape: tuple[int, int, int], device: torch.device, precision: str,
               reason: str = "as configured") -> Engine:
    """Return a PyTorch engine on the rank's GPU, or on the CPU if it has none."""
    precision, why = _precision(device, precision)
    if device.type == "cuda":
        from az_mpi.network.engines.cuda_engine import CudaEngine

        return _chosen(CudaEngine(network, planes_shape, device, precision), why, reason)
    return _chosen(TorchEngine(network, planes_shape, precision), why, reason)


def _precision(device, wanted):
    """Return ("fp32" or "bf16", why in words)."""
    if wanted == "bf16" and not has_bf16(device):
        what = "GPU (compute capability below 8.0)" if device.type == "cuda" else "processor (AVX512-BF16 or AMX)"
        raise Refusal(f'network.precision = "bf16"\n  no bf16 instructions on this {what}\n'
                      "  let each rank choose with --set network.precision=auto")
    if wanted != "auto":
        return wanted, " (as configured)"
    return ("bf16", "") if has_bf16(device) else ("fp32", " (no bf16 instructions here)")


def _chosen(engine, why, reason):
    engine.choice = f"{engine.describe}{why} ({reason})"
    return engine
