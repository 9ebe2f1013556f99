"""Inference with PyTorch on a GPU, bf16 or fp32: one CUDA graph per batch size, pinned buffers, two batches at once."""

from collections.abc import Callable

import numpy as np
import torch

from az_mpi.games.base import Game
from az_mpi.liveness import watchdog
from az_mpi.network.engines.engine import Engine, load_weights, pieces, played
from az_mpi.network.engines.fused import fused
from az_mpi.network.engines.torch_engine import DTYPES

LARGEST = 4096  # positions in one graph
SMALLEST, DOUBLED_TO, STEP = 64, 512, 256  # sizes of graphs: powers of two, then multiples of STEP


class CudaEngine(Engine):
    """PyTorch on one GPU. All work is queued on one stream, so the graphs can share their working memory."""

    in_background = True

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
            self._shapes = {name: output.shape[1:] for name, output in self._network(two).items()}  # of one position
            # torch does not make these operations of cuDNN deterministic, and AMD's GPUs lack them.
            whole = torch.are_deterministic_algorithms_enabled() or torch.version.hip
            self._computed = self._network if whole else fused(self._network, two)
        self._graphs = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._lanes = [_Lane(), _Lane()]
        self._turn = 0

    @torch.inference_mode()
    def prepare(self, largest: int) -> None:
        # A capture waits for the whole device and empties torch's cache of memory: better now than in play.
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            for size in sorted({graph_size(n) for n in range(1, min(largest, LARGEST) + 1)}):
                self._graph(size)

    @torch.inference_mode()
    def load(self, network: torch.nn.Module) -> None:
        # In place: the graphs read these very tensors. The current stream may still be computing the new weights.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            load_weights(self._network, network)
        with watchdog.brief():
            self._stream.synchronize()

    @torch.inference_mode()
    def begin(self, planes: np.ndarray) -> Callable[[], dict[str, np.ndarray]]:
        n = len(planes)
        lane = self._lanes[self._turn]
        self._turn = 1 - self._turn
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            lane.reserve(-(-n // LARGEST) * LARGEST, self._planes_shape, self._planes_dtype, self._shapes)
            lane.planes[:n] = torch.from_numpy(planes)
            for start, end, _ in pieces(n, LARGEST, SMALLEST):
                graph = self._graph(graph_size(end - start))
                at = slice(start, start + len(graph.planes))
                graph.planes.copy_(lane.planes[at], non_blocking=True)
                graph.graph.replay()
                for name, output in graph.outputs.items():
                    lane.outputs[name][at].copy_(output, non_blocking=True)
            lane.done.record(self._stream)

        def complete():
            with watchdog.brief():
                lane.done.synchronize()
            return {name: output[:n].numpy().copy() for name, output in lane.outputs.items()}

        return complete

    def _graph(self, size):
        if size not in self._graphs:
            x = torch.zeros((size, *self._planes_shape), dtype=self._planes_dtype, device=self.device)
            with _convolutions():
                self._graphs[size] = _Graph(self._computed, x, self._dtype, self._stream, self._pool)
        return self._graphs[size]


def graph_size(n: int) -> int:
    """Return the size of the graph for n positions, 1 to LARGEST."""
    if n <= DOUBLED_TO:
        return max(SMALLEST, 1 << (n - 1).bit_length())
    return -(-n // STEP) * STEP


def _convolutions():
    """Return a context in which cuDNN times its kernels and takes the fastest, except in a deterministic run, and in
    which fp32 is not TF32, as torch has it by default."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=not deterministic, deterministic=deterministic, allow_tf32=False
    )


class _Lane:
    """Page-locked buffers of one batch, which the GPU reads and writes while the CPU does other work."""

    def __init__(self) -> None:
        self.planes: torch.Tensor | None = None
        self.done = torch.cuda.Event()

    def reserve(self, n, planes_shape, planes_dtype, shapes):
        """Make room for n positions, whose outputs have these shapes. The buffers must not be in use."""
        if self.planes is None or len(self.planes) < n:
            self.planes = torch.zeros((n, *planes_shape), dtype=planes_dtype, pin_memory=True)
            self.outputs = {name: torch.empty((n, *shape), pin_memory=True) for name, shape in shapes.items()}


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
