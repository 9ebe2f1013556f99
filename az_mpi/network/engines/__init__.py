"""Which engine evaluates a network here, and in which precision."""

import torch

from az_mpi.network.engines import openvino_engine
from az_mpi.network.engines.openvino_engine import OpenVinoEngine
from az_mpi.network.engines.torch_engine import TorchEngine, has_bf16


def make(network, game, wanted, device, threads, precision="auto"):
    """Return (an engine with the weights of `network`, the choice and its reason in words).

    wanted: "openvino", "torch" or "auto", the fastest there is. device: of torch. threads: of engines on a processor.
    precision: "fp32", "bf16" or "auto", bf16 where the device has it; see `lacks`.
    """
    device = _place(wanted, device)
    without_openvino = openvino_engine.missing() if wanted == "auto" and device.type == "cpu" else None
    used, why = precision, " (as configured)"
    if precision == "auto":
        used, why = ("bf16", "") if has_bf16(device) else ("fp32", " (no bf16 instructions here)")
    if wanted == "openvino" or wanted == "auto" and device.type == "cpu" and not without_openvino:
        engine = OpenVinoEngine(network, game.planes_shape, threads, used)
        reason = "the fastest on processors"
    elif device.type == "cuda":
        from az_mpi.network.engines.cuda_engine import CudaEngine

        engine, reason = CudaEngine(network, game.planes_shape, device, used), "there is a GPU"
    else:
        engine, reason = TorchEngine(network, game.planes_shape, used), without_openvino
    return engine, f"{engine.describe}{why} ({f'auto: {reason}' if wanted == 'auto' else 'as configured'})"


def lacks(wanted, device, precision):
    """Return why `make` must not be asked for an engine of this precision here, or None."""
    device = _place(wanted, device)
    if precision != "bf16" or has_bf16(device):
        return None
    what = "GPU (compute capability below 8.0)" if device.type == "cuda" else "processor (AVX512-BF16 or AMX)"
    return f"no bf16 instructions on this {what}"


def _place(wanted, device):
    """Return the torch device on which an engine evaluates where a rank has `device`."""
    return torch.device("cpu" if wanted == "openvino" else device)
