"""A network as a list of plain operations with their weights, for programs without torch.

torch.fx records what the network does. OPERATIONS says what it may consist of.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx

INPUT = "planes"
SAME = ("contiguous", "float")  # methods that change no number: the order in memory, and the type in training


class Operation(NamedTuple):
    """One step. kind: a key of OPERATIONS. output: the name of its result. inputs: names of earlier results, or INPUT.
    settings: whole numbers and lists of them, by name. tensors: float32 arrays by their names in the network's state,
    the weight, then the bias if there is one."""

    kind: str
    output: str
    inputs: list[str]
    settings: dict[str, Any]
    tensors: dict[str, np.ndarray]


def operations(network: torch.nn.Module) -> tuple[list[Operation], dict[str, str]]:
    """Return (the operations in order, {name of an output of the network: the result that it is}).

    Raises ValueError for an operation that OPERATIONS lacks, which a user's own head may have."""
    made, outputs = [], {}
    for node in fx.Tracer().trace(network).nodes:
        if node.op == "output":
            outputs = {name: _name(result) for name, result in node.args[0].items()}
        elif node.op != "placeholder" and node.target not in SAME:
            made.append(_operation(node, network))
    return made, outputs


def _name(node):
    """Return the name of a result. A point in it keeps it apart from the names of outputs."""
    if node.target in SAME:
        return _name(node.args[0])
    return INPUT if node.op == "placeholder" else f"{node.name}.out"


def _operation(node, network):
    layer = network.get_submodule(node.target) if node.op == "call_module" else None
    kind = type(layer).__name__ if layer else getattr(node.target, "__name__", node.target)
    if kind not in OPERATIONS:
        raise ValueError(f"{kind} is not among {', '.join(OPERATIONS)}")
    tensors = {} if layer is None else {
        f"{node.target}.{name}": tensor.detach().float().cpu().numpy() for name, tensor in layer.named_parameters()}
    if layer is not None:
        return Operation(kind, _name(node), [_name(node.args[0])], OPERATIONS[kind](layer), tensors)
    inputs, settings = OPERATIONS[kind](*node.args, **node.kwargs)
    if not all(isinstance(one, fx.Node) for one in inputs):
        raise ValueError(f"{kind} takes a constant")
    return Operation(kind, _name(node), [_name(one) for one in inputs], settings, tensors)


def needed(made: list[Operation], results: set[str]) -> list[Operation]:
    """Return the operations that these results need, in order."""
    found, wanted = [], set(results)
    for operation in reversed(made):
        if operation.output in wanted:
            found.append(operation)
            wanted |= set(operation.inputs)
    return found[::-1]


def _conv(layer):
    if layer.groups > 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise ValueError("a convolution has groups, or other padding than a number of zeros")
    return {"strides": list(layer.stride), "padding": list(layer.padding), "dilation": list(layer.dilation)}


def _axes(x, dim, keepdim=False):
    return [x], {"axes": [dim] if isinstance(dim, int) else list(dim), "keepdims": int(keepdim)}


def _maxima(x, size, **_):
    if size != 1:
        raise ValueError(f"adaptive_max_pool2d has size {size}; allowed: 1, the whole board")
    return [x], {"axes": [2, 3], "keepdims": 1}


# Layers: function of the layer -> settings. Functions and methods of torch: their arguments -> (inputs, settings).
OPERATIONS: dict[str, Callable[..., Any]] = {
    "Conv2d": _conv,
    "Linear": lambda layer: {},
    "relu": lambda x, inplace=False: ([x], {}),
    "tanh": lambda x: ([x], {}),
    "sigmoid": lambda x: ([x], {}),
    "softmax": lambda x, dim, **_: ([x], {"axis": dim}),
    "add": lambda x, y: ([x, y], {}),
    "mul": lambda x, y: ([x, y], {}),
    "flatten": lambda x, start_dim: ([x], {"axis": start_dim}),
    "squeeze": lambda x, dim: ([x], {"axes": [dim]}),
    "cat": lambda parts, dim=0: (list(parts), {"axis": dim}),
    "permute": lambda x, *dims: ([x], {"axes": list(dims) if isinstance(dims[0], int) else list(dims[0])}),
    "amax": _axes,
    "adaptive_max_pool2d": _maxima,
    "mean": _axes,
}
