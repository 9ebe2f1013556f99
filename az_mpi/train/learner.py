"""The learner: optimiser steps over global batches whose parts the trainers draw from their shards of the window."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import torch

from az_mpi.network.torch_engine import has_bf16
from az_mpi.train.loss import losses
from az_mpi.train.schedule import learning_rate
from az_mpi.world import split_evenly

UNWATCHED = SimpleNamespace(begin=lambda: None, end=lambda: False)


class NumericalError(Exception):
    """The gradient is not finite. Raised on every trainer at the same step, before the step is applied."""


class Learner:
    """Trains `network` over the ranks of `backend.world`. Training is collective over them."""

    def __init__(self, config, game, network, backend, device):
        self.config, self.game, self.backend, self.world = config, game, backend, backend.world
        self.device = torch.device(device)
        # Weights stay in the plain layout: Horovod takes contiguous gradients only. The activations do not.
        self.network = network.to(self.device)
        settings = config.train
        self.step_index = self.end_index = 0  # steps taken, and how many it will be when `train` returns
        self.samples_due = 0.0  # to be trained on; what is less than a batch, or beyond max_steps, is carried over
        self._sums, self._summed_steps = np.zeros(3), 0  # since the last summary, perhaps in an earlier iteration
        self.local_batch = split_evenly(settings.batch_size, self.world.size)[self.world.rank]
        self.bf16 = settings.mixed_precision
        if self.bf16 == "auto":
            self.bf16 = has_bf16(self.device)
        # The first optimiser imports torch's compiler for a second: not while Horovod's thread looks for work.
        groups = _groups(network, settings.weight_decay)
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)
        with backend.session():
            self.optimizer = backend.wrap(optimizer, network.named_parameters())

    def train(self, replay, iteration, on_summary, watch=UNWATCHED):
        """Train on the samples that are due and return the number of steps.

        Every trainer takes the same steps whatever its shard holds. on_summary(step, metrics) is called on every
        trainer each `report.summary_frequency` steps with means over the global batches since the last call.
        watch.begin() is called before each step and watch.end() after it; the step where that is true, on every
        trainer, is the last.
        """
        settings = self.config.train
        steps = int(self.samples_due // settings.batch_size)
        if settings.max_steps:
            steps = min(steps, settings.max_steps - self.step_index)
        local = self.local_batch if len(replay.rows) else 0
        batch_size = int(self.world.sum(np.array([local], np.int64))[0])
        if not batch_size or steps <= 0:
            return 0
        first = self.step_index
        self.network.train()
        self.end_index = self.step_index + steps
        with self.backend.session():
            for batch in self._batches(replay, local, steps):
                rate = learning_rate(settings, self.step_index, iteration, self.config.iterations)
                watch.begin()
                self._sums += self._step(batch, batch_size, rate)
                self._summed_steps += 1
                self.step_index += 1
                self.samples_due -= settings.batch_size
                if self.step_index % self.config.report.summary_frequency == 0:
                    on_summary(self.step_index, self._take_summary(rate))
                if watch.end():
                    break
        return self.step_index - first

    def tensors(self, batch):
        """Return what `Replay.sample` gave as `gradients` takes it: float32 tensors on the device."""
        parts = [torch.from_numpy(part) for part in batch]
        if self.device.type == "cuda":  # from pinned memory the copies are queued, not waited for
            parts = [part.pin_memory().to(self.device, non_blocking=True) for part in parts]
        planes, *targets = parts
        return planes.float().contiguous(memory_format=torch.channels_last), *targets

    def gradients(self, batch, batch_size):
        """Set each parameter's gradient of the mean loss over a global batch and return this rank's two loss sums.

        batch: this rank's part as `tensors` gives it, perhaps empty. batch_size: positions in all parts together.
        The sums are of the policy and of the value loss, float32 tensors on the device.
        """
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            policy_loss, value_loss = losses(self.network, *batch)
        loss = (policy_loss + self.config.train.value_loss_weight * value_loss) / batch_size
        loss.backward()
        self.optimizer.synchronize()
        return policy_loss.detach(), value_loss.detach()

    def optimizer_tensors(self):
        """Return the optimiser's state as tensors by name, for a checkpoint."""
        state = self.optimizer.state
        return {
            f"{name}.{key}": tensor.detach().cpu().clone()
            for name, parameter in self.network.named_parameters()
            for key, tensor in state.get(parameter, {}).items()
        }

    def load_optimizer(self, tensors):
        """Take over what `optimizer_tensors` returned."""
        for name, parameter in self.network.named_parameters():
            mine = {key.rpartition(".")[2]: t for key, t in tensors.items() if key.rpartition(".")[0] == name}
            if mine:
                self.optimizer.state[parameter] = {key: t.to(self.device, copy=True) for key, t in mine.items()}

    def _batches(self, replay, local, steps):
        """Yield the batches of the next `steps` steps; a thread makes each while the step before it runs."""

        def make(step):
            # Random numbers depend on the step, so that a resumed run draws what an unbroken one does.
            rng = np.random.default_rng([self.config.seed, step, self.world.rank])
            return self.tensors(replay.sample(rng, local))

        first, end = self.step_index, self.step_index + steps
        with ThreadPoolExecutor(1, "prefetch") as thread:
            upcoming = thread.submit(make, first)
            for step in range(first, end):
                batch = upcoming.result()
                upcoming = thread.submit(make, step + 1) if step + 1 < end else None
                yield batch

    def _step(self, batch, batch_size, rate):
        sums = self.gradients(batch, batch_size)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.train.gradient_clip)
        policy_loss, value_loss, norm = torch.stack([*sums, norm]).tolist()  # a GPU is waited for once
        if not np.isfinite(norm):
            raise NumericalError(f"the gradient's norm is {norm} at step {self.step_index}; no step was applied")
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        return np.array([policy_loss / batch_size, value_loss / batch_size, norm / self.world.size])

    def _take_summary(self, rate):
        policy_loss, value_loss, norm = self.world.sum(self._sums) / self._summed_steps
        self._sums, self._summed_steps = np.zeros(3), 0
        return {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "gradient_norm": norm,
            "learning_rate": rate,
        }


def _groups(network, weight_decay):
    """Weights decay; biases do not."""
    weights = [p for p in network.parameters() if p.dim() > 1]
    biases = [p for p in network.parameters() if p.dim() == 1]
    return [{"params": weights, "weight_decay": weight_decay}, {"params": biases, "weight_decay": 0.0}]
