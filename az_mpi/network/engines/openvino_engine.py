"""Inference with OpenVINO on a CPU, in fp32 or bf16, or with the tower in int8.

The only module that imports openvino. torch.fx describes the network as a graph of operations, once. For each new set
of weights this graph is made into an OpenVINO model, with the weights as constants, and compiled. That takes 0.1 s for
10 blocks of 128 channels; OpenVINO's own conversion of a traced network takes 2 to 4 s.
"""

import functools
from typing import Any

import numpy as np
import torch
from torch import fx

from az_mpi.games.base import Game
from az_mpi.network.engines import int8
from az_mpi.network.engines.engine import Engine, pieces, played

HINTS = {"fp32": "f32", "bf16": "bf16"}  # OpenVINO's names
# PIECE holds a whole batch of self-play: every change of size costs about 50 us.
PIECE, STEP = 128, 4


def missing(network: torch.nn.Module, game: Game) -> str | None:
    """Return why OpenVINO cannot evaluate this network here, or None."""
    try:
        import openvino  # noqa: F401
    except (ImportError, OSError) as error:
        return f"OpenVINO cannot be imported: {error}"
    try:
        _model(fx.Tracer().trace(played(network)), network, game, {})
    except Exception as error:  # a user's own head may compute anything
        return f"the network cannot be described for OpenVINO: {error}"
    return None


