"""Inference with PyTorch on a processor, traced: bf16 where it has the instructions, else fp32."""

import copy
import warnings

import numpy as np
import torch

from az_mpi.network.engines.engine import Engine, pieces

# Larger batches are no faster on a core, and their activations leave its cache.
PIECE, STEP = 64, 4
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def has_bf16(device):
    """Return whether a torch device multiplies bf16 in hardware; a processor does with AVX512-BF16 or AMX."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def has_int8():
    """Return whether the processor multiplies 8-bit integers in hardware: with AVX512-VNNI or AMX."""
    return torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported()


class TorchEngine(Engine):
    """PyTorch on the processor, with torch's threads."""

    def __init__(self, network, planes_shape, precision):
        self.dtype, self.describe = DTYPES[precision], f"torch cpu {precision}"
        self._planes_shape = planes_shape
        network = copy.deepcopy(network).cpu().to(self.dtype, memory_format=torch.channels_last)
        example = torch.zeros((STEP, *planes_shape), dtype=self.dtype)
        # Once: torch never frees a trace. Not frozen: a frozen network's weights could not be replaced.
        with torch.inference_mode(), warnings.catch_warnings():
            # What is to follow traces, torch.compile, wants a C++ compiler and half a minute on every node.
            warnings.simplefilter("ignore", DeprecationWarning)
            # Not strict: the outputs are a dict.
            network = network.eval().requires_grad_(False)
            self._network = torch.jit.trace(network, example, strict=False, check_trace=False)

    @torch.inference_mode()
    def load(self, network):
        self._network.load_state_dict(network.state_dict())

    @torch.inference_mode()
    def evaluate(self, planes):
        parts, threads = [], torch.get_num_threads()
        for start, end, size in pieces(len(planes), PIECE * threads, STEP * threads):
            x = torch.zeros((size, *self._planes_shape), dtype=self.dtype)
            x[: end - start] = torch.from_numpy(planes[start:end])
            outputs = self._network(x.contiguous(memory_format=torch.channels_last))
            parts.append({name: output[: end - start].float().numpy() for name, output in outputs.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
