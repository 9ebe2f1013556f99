"""Inference with OpenVINO on a processor, in bf16 or fp32.

The only module that imports it. The network is given to OpenVINO layer by layer, with its weights as constants, and
compiled: a tenth of a second for 10 blocks of 128 channels, against 2 to 4 s for OpenVINO's own conversion of a traced
network, so new weights are simply compiled again.
"""

import numpy as np

from az_mpi.network.engines.engine import Engine, pieces
from az_mpi.network.heads import SEARCHED

HINTS = {"fp32": "f32", "bf16": "bf16"}  # OpenVINO's names
# One batch of self-play in one piece; every change of size costs some 50 us.
PIECE, STEP = 128, 4


def missing():
    """Return why OpenVINO cannot be used here, or None."""
    try:
        import openvino  # noqa: F401
    except (ImportError, OSError) as error:
        return f"OpenVINO cannot be imported: {error}"
    return None


class OpenVinoEngine(Engine):
    """OpenVINO on the processor, with `threads` threads."""

    def __init__(self, network, planes_shape, threads, precision):
        import openvino

        self.describe = f"openvino cpu {precision}"
        self._core, self._planes_shape = openvino.Core(), planes_shape
        self._options = {
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # mpirun and Slurm bind; two ranks must not choose the same cores
        }
        self._piece, self._step = PIECE * threads, STEP * threads
        self._planes = np.zeros((self._piece, *planes_shape), np.uint8)
        sizes = range(self._step, self._piece + 1, self._step)
        self._inputs = {size: openvino.Tensor(self._planes[:size], shared_memory=True) for size in sizes}
        self._names = SEARCHED
        self.load(network)

    def load(self, network):
        compiled = self._core.compile_model(_model(network, self._planes_shape), "CPU", self._options)
        self._request = compiled.create_infer_request()

    def evaluate(self, planes):
        parts = []
        for start, end, size in pieces(len(planes), self._piece, self._step):
            self._planes[: end - start] = planes[start:end]
            self._request.set_input_tensor(self._inputs[size])
            self._request.infer()
            outputs = [self._request.get_output_tensor(k).data[: end - start].copy() for k in range(len(self._names))]
            parts.append(dict(zip(self._names, outputs)))
        return {name: np.concatenate([part[name] for part in parts]) for name in self._names}


def _model(network, planes_shape):
    """Return `resnet.ResNet.forward` as an OpenVINO model of planes uint8 [B, C, H, W]."""
    from openvino import Model
    from openvino import opset15 as ops

    def constant(weight, *shape):
        array = weight.detach().cpu().numpy()
        return ops.constant(array.reshape(shape) if shape else array.copy())

    def conv(x, layer):
        x = ops.convolution(x, constant(layer.weight), [1, 1], layer.padding, layer.padding, [1, 1])
        return ops.add(x, constant(layer.bias, 1, -1, 1, 1))

    def linear(x, layer):
        return ops.add(ops.matmul(x, constant(layer.weight), False, True), constant(layer.bias, 1, -1))

    def flat(x):
        return ops.reshape(x, ops.constant(np.array([0, -1])), True)

    planes = ops.parameter([-1, *planes_shape], np.uint8)
    x = ops.relu(conv(ops.convert(planes, np.float32), network.stem))
    for block in network.tower:
        x = ops.relu(ops.add(x, conv(ops.relu(conv(x, block.first)), block.second)))
    policy, value = network.heads["policy"], network.heads["value"]
    logits = linear(flat(ops.relu(conv(x, policy.conv))), policy.out)
    hidden = ops.relu(linear(flat(ops.relu(conv(x, value.conv))), value.hidden))
    return Model([logits, ops.squeeze(ops.tanh(linear(hidden, value.out)), ops.constant(np.array([1])))], [planes])