class OpenVinoEngine(Engine):
    """OpenVINO on the CPU, with `threads` threads."""

    def __init__(self, network: torch.nn.Module, game: Game, threads: int, precision: str):
        import openvino

        self.describe = f"openvino cpu {precision}"
        self._core = openvino.Core()
        self._game = game
        self._options = {
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # mpirun and Slurm bind ranks; OpenVINO could pin two to one core
        }
        self._piece = PIECE * threads
        self._step = STEP * threads
        self._tensor = functools.partial(openvino.Tensor, shared_memory=True)
        self._planes = np.zeros((0, *game.planes_shape), game.planes_dtype)
        self._filled: np.ndarray | None = None  # what `room` returned last
        self._graph = fx.Tracer().trace(played(network))
        self._names = list(next(iter(reversed(self._graph.nodes))).args[0])  # of the outputs
        self.load(network)

    def load(self, network: torch.nn.Module) -> None:
        self._compile(network, {})

    def _compile(self, network, ranges):
        model = _model(self._graph, network, self._game, ranges)
        self._request = self._core.compile_model(model, "CPU", self._options).create_infer_request()

    def room(self, num: int) -> np.ndarray:
        if num > len(self._planes):
            whole = -(-num // self._piece) * self._piece, *self._planes.shape[1:]
            self._planes = np.zeros(whole, self._planes.dtype)
            self._inputs: dict[tuple[int, int], Any] = {}
        self._filled = self._planes[:num]
        return self._filled

    def _input(self, start, size):
        """Return these rows of `_planes` as a tensor of OpenVINO."""
        if (start, size) not in self._inputs:
            self._inputs[start, size] = self._tensor(self._planes[start : start + size])
        return self._inputs[start, size]

    def evaluate(self, planes: np.ndarray) -> dict[str, np.ndarray]:
        if planes is not self._filled:
            self.room(len(planes))[:] = planes
        parts = []
        for start, end, size in pieces(len(planes), self._piece, self._step):
            self._request.set_input_tensor(self._input(start, size))
            self._request.infer()
            outputs = [self._request.get_output_tensor(k).data[: end - start].copy() for k in range(len(self._names))]
            parts.append(dict(zip(self._names, outputs)))
        return {name: np.concatenate([part[name] for part in parts]) for name in self._names}


class Int8Engine(OpenVinoEngine):
    """OpenVINO on the CPU, with the tower's convolutions in 8-bit integers: see int8.py.

    Weights whose errors there are above KL_MAX or VALUE_ERROR_MAX are evaluated in `rest`, and `remark` says so."""

    calibrates = True

    def __init__(self, network: torch.nn.Module, game: Game, threads: int, rest: str, planes: np.ndarray):
        """rest: the precision of all other layers, "fp32" or "bf16". planes: calibration positions."""
        self._rest, self._num_players = rest, game.num_players
        self._calibration, self._legal = planes, np.ones((len(planes), 1), np.bool_)
        super().__init__(network, game, threads, rest)
        self.describe = "openvino cpu int8"

    def calibrate(self, planes: np.ndarray, legal: np.ndarray) -> None:
        self._calibration, self._legal = planes, legal

    def load(self, network: torch.nn.Module) -> None:
        ranges, exact = int8.measure(self._graph, network, self._calibration)
        self._compile(network, ranges)
        measured = slice(int8.NUM_RANGES, None)
        found, legal = self.evaluate(self._calibration[measured]), self._legal[measured]
        self.figures = int8.errors(found, exact, legal, self._num_players)
        self.remark = ""
        if problem := int8.problem(self.figures):
            self.remark = f"plays with these weights in {self._rest}: {problem}"
            self._compile(network, {})


def _model(graph, network, game, ranges):
    """Return the OpenVINO model, for a game's planes [B, C, H, W], of a torch.fx graph with the weights of `network`.

    ranges: {node: its maximum}, of the nodes that convolutions read in 8-bit integers; {} if none do. Raises ValueError
    for an operation that OPERATIONS lacks."""
    from openvino import Model, opset15

    planes = opset15.parameter([-1, *game.planes_shape], game.planes_dtype.type)
    made = {}
    outputs = {}
    in_int8 = int8.convolutions(graph, network) if ranges else {}
    for node in graph.nodes:
        arguments, options = fx.node.map_arg((node.args, node.kwargs), made.get)
        if node.op == "placeholder":
            made[node] = opset15.convert(planes, np.float32)
        elif node.op == "output":
            outputs = arguments[0]
        elif node.op == "call_module":
            layer = network.get_submodule(node.target)
            make = _int8_conv if node in in_int8 else _known(type(layer).__name__)
            made[node] = make(opset15, layer, *arguments, **options)
        else:
            made[node] = _known(getattr(node.target, "__name__", node.target))(opset15, *arguments, **options)
        if node in ranges:
            low, high = (opset15.constant(np.float32(bound)) for bound in (0, ranges[node]))
            made[node] = opset15.fake_quantize(made[node], low, high, low, high, 256)
    return Model(list(outputs.values()), [planes])


def _known(name):
    if name not in OPERATIONS:
        raise ValueError(f"{name} is not among {', '.join(OPERATIONS)}")
    return OPERATIONS[name]


def _constant(ops, weight, *shape):
    array = weight.detach().cpu().numpy()
    return ops.constant(array.reshape(shape) if shape else array.copy())


def _conv(ops, layer, x):
    return _convolved(ops, layer, x, _constant(ops, layer.weight))


def _int8_conv(ops, layer, x):
    weight, scale = int8.quantised(layer.weight, int8.weight_steps())
    return _convolved(ops, layer, x, ops.multiply(ops.convert(ops.constant(weight), np.float32), ops.constant(scale)))


def _convolved(ops, layer, x, weight):
    if layer.groups > 1 or layer.padding_mode != "zeros":
        raise ValueError("a convolution has groups, or other padding than zeros")
    x = ops.convolution(x, weight, layer.stride, layer.padding, layer.padding, layer.dilation)
    return x if layer.bias is None else ops.add(x, _constant(ops, layer.bias, 1, -1, 1, 1))


def _linear(ops, layer, x):
    x = ops.matmul(x, _constant(ops, layer.weight), False, True)
    return x if layer.bias is None else ops.add(x, _constant(ops, layer.bias, 1, -1))


def _maxima(ops, x, size, **_):
    if size != 1:
        raise ValueError(f"adaptive_max_pool2d has size {size}; allowed: 1, the whole board")
    return ops.reduce_max(x, ops.constant(np.array([2, 3])), True)


# What tower and heads may consist of: layers, functions and methods of torch, by name.
OPERATIONS = {
    "Conv2d": _conv,
    "Linear": _linear,
    "relu": lambda ops, x, inplace=False: ops.relu(x),
    "tanh": lambda ops, x: ops.tanh(x),
    "softmax": lambda ops, x, dim, **_: ops.softmax(x, dim),
    "sigmoid": lambda ops, x: ops.sigmoid(x),
    "add": lambda ops, x, y: ops.add(x, y),
    "mul": lambda ops, x, y: ops.multiply(x, y),
    "flatten": lambda ops, x, start_dim: ops.reshape(x, ops.constant(np.array([0] * start_dim + [-1])), True),
    "select": lambda ops, x, dim, index: ops.gather(x, ops.constant(np.int64(index)), ops.constant(np.int64(dim))),
    "squeeze": lambda ops, x, dim: ops.squeeze(x, ops.constant(np.array([dim]))),
    "cat": lambda ops, parts, dim=0: ops.concat(list(parts), dim),
    "permute": lambda ops, x, *dims: ops.transpose(x, ops.constant(np.array(dims).reshape(-1))),
    "amax": lambda ops, x, dim, keepdim=False: ops.reduce_max(x, ops.constant(np.array(dim)), keepdim),
    "adaptive_max_pool2d": _maxima,
    "contiguous": lambda ops, x: x,
    "float": lambda ops, x: x,
    "mean": lambda ops, x, dim, keepdim=False: ops.reduce_mean(x, ops.constant(np.array(dim)), keepdim),
}
