"""A network as an ONNX file, written and read without ONNX's own library, which is a wrapper for the few messages here.

ONNX is Protocol Buffers: a message is a row of fields, each with a number, a wire type and a value
(https://protobuf.dev/programming-guides/encoding; the numbers are those of onnx.proto).
"""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from az_mpi.network.graph import INPUT, Operation

OPSET, IR_VERSION = 17, 8  # of 2022: all of today's programs read them
FLOAT, INT64 = 1, 7  # types of tensors
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
BATCH = "batch"
OPS = {
    "Conv2d": "Conv",
    "Linear": "Gemm",
    "relu": "Relu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
    "add": "Add",
    "mul": "Mul",
    "flatten": "Flatten",
    "select": "Gather",
    "squeeze": "Squeeze",
    "cat": "Concat",
    "permute": "Transpose",
    "amax": "ReduceMax",
    "adaptive_max_pool2d": "ReduceMax",
    "mean": "ReduceMean",
}
INPUTS = {"squeeze": "axes", "select": "index"}  # settings that ONNX reads from an input


def write(
    operations: list[Operation],
    outputs: dict[str, tuple[str, list[int]]],
    planes_shape: tuple[int, ...],
    about: dict[str, str],
) -> bytes:
    """Return the content of an ONNX file: input "planes", float32 [batch, C, H, W]; outputs float32 [batch, …].

    outputs: {name: (the result of an operation, its shape after the batch)}. about: the file's metadata.
    """
    rename = {result: name for name, (result, _) in outputs.items()}
    graph = b""
    for operation in operations:
        graph += _bytes(1, _node(operation, rename))
    graph += _bytes(2, "az_mpi")
    for operation in operations:
        for name, array in operation.tensors.items():
            graph += _bytes(5, _tensor(name, array.astype("<f4"), FLOAT))
        if setting := INPUTS.get(operation.kind):
            graph += _bytes(5, _tensor(_input_of(operation), np.array(operation.settings[setting], "<i8"), INT64))
    graph += _bytes(11, _value(INPUT, planes_shape))
    graph += b"".join(_bytes(12, _value(name, shape)) for name, (_, shape) in outputs.items())
    model = _number(1, IR_VERSION) + _bytes(2, "az_mpi") + _bytes(3, about["az_mpi"]) + _bytes(7, graph)
    model += _bytes(8, _bytes(1, "") + _number(2, OPSET))
    return model + b"".join(_bytes(14, _bytes(1, key) + _bytes(2, value)) for key, value in about.items())


def read(content: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return ({name: float32 tensor} of a file's weights, its metadata). Raises ValueError if it is no ONNX file."""
    weights: dict[str, torch.Tensor] = {}
    about = {}
    try:
        for number, value in _fields(content):
            if number == 7:
                tensors = [dict_of(tensor) for field, tensor in _fields(value) if field == 5]
                for tensor in tensors:
                    if tensor[2] == [FLOAT]:
                        array = np.frombuffer(tensor[9][0], "<f4").reshape(tensor.get(1, []))
                        weights[tensor[8][0].decode()] = torch.from_numpy(array.copy())
            elif number == 14:
                entry = dict_of(value)
                about[entry[1][0].decode()] = entry[2][0].decode()
    except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"it is no ONNX file: {type(error).__name__}") from error
    return weights, about


def dict_of(message: bytes) -> dict[int, list[Any]]:
    """Return the fields of a message: {number: values}."""
    found: dict[int, list[Any]] = {}
    for number, value in _fields(message):
        found.setdefault(number, []).append(value)
    return found


def _node(operation, rename):
    """Return the ONNX node of an operation."""
    kind = operation.kind
    settings = dict(operation.settings)
    inputs = list(operation.inputs)
    if setting := INPUTS.get(kind):
        del settings[setting]
        inputs = [*inputs, _input_of(operation)]
    elif kind == "Conv2d":
        settings = {"strides": settings["strides"], "pads": 2 * settings["padding"], "dilations": settings["dilation"]}
    elif kind == "Linear":
        settings = {"transB": 1}
    elif kind == "permute":
        settings = {"perm": settings["axes"]}
    names = [rename.get(name, name) for name in (*inputs, *operation.tensors)]
    output = rename.get(operation.output, operation.output)
    node = b"".join(_bytes(1, name) for name in names) + _bytes(2, output) + _bytes(3, operation.output)
    node += _bytes(4, OPS[kind]) + b"".join(_bytes(5, _attribute(*item)) for item in settings.items())
    return node


def _input_of(operation):
    return f"{operation.output}.{INPUTS[operation.kind]}"


def _attribute(name, value):
    if isinstance(value, int):
        return _bytes(1, name) + _number(3, value) + _number(20, 2)
    return _bytes(1, name) + b"".join(_number(8, one) for one in value) + _number(20, 7)


def _tensor(name, array, kind):
    dims = b"".join(_number(1, size) for size in array.shape)
    return dims + _number(2, kind) + _bytes(8, name) + _bytes(9, array.tobytes())


def _value(name, shape):
    dims = _bytes(1, _bytes(2, BATCH)) + b"".join(_bytes(1, _number(1, size)) for size in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, FLOAT) + _bytes(2, dims)))


def _varint(number):
    number &= 2**64 - 1  # negative numbers as their two's complement
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _number(field, value):
    return _varint(field << 3 | VARINT) + _varint(value)


def _bytes(field, value):
    value = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | BYTES) + _varint(len(value)) + value


def _read_varint(message, at):
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at = at + 1
        shift = shift + 7
        if byte < 0x80:
            return number, at


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of a message's fields: numbers as int, the others as bytes. Raises ValueError."""
    view = memoryview(message)
    at = 0
    while at < len(view):
        key, at = _read_varint(view, at)
        if key & 7 == VARINT:
            value, at = _read_varint(view, at)
            yield key >> 3, value
            continue
        sizes = {FIXED64: 8, FIXED32: 4}
        size, at = _read_varint(view, at) if key & 7 == BYTES else (sizes[key & 7], at)
        if at + size > len(view):
            raise ValueError("it is cut off")
        yield key >> 3, bytes(view[at : at + size])
        at += size
