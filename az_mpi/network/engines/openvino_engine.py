"""Inference with OpenVINO on a CPU, in bf16 or fp32.

The only module that imports openvino. torch.fx describes the network as a graph of operations, once. For each new set
of weights this graph is made into an OpenVINO model, with the weights as constants, and compiled. That takes 0.1 s for
10 blocks of 128 channels; OpenVINO's own conversion of a traced network takes 2 to 4 s.
"""

import numpy as np
import torch
from torch import fx

from az_mpi.network.engines.engine import Engine, pieces

HINTS = {"fp32": "f32", "bf16": "bf16"}  # OpenVINO's names
# PIECE holds a whole batch of self-play: every change of size costs about 50 us.
PIECE, STEP = 128, 4


def missing(network: torch.nn.Module, planes_shape: tuple[int, ...]) -> str | None:
    """Return why OpenVINO cannot evaluate this network here, or None."""
    try:
        import openvino  # noqa: F401
    except (ImportError, OSError) as error:
        return f"OpenVINO cannot be imported: {error}"
    try:
        _model(fx.Tracer().trace(network), network, planes_shape)
    except Exception as error:  # a user's own head may compute anything
        return f"the network cannot be described for OpenVINO: {error}"
    return None


class OpenVinoEngine(Engine):
    """OpenVINO on the CPU, with `threads` threads."""

    def __init__(self, network: torch.nn.Module, planes_shape: tuple[int, int, int], threads: int, precision: str):
        import openvino

        self.describe = f"openvino cpu {precision}"
        self._core, self._planes_shape = openvino.Core(), planes_shape
        self._options = {
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # mpirun and Slurm bind ranks; OpenVINO could pin two to one core
        }
        self._piece, self._step = PIECE * threads, STEP * threads
        self._planes = np.zeros((self._piece, *planes_shape), np.uint8)
        sizes = range(self._step, self._piece + 1, self._step)
        self._inputs = {size: openvino.Tensor(self._planes[:size], shared_memory=True) for size in sizes}
        self._graph = fx.Tracer().trace(network)
        self._names = list(next(iter(reversed(self._graph.nodes))).args[0])  # of the outputs
        self.load(network)

    def load(self, network: torch.nn.Module) -> None:
        compiled = self._core.compile_model(_model(self._graph, network, self._planes_shape), "CPU", self._options)
        self._request = compiled.create_infer_request()

    def evaluate(self, planes: np.ndarray) -> dict[str, np.ndarray]:
        parts = []
        for start, end, size in pieces(len(planes), self._piece, self._step):
            self._planes[: end - start] = planes[start:end]
            self._request.set_input_tensor(self._inputs[size])
            self._request.infer()
            outputs = [self._request.get_output_tensor(k).data[: end - start].copy() for k in range(len(self._names))]
            parts.append(dict(zip(self._names, outputs)))
        return {name: np.concatenate([part[name] for part in parts]) for name in self._names}


def _model(graph, network, planes_shape):
    """Return the OpenVINO model, for planes uint8 [B, C, H, W], of a torch.fx graph with the weights of `network`.
    Raises ValueError for an operation that OPERATIONS lacks."""
    from openvino import Model, opset15

    planes, made, outputs = opset15.parameter([-1, *planes_shape], np.uint8), {}, {}
    for node in graph.nodes:
        arguments, options = fx.node.map_arg((node.args, node.kwargs), made.get)
        if node.op == "placeholder":
            made[node] = opset15.convert(planes, np.float32)
        elif node.op == "output":
            outputs = arguments[0]
        elif node.op == "call_module":
            layer = network.get_submodule(node.target)
            made[node] = _known(type(layer).__name__)(opset15, layer, *arguments, **options)
        else:
            made[node] = _known(getattr(node.target, "__name__", node.target))(opset15, *arguments, **options)
    return Model(list(outputs.values()), [planes])


def _known(name):
    if name not in OPERATIONS:
        raise ValueError(f"{name} is not among {', '.join(OPERATIONS)}")
    return OPERATIONS[name]


def _constant(ops, weight, *shape):
    array = weight.detach().cpu().numpy()
    return ops.constant(array.reshape(shape) if shape else array.copy())


def _conv(ops, layer, x):
    if layer.groups > 1:
        raise ValueError("a convolution has groups")
    x = ops.convolution(x, _constant(ops, layer.weight), layer.stride, layer.padding, layer.padding, layer.dilation)
    return x if layer.bias is None else ops.add(x, _constant(ops, layer.bias, 1, -1, 1, 1))


def _linear(ops, layer, x):
    x = ops.matmul(x, _constant(ops, layer.weight), False, True)
    return x if layer.bias is None else ops.add(x, _constant(ops, layer.bias, 1, -1))


# What tower and heads may consist of: layers, functions and methods of torch, by name.
OPERATIONS = {
    "Conv2d": _conv,
    "Linear": _linear,
    "relu": lambda ops, x, inplace=False: ops.relu(x),
    "tanh": lambda ops, x: ops.tanh(x),
    "add": lambda ops, x, y: ops.add(x, y),
    "flatten": lambda ops, x, start_dim: ops.reshape(x, ops.constant(np.array([0] * start_dim + [-1])), True),
    "squeeze": lambda ops, x, dim: ops.squeeze(x, ops.constant(np.array([dim]))),
    "mean": lambda ops, x, dim, keepdim=False: ops.reduce_mean(x, ops.constant(np.array(dim)), keepdim),
}
