"""Which engine evaluates a network here."""

import torch

from az_mpi.network import openvino_engine
from az_mpi.network.openvino_engine import OpenVinoEngine
from az_mpi.network.torch_engine import TorchEngine


def make(network, game, wanted, device, threads):
    """Return (an engine with the weights of `network`, the choice and its reason in words).

    wanted: "openvino", "torch" or "auto", the fastest there is. device: of torch. threads: of engines on a processor.
    """
    on_gpu = torch.device(device).type == "cuda"
    without_openvino = openvino_engine.missing() if wanted == "auto" and not on_gpu else None
    if wanted == "openvino" or wanted == "auto" and not on_gpu and not without_openvino:
        engine = OpenVinoEngine(network, game.planes_shape, threads)
        reason = "the fastest on processors"
    elif on_gpu:
        from az_mpi.network.cuda_engine import CudaEngine

        engine, reason = CudaEngine(network, game.planes_shape, device), "there is a GPU"
    else:
        engine, reason = TorchEngine(network, game.planes_shape), without_openvino
    return engine, f"{engine.describe} ({f'auto: {reason}' if wanted == 'auto' else 'as configured'})"
