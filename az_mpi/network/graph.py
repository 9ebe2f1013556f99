"""A network as a list of plain operations with their weights, for programs without torch.

torch.fx records what the network does. OPERATIONS says what it may consist of.
"""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx

INPUT = "planes"
TORCH = {"torch"}  # folders of its sources
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

    Raises ValueError for an operation that OPERATIONS lacks, which a user's own block or head may have. The text names
    it and says where it is."""
    made = []
    outputs = {}
    for node in _traced(network).nodes:
        if node.op == "output":
            outputs = {name: _output(name, result) for name, result in node.args[0].items()}
        elif node.op != "placeholder" and node.target not in SAME:
            made.append(_operation(node, network))
    return made, outputs


def _traced(network):
    try:
        return fx.Tracer().trace(network)
    except Exception as error:  # of torch, or of a user's own class
        *_, last = (
            frame for frame in traceback.extract_tb(error.__traceback__) if not TORCH & set(Path(frame.filename).parts)
        )
        where = f"{Path(last.filename).name}, line {last.lineno} ({last.line})"
        why = "what is computed depends on values or shapes" if isinstance(error, fx.proxy.TraceError) else error
        raise ValueError(f"{where}: {why}") from error


def _output(name, result):
    if not isinstance(result, fx.Node):
        raise ValueError(f"the output {name} is {type(result).__name__}, not one tensor")
    return _name(result)


def _name(node):
    """Return the name of a result. A point in it keeps it apart from the names of outputs."""
    if node.target in SAME:
        return _name(node.args[0])
    return INPUT if node.op == "placeholder" else f"{node.name}.out"


def _operation(node, network):
    """Return the Operation of a node. Raises ValueError, which names it and its place in the network."""
    layer = network.get_submodule(node.target) if node.op == "call_module" else None
    kind = type(layer).__name__ if layer else getattr(node.target, "__name__", node.target)
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    where = f"{kind} in {node.target if layer else stack[-1][0] if stack else 'the network'}"
    if node.op == "get_attr":
        raise ValueError(f"{kind} is a tensor that is used outside of a layer")
    if kind not in OPERATIONS:
        raise ValueError(f"{where} is not among the operations that a file can have: {allowed()}")
    how, read = OPERATIONS[kind]
    try:
        if layer is not None:
            tensors = {
                f"{node.target}.{name}": tensor.detach().float().cpu().numpy()
                for name, tensor in layer.named_parameters()
            }
            return Operation(kind, _name(node), [_name(node.args[0])], read(layer), tensors)
        inputs, settings = read(*node.args, **node.kwargs)
        if not all(isinstance(one, fx.Node) for one in inputs):
            raise ValueError("it takes a constant")
        return Operation(kind, _name(node), [_name(one) for one in inputs], settings, {})
    except (TypeError, ValueError) as error:  # TypeError: other arguments than `read` has
        told = f" ({error})" if isinstance(error, ValueError) else ""
        raise ValueError(f"{where} is used in another way than a file can have: {how}{told}") from error


def allowed() -> str:
    """Return all operations that a file can have, in words."""
    return ", ".join(how for how, _ in OPERATIONS.values())


def needed(made: list[Operation], results: set[str]) -> list[Operation]:
    """Return the operations that these results need, in order."""
    found = []
    wanted = set(results)
    for operation in reversed(made):
        if operation.output in wanted:
            found.append(operation)
            wanted |= set(operation.inputs)
    return found[::-1]


def _conv(layer):
    if layer.groups > 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise ValueError("it has groups, or other padding")
    return {"strides": list(layer.stride), "padding": list(layer.padding), "dilation": list(layer.dilation)}


def _axes(x, dim, keepdim=False):
    return [x], {"axes": [dim] if isinstance(dim, int) else list(dim), "keepdims": int(keepdim)}


def _maxima(x, size, **_):
    if size != 1:
        raise ValueError(f"its size is {size}")
    return [x], {"axes": [2, 3], "keepdims": 1}


def _flatten(x, start_dim):
    if start_dim != 1:
        raise ValueError(f"it begins with dimension {start_dim}")
    return [x], {"axis": 1}


def _select(x, dim, index):
    if dim != 1:
        raise ValueError(f"it selects from dimension {dim}")
    return [x], {"axis": 1, "index": index}


# By name: (how it is written, its reader). Readers of layers: the layer -> settings. Those of functions and methods of
# torch: their arguments -> (inputs, settings).
OPERATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "Conv2d": ("Conv2d without groups, padded by zeros", _conv),
    "Linear": ("Linear on [batch, features]", lambda layer: {}),
    "relu": ("relu(x)", lambda x, inplace=False: ([x], {})),
    "tanh": ("tanh(x)", lambda x: ([x], {})),
    "sigmoid": ("sigmoid(x)", lambda x: ([x], {})),
    "softmax": ("softmax(x, dim)", lambda x, dim, **_: ([x], {"axis": dim})),
    "add": ("x + y", lambda x, y: ([x, y], {})),
    "mul": ("x * y", lambda x, y: ([x, y], {})),
    "flatten": ("x.flatten(1)", _flatten),
    "select": ("x.select(1, index) on [batch, features]", _select),
    "squeeze": ("x.squeeze(dim)", lambda x, dim: ([x], {"axes": [dim]})),
    "cat": ("cat([x, y], dim)", lambda parts, dim=0: (list(parts), {"axis": dim})),
    "permute": (
        "x.permute(dims)",
        lambda x, *dims: ([x], {"axes": list(dims) if isinstance(dims[0], int) else list(dims[0])}),
    ),
    "amax": ("x.amax(dim)", _axes),
    "adaptive_max_pool2d": ("adaptive_max_pool2d(x, 1)", _maxima),
    "mean": ("x.mean(dim)", _axes),
}
