"""Inference with PyTorch on a GPU, bf16 or fp32: one CUDA graph for each size of a batch."""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from az_mpi.games.base import Game
from az_mpi.liveness import watchdog
from az_mpi.network.engines.engine import load_weights, played
from az_mpi.network.engines.fused import fused
from az_mpi.network.engines.queued_engine import LARGEST, Lane, QueuedEngine, queued_size
from az_mpi.network.engines.torch_engine import DTYPES


class CudaEngine(QueuedEngine):
    """PyTorch on one GPU. All work is queued on one stream, so the graphs can share their working memory."""

    def __init__(self, network: torch.nn.Module, game: Game, device: torch.device, precision: str):
        self.device = torch.device(device)
        self._dtype = DTYPES[precision]
        self.describe = f"torch cuda graphs {precision}"
        self._network = played(network).to(self.device, self._dtype, memory_format=torch.channels_last).eval()
        self._planes_shape = game.planes_shape
        self._planes_dtype = torch.from_numpy(np.empty(0, game.planes_dtype)).dtype
        self._stream = torch.cuda.Stream(self.device)
        self._stream.wait_stream(torch.cuda.current_stream(self.device))  # that one copies the weights
        with torch.inference_mode(), torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            two = torch.zeros((2, *game.planes_shape), dtype=self._dtype, device=self.device)
            two = two.contiguous(memory_format=torch.channels_last)
            shapes = {name: output.shape[1:] for name, output in self._network(two).items()}
            # torch does not make these operations of cuDNN deterministic, and AMD's GPUs lack them.
            whole = torch.are_deterministic_algorithms_enabled() or torch.version.hip
            self._computed = self._network if whole else fused(self._network, two)
        self._graphs = {}
        self._pool = torch.cuda.graph_pool_handle()
        super().__init__(game, shapes, pinned=True)

    @torch.inference_mode()
    def prepare(self, largest: int) -> None:
        # A capture waits for the whole device and empties torch's cache of memory: better now than in play.
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            for size in sorted({queued_size(n) for n in range(1, min(largest, LARGEST) + 1)}):
                self._graph(size)

    @torch.inference_mode()
    def load(self, network: torch.nn.Module) -> None:
        # In place: the graphs read these very tensors. The current stream may still be computing the new weights.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            load_weights(self._network, network)
        with watchdog.brief():
            self._stream.synchronize()

    def room(self, num: int) -> np.ndarray:
        with torch.cuda.device(self.device):  # page-locked memory belongs to a device's context
            return super().room(num)

    @torch.inference_mode()
    def _queue(self, lane: Lane, cuts: Iterator[tuple[slice, int]]) -> Callable[[], None]:
        done = torch.cuda.Event()
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            for rows, size in cuts:
                graph = self._graph(size)
                graph.planes.copy_(lane.planes[rows], non_blocking=True)
                graph.graph.replay()
                for name, output in graph.outputs.items():
                    lane.outputs[name][rows].copy_(output, non_blocking=True)
            done.record(self._stream)

        def wait():
            with watchdog.brief():
                done.synchronize()

        return wait

    def _graph(self, size):
        if size not in self._graphs:
            x = torch.zeros((size, *self._planes_shape), dtype=self._planes_dtype, device=self.device)
            with _convolutions():
                self._graphs[size] = _Graph(self._computed, x, self._dtype, self._stream, self._pool)
        return self._graphs[size]


def _convolutions():
    """Return a context in which cuDNN times its kernels and takes the fastest, except in a deterministic run, and in
    which fp32 is not TF32, as torch has it by default."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=not deterministic, deterministic=deterministic, allow_tf32=False
    )


class _Graph:
    """The network as a CUDA graph for the batch size of `planes`, on the device."""

    def __init__(self, network, planes, dtype, stream, pool) -> None:
        self.planes = planes

        def forward():
            x = self.planes.to(dtype).contiguous(memory_format=torch.channels_last)
            return {name: output.float() for name, output in network(x).items()}

        for _ in range(3):  # cuDNN times and chooses its kernels before the capture
            forward()
        stream.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, stream=stream):
            self.outputs = forward()
