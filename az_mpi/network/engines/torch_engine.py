"""Inference with PyTorch on a CPU, in bf16 or fp32: the network is traced once."""

import warnings

import numpy as np
import torch

from az_mpi.games.base import Game
from az_mpi.network.engines.engine import Engine, load_weights, pieces, played

# Larger batches are no faster on a core: their activations do not fit its cache.
PIECE, STEP = 64, 4
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def has_bf16(device: torch.device) -> bool:
    """Return whether a device multiplies bf16 in hardware; a CPU does with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


class TorchEngine(Engine):
    """PyTorch on the CPU, with as many threads as torch is set to."""

    def __init__(self, network: torch.nn.Module, game: Game, precision: str):
        self.dtype = DTYPES[precision]
        self.describe = f"torch cpu {precision}"
        self._planes_shape = game.planes_shape
        network = played(network).cpu().to(self.dtype, memory_format=torch.channels_last)
        example = torch.zeros((STEP, *game.planes_shape), dtype=self.dtype)
        # Traced once: torch never frees a trace. Not frozen: the weights of a frozen network cannot be replaced.
        with torch.inference_mode(), warnings.catch_warnings():
            # The successor of traces, torch.compile, needs a C++ compiler and half a minute on every node.
            warnings.simplefilter("ignore", DeprecationWarning)
            # strict=False: the outputs are a dict.
            network = network.eval().requires_grad_(False)
            self._network = torch.jit.trace(network, example, strict=False, check_trace=False)

    @torch.inference_mode()
    def load(self, network: torch.nn.Module) -> None:
        load_weights(self._network, network)

    @torch.inference_mode()
    def evaluate(self, planes: np.ndarray) -> dict[str, np.ndarray]:
        parts = []
        threads = torch.get_num_threads()
        for start, end, size in pieces(len(planes), PIECE * threads, STEP * threads):
            x = torch.zeros((size, *self._planes_shape), dtype=self.dtype)
            x[: end - start] = torch.from_numpy(planes[start:end])
            outputs = self._network(x.contiguous(memory_format=torch.channels_last))
            parts.append({name: output[: end - start].float().numpy() for name, output in outputs.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
