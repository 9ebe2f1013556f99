"""The learner: optimiser steps over global batches whose parts the trainers draw from their shards of the window."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import torch

from az_mpi.liveness import watchdog
from az_mpi.mpi.world import split_evenly
from az_mpi.network.engines.torch_engine import has_bf16
from az_mpi.train.loss import losses
from az_mpi.train.optimizer import AdamW
from az_mpi.train.schedule import learning_rate

UNWATCHED = SimpleNamespace(begin=lambda: None, bad_step=lambda *what: None, short_of_memory=lambda *what: None,
                            before_change=lambda: None, end=lambda: False)


class Learner:
    """Trains `network` over the ranks of `backend.world`. Training is collective over them."""

    def __init__(self, config, game, network, backend, device):
        self.config, self.game, self.backend, self.world = config, game, backend, backend.world
        self.device = torch.device(device)
        # Weights stay in the plain layout: Horovod takes contiguous gradients only. The activations do not.
        self.network = network.to(self.device)
        self._losses = [f"{name}_loss" for name in network.heads]  # what figures are called
        settings = config.train
        self.end_index = 0  # how many steps it will be when `train` returns
        # This rank's figures, added up over the steps that were applied: since the last summary, perhaps in an earlier
        # iteration, and in the newest call of `train`.
        self._summary, self._iteration = self._sums(), self._sums()
        self.good_until = 0  # the newest step that was applied: a rollback goes to a checkpoint before it
        self.failure = None  # why training cannot go on, in words; the same on every trainer
        shares = split_evenly(settings.batch_size, self.world.size)
        self.local_batch = shares[self.world.rank]
        self.micro_batch = shares[0]  # samples whose gradient is computed at once
        self._starved = False  # this rank ran out of memory in its newest gradient
        mixed = settings.mixed_precision
        self.bf16 = has_bf16(self.device) if mixed == "auto" else mixed
        self.precision = "bf16" if self.bf16 else "fp32"  # what people are told
        groups = _groups(network, settings.weight_decay)
        optimizer = AdamW(groups, lr=settings.learning_rate, fused=True)
        with backend.session():
            self.optimizer = backend.wrap(optimizer, network.named_parameters())

    def load(self, progress, tensors):
        """Go on from a checkpoint: its `Progress`, and what `optimizer_tensors` returned."""
        self.load_optimizer(tensors)
        self.good_until = progress.step - progress.bad_steps

    def train(self, replay, progress, on_summary, watch=UNWATCHED):
        """Train on the samples that are due and return the number of steps.

        progress: a `Progress`, the same on every trainer. Its `step`, `samples_due` and `bad_steps` are kept up to date
        here: less than a batch, and what is beyond max_steps, stays due. `rollbacks` halve the learning rate.
        Every trainer takes the same steps whatever its shard holds. on_summary(step, metrics) is called on every
        trainer each `report.summary_frequency` steps with means over the global batches since the last call; those of
        the whole iteration are left to `iteration_losses`.
        watch.begin() is called before each step and watch.end() after it; the step where that is true, on every
        trainer, is the last. In between, on every trainer alike, watch.bad_step(batch, local losses) tells of a step
        that was skipped because its loss or gradient is not finite, and watch.short_of_memory(ranks) of a step that is
        tried again in smaller parts. watch.before_change() is called before anything of a step changes weights or
        optimiser. Skipped steps count. Training also ends where `failure` is set.
        """
        settings, self._iteration = self.config.train, self._sums()
        steps = int(progress.samples_due // settings.batch_size)
        if settings.max_steps:
            steps = min(steps, settings.max_steps - progress.step)
        local = self.local_batch if replay.positions_num else 0
        batch_size = int(self.world.sum(np.array([local], np.int64))[0])
        if not batch_size or steps <= 0:
            return 0
        first = progress.step
        self.network.train()
        self.end_index = first + steps
        with self.backend.session(), watchdog.steps():
            for batch in self._batches(replay, local, range(first, first + steps)):
                rate = learning_rate(settings, progress.step, progress.iteration, self.config.iterations)
                rate *= 0.5**progress.rollbacks
                watch.begin()
                applied, figures = self._step(batch, batch_size, rate, watch)
                if self.failure:
                    watch.end()  # every trainer has begun it
                    break
                progress.step += 1
                progress.samples_due -= settings.batch_size
                if applied:
                    self._summary.add(figures)
                    self._iteration.add(figures)
                    progress.bad_steps, self.good_until = 0, progress.step
                else:
                    progress.bad_steps += 1
                    with watchdog.aside():  # it asks the file system
                        watch.bad_step(batch, figures)
                if self._summary.steps_num and progress.step % self.config.report.summary_frequency == 0:
                    on_summary(progress.step, self._take_summary(rate))
                watchdog.step()
                if watch.end() or self.failure:
                    break
        self._finish()
        return progress.step - first

    def iteration_losses(self):
        """Return {head_loss: this rank's part of the mean over the samples of the newest call of `train`}, {} where no
        step was applied. The parts of all trainers add up to it. Not collective."""
        if not self._iteration.steps_num:
            return {}
        return {name: float(part) for name, part in zip(self._losses, self._iteration.mean())}

    def tensors(self, batch):
        """Return what `Replay.sample` gave as `gradients` takes it: tensors on the device, planes as float32."""
        parts = {name: torch.from_numpy(part) for name, part in batch.items()}
        if self.device.type == "cuda":  # from pinned memory the copies are queued, not waited for
            parts = {name: part.pin_memory().to(self.device, non_blocking=True) for name, part in parts.items()}
        return parts | {"planes": parts["planes"].float().contiguous(memory_format=torch.channels_last)}

    def gradients(self, batch, batch_size):
        """Set each parameter's gradient of the mean loss over a global batch and return this rank's loss sums.

        batch: this rank's part as `tensors` gives it, perhaps empty. batch_size: positions in all parts together.
        The sums are those of the network's heads in their order, float32 [heads] on the device.

        Where a rank's loss is not finite, or it runs out of memory, no rank's gradient is finite: so all of them know.
        """
        self.optimizer.zero_grad()
        sums = torch.zeros(len(self._losses), device=self.device)
        self._starved = False
        try:
            self._backward(batch, batch_size, sums)
        except torch.OutOfMemoryError:
            self._starved = True
        if self._starved:  # what backward held is free by now
            self._spoil()
        if self.world.size > 1:
            self._finish()
        with watchdog.waiting():
            self.optimizer.synchronize()
        return sums

    def _sums(self):
        return _Sums(len(self._losses) + 1)

    def _finish(self):
        """Wait for this rank's own kernels, without the sums, which have streams of their own: one that never returns
        must not pass for a wait for others."""
        if self.device.type == "cuda":
            with watchdog.brief():
                torch.cuda.current_stream(self.device).synchronize()

    def _backward(self, batch, batch_size, sums):
        """Compute this rank's gradients, `micro_batch` samples at a time, and add its losses to `sums`.

        The optimiser sums each gradient over ranks as soon as the last part's backward has made it; those of the parts
        before are taken beside its hooks, so that a sum is begun once, of all parts.
        """
        if isinstance(batch["weight"], np.ndarray):
            batch = self.tensors(batch)
        parameters, size = list(self.network.parameters()), self.micro_batch
        first, last, num = [], batch, len(batch["weight"])
        if num > size:
            *first, last = [{name: part[at : at + size] for name, part in batch.items()} for at in range(0, num, size)]
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
        for part in first:
            gradients = torch.autograd.grad(self._loss(part, batch_size, sums), parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad += gradient
        self._loss(last, batch_size, sums).backward()

    def _loss(self, part, batch_size, sums):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            by_head = losses(self.network, part)
        sums += torch.stack(list(by_head.values())).detach()
        weights = [head.weight(self.config.train) for head in self.network.heads.values()]
        loss = sum(weight * loss for weight, loss in zip(weights, by_head.values())) / batch_size
        # A loss can be infinite where its gradient is not: this factor is then NaN, and 1 otherwise.
        return loss * (1 + 0 * loss.detach())

    def _spoil(self):
        """Give NaN to every sum over ranks that this rank has not begun; if it has begun all, nothing is amiss.

        The sums under way keep the tensors that they were begun with.
        """
        self.network.zero_grad()
        for parameter in self.network.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan, requires_grad=False)

    def optimizer_tensors(self):
        """Return the optimiser's state as tensors by name, for a checkpoint."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.optimizer_state().items()}

    def optimizer_state(self):
        """Return the same tensors themselves, which the next step changes."""
        state = self.optimizer.state
        return {f"{name}.{key}": tensor for name, parameter in self.network.named_parameters()
                for key, tensor in state.get(parameter, {}).items()}  # fmt: skip

    def load_optimizer(self, tensors):
        """Take over what `optimizer_tensors` returned."""
        self.optimizer.state.clear()
        for name, parameter in self.network.named_parameters():
            mine = {key.rpartition(".")[2]: t for key, t in tensors.items() if key.rpartition(".")[0] == name}
            if mine:
                self.optimizer.state[parameter] = {key: t.to(self.device, copy=True) for key, t in mine.items()}

    def _batches(self, replay, local, steps):
        """Yield the batch of each of `steps`, a range; a thread makes it while the step before it runs."""

        def make(step):
            # Random numbers depend on the step, so that a resumed run draws what an unbroken one does.
            rng = np.random.default_rng([self.config.seed, step, self.world.rank])
            batch = replay.sample(rng, local)
            try:
                return self.tensors(batch)
            except torch.OutOfMemoryError:  # beside the step under way there was no room; its own step tries again
                return batch

        with ThreadPoolExecutor(1, "prefetch") as thread:
            upcoming = thread.submit(make, steps[0])
            for step in steps:
                batch = upcoming.result()
                upcoming = thread.submit(make, step + 1) if step + 1 in steps else None
                yield batch

    def _step(self, batch, batch_size, rate, watch):
        """Take one step. Return whether it was applied, on every trainer alike, and this rank's figures, float
        [heads + 1].

        They are the parts of the mean losses and of the gradient norm, which add up over ranks. Each step of one call
        of `train` has as many samples, so a mean over steps is one over samples."""
        while True:
            sums = self.gradients(batch, batch_size)
            norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.train.gradient_clip)
            with watchdog.waiting() if self.world.size > 1 else nullcontext():  # for a GPU, which may wait for others'
                *sums, norm = torch.cat([sums, norm[None]]).tolist()
            # The norm of the sum, and what is made of it, is the same on every rank.
            if np.isfinite(norm) or not self._divide(watch):
                break
        watch.before_change()
        if np.isfinite(norm):
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            with self.optimizer.skip_synchronize():
                self.optimizer.step()
        return bool(np.isfinite(norm)), np.array([*(loss / batch_size for loss in sums), norm / self.world.size])

    def _divide(self, watch):
        """Where a rank ran out of memory, halve `micro_batch` on all and return whether to try again. Collective."""
        starved = [rank for rank, short in enumerate(self.world.collect(self._starved)) if short]
        if not starved:
            return False
        if self.micro_batch == 1:
            self.failure = (f"out of memory on trainer {starved}: not even the gradient of one sample fits there\n"
                            "  leave these ranks out with --set train.ranks=..., or free their devices' memory, which\n"
                            "  self-play shares (selfplay.parallel_games)")
            return False
        self.micro_batch = -(-self.micro_batch // 2)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # blocks kept for the larger parts are of no use to the smaller ones
        watch.short_of_memory(starved)
        return True

    def _take_summary(self, rate):
        *by_head, norm = self.world.sum(self._summary.mean())
        self._summary = self._sums()
        return dict(zip(self._losses, by_head)) | {"gradient_norm": norm, "learning_rate": rate}


class _Sums:
    """Figures of steps, float [num], added up."""

    def __init__(self, num):
        self.steps_num, self._total = 0, np.zeros(num)

    def add(self, figures):
        self.steps_num += 1
        self._total += figures

    def mean(self):
        return self._total / self.steps_num


def _groups(network, weight_decay):
    """Weights decay; biases do not."""
    weights = [p for p in network.parameters() if p.dim() > 1]
    biases = [p for p in network.parameters() if p.dim() == 1]
    return [{"params": weights, "weight_decay": weight_decay}, {"params": biases, "weight_decay": 0.0}]
