"""An engine that is as a GPU: it works in the background, on one batch after the other, and takes some time for any."""

import time
from concurrent.futures import ThreadPoolExecutor

from az_mpi.network.engines.torch_engine import TorchEngine


class PretendGpu(TorchEngine):
    in_background = True

    def __init__(self, network, game, latency_s=0.002):
        super().__init__(network, game, "fp32")
        self.describe, self.latency_s = f"a pretend GPU, {latency_s} s a batch", latency_s
        self._stream = ThreadPoolExecutor(1, "pretend-gpu")

    def begin(self, planes):
        return self._stream.submit(self._work, planes).result

    def load(self, network):
        self._stream.submit(super().load, network).result()

    def _work(self, planes):
        time.sleep(self.latency_s)
        return self.evaluate(planes)
