"""Data-parallel training with Horovod. The only module that imports it.

Horovod's background thread talks to its peers a thousand times a second even when there is nothing to reduce, which
costs self-play on the same cores 40 % of its speed. It is therefore started for each training phase (1 to 5 ms) and
shut down after it.
"""

from contextlib import contextmanager


class HorovodBackend:
    """Horovod over the ranks of `world`. Every method is collective over that world."""

    def __init__(self, world):
        self.world = world

    @contextmanager
    def session(self):
        """Run Horovod while the block lasts."""
        import horovod.torch as hvd

        hvd.init(comm=self.world.comm)
        try:
            yield
            # One rank's shutdown ends every rank's session, also of one that still waits for its last reduction.
            self.world.barrier()
        finally:
            hvd.shutdown()

    def wrap(self, optimizer, named_parameters):
        """Return the optimiser with gradients summed over ranks. Within a session; it serves later sessions too."""
        import horovod.torch as hvd

        return hvd.DistributedOptimizer(optimizer, named_parameters=named_parameters, op=hvd.Sum)

    @staticmethod
    def reduces_on_gpu():
        """Return whether this Horovod was built to reduce tensors that are on GPUs."""
        import horovod.torch as hvd

        return bool(hvd.cuda_built())

    @staticmethod
    def describe():
        """Return Horovod's version and what carries its reductions, one line."""
        import horovod
        import horovod.torch as hvd

        return f"horovod {horovod.__version__} ({'NCCL' if hvd.nccl_built() else 'MPI'})"
