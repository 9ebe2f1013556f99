"""What an inference engine is, and how batches are cut to the few sizes that engines prepare their kernels for."""


import numpy as np

CALIBRATION_NUM = 96  # positions for `Engine.calibrate`


class Engine:
    """A network on a device, ready to evaluate. Made with those of these arguments that it names: network (a `ResNet`),
    game, planes_shape, device (of torch), threads (on a processor), precision ("auto", "fp32", "bf16", "int8"), timed
    (whether "auto" may measure which one is the fastest).

    describe: library, device and precision in words. choice: these with the reason, for the start-up table. precision:
    what "auto" chose, None where the engine does not tell. figures: numbers of the weights loaded last, for metrics.
    remark: what is to be logged of these weights, "" for nothing.
    """

    describe: str
    choice = ""
    precision: str | None = None
    figures: dict[str, float] = {}
    remark = ""
    in_background = False  # whether `begin` returns while the device is still at work

    def calibrate(self, planes: np.ndarray) -> None:
        """Take positions of newly played games, uint8 [CALIBRATION_NUM, C, H, W], the same ones on every rank. Called
        before `load`; for engines that measure ranges of numbers."""

    def load(self, network):
        """Take over the weights of `network`, a `ResNet` on any device."""
        raise NotImplementedError

    def evaluate(self, planes):
        """Return {name of an output: float32 [B, …]} of planes uint8 [B, C, H, W]: the network's outputs."""
        return self.begin(planes)()

    def begin(self, planes):
        """Begin to evaluate planes and return a function that waits for the result and returns it. Batches are
        completed in the order in which they were begun; at most two are under way."""
        result = self.evaluate(planes)
        return lambda: result


def pieces(n, largest, step):
    """Yield (start, end, size): a batch of n as pieces of `largest` positions and a rest, each to be filled up to
    `size`, a multiple of `step`: largest / step sizes in all."""
    for start in range(0, n, largest):
        end = min(start + largest, n)
        yield start, end, -(-(end - start) // step) * step
