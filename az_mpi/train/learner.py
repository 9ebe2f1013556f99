"""The learner: data-parallel optimiser steps. Each trainer draws its part of a batch from its shard of the window."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch

from az_mpi.games.base import Game
from az_mpi.liveness import watchdog
from az_mpi.mpi.world import split_evenly
from az_mpi.network.engines.torch_engine import has_bf16
from az_mpi.network.resnet import ResNet
from az_mpi.train import average, optimizer, schedule
from az_mpi.train.backends import Backend
from az_mpi.train.loss import losses
from az_mpi.train.replay import Replay

if TYPE_CHECKING:
    from az_mpi.config.schema import Config
    from az_mpi.storage.checkpoint import Progress


class Watch:
    """What `Learner.train` calls around its steps, on every trainer at the same places. Here nothing happens; a
    subclass overrides what it needs."""

    def begin(self) -> None:
        """A step is about to begin."""

    def before_change(self) -> None:
        """The step is about to change weights and optimiser."""

    def bad_step(self, batch: Mapping[str, torch.Tensor | np.ndarray], figures: Sequence[float]) -> None:
        """The step was skipped, since its loss or gradient is not finite. batch: this trainer's part. figures: its
        losses, by head, and gradient norm."""

    def short_of_memory(self, ranks: list[int]) -> None:
        """These trainers had too little memory. The step is about to be repeated in parts of `micro_batch` samples."""

    def end(self) -> bool:
        """The step is over. Return whether training is to end here, the same on every trainer."""
        return False


class Learner:
    """Trains `network` on the ranks of `backend.world`, the trainers. What plays and is the model in checkpoints is
    `average`, the network that was given: the same one, or with `train.ema_decay` the average of its weights."""

    def __init__(self, config: "Config", game: Game, network: ResNet, backend: Backend, device: torch.device | str):
        self.config, self.game, self.backend, self.world = config, game, backend, backend.world
        self.device = torch.device(device)
        # Only activations are channels_last: Horovod needs contiguous gradients, so weights stay contiguous.
        self.average = network.to(self.device)
        network = self.network = average.trained(self.average, config.train.ema_decay)
        self._losses = [f"{name}_loss" for name in network.heads]  # their names in metrics
        settings = config.train
        self.end_index = 0  # the number of steps taken when `train` will have returned
        # This rank's sums over the applied steps, of the losses, the gradient's norm and 1: since the last summary,
        # perhaps in an earlier iteration; and in the newest call of `train`.
        self._summary, self._iteration = np.zeros((2, len(self._losses) + 2))
        self.good_until = 0  # the newest applied step; a rollback goes to a checkpoint before it
        self.failure: str | None = None  # why training cannot continue; the same on every trainer
        self._sums_s = 0.0  # that this rank has waited for sums of gradients since `take_sums_s`
        shares = split_evenly(settings.batch_size, self.world.size)
        self.local_batch = shares[self.world.rank]
        self.micro_batch = shares[0]  # the number of samples whose gradient is computed at once
        self._starved = False  # this rank ran out of memory in its newest gradient
        mixed = settings.mixed_precision
        self.bf16 = has_bf16(self.device) if mixed == "auto" else mixed
        self.precision = "bf16" if self.bf16 else "fp32"  # for the start-up table
        self.optimizer = optimizer.make(settings, network)
        with backend.session():  # trainers that cannot reach each other show it now, not after the first self-play
            self._wait_for_sums = backend.sum_gradients(self._trained())

    def _trained(self):
        """Return the parameters that are trained: a block or head of a user's own may have others."""
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]

    def load(self, progress: "Progress", tensors: dict[str, torch.Tensor]) -> None:
        """Continue from a checkpoint, whose model `average` has already. tensors: what `optimizer_tensors` returned."""
        self.load_optimizer(tensors)
        self.good_until = progress.step - progress.bad_steps

    def train(
        self,
        replay: Replay,
        progress: "Progress",
        on_summary: Callable[[int, dict[str, float]], object],
        watch: Watch | None = None,
        share: float | None = None,
    ) -> int:
        """Train on the samples that are due; return the number of steps, skipped ones included. Collective over the
        trainers, which take the same steps even if a shard is empty.

        progress: the same on every trainer. Its `step`, `samples_due` and `bad_steps` are updated after each step;
        samples that are fewer than a batch, or beyond max_steps, stay due. Each of its `rollbacks` halves the rate.
        on_summary(step, metrics): called on every trainer each `report.summary_frequency` steps, with means over the
        global batches since the last summary.
        watch: what is called around the steps; None: nothing. Training also ends when `failure` is set.
        share: how much of the training is done, for the rate and the batch; None: as `schedule.done` counts it.
        """
        watch = watch or Watch()
        self._iteration[:], settings = 0, self.config.train
        share = schedule.done(self.config, progress) if share is None else share
        samples = schedule.batch_size(settings, share)
        local = split_evenly(samples, self.world.size)[self.world.rank] if replay.num_positions else 0
        batch_size = int(self.world.sum(np.array([local], np.int64))[0])
        steps = self._steps_due(progress, samples)
        if not batch_size or steps <= 0:
            return 0
        first = progress.step
        self.network.train()
        self.end_index = first + steps
        with self.backend.session(), watchdog.steps():
            for batch in self._batches(replay, local, range(first, first + steps)):
                rate = schedule.learning_rate(settings, progress.step, share) * 0.5**progress.rollbacks
                watch.begin()
                applied, figures = self._step(batch, batch_size, rate, watch)
                if self.failure:
                    watch.end()  # every trainer has called begin()
                    break
                self._count(progress, samples, applied, figures)
                if not applied:
                    with watchdog.aside():  # it uses the file system
                        watch.bad_step(batch, figures)
                if self._summary[-1] and progress.step % self.config.report.summary_frequency == 0:
                    on_summary(progress.step, self._take_summary(rate))
                watchdog.step()
                if watch.end() or self.failure:
                    break
        self._finish()
        return progress.step - first

    def _steps_due(self, progress, samples):
        """Return the number of batches of so many samples that are due, within max_steps; it may be negative."""
        steps, limit = int(progress.samples_due // samples), self.config.train.max_steps
        return min(steps, limit - progress.step) if limit else steps

    def _count(self, progress, samples, applied, figures):
        """Count a step of so many samples that was applied or skipped."""
        progress.step += 1
        progress.samples_due -= samples
        if applied:
            self._summary += [*figures, 1]
            self._iteration += [*figures, 1]
            progress.bad_steps, self.good_until = 0, progress.step
        else:
            progress.bad_steps += 1

    def iteration_losses(self) -> dict[str, float]:
        """Return this rank's part of the mean losses over the newest call of `train`, by name; {} if no step was
        applied. The parts of all trainers add up to the means. Not collective."""
        if not self._iteration[-1]:
            return {}
        return {name: float(part) for name, part in zip(self._losses, self._iteration / self._iteration[-1])}

    def take_sums_s(self) -> float:
        """Return the seconds that this rank has waited for sums of gradients over ranks since the last call, beyond its
        own backward pass. Not collective."""
        waited, self._sums_s = self._sums_s, 0.0
        return waited

    def tensors(self, batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
        """Return a batch of `Replay.sample` as tensors on the device; planes become float32, channels_last."""
        parts = {name: torch.from_numpy(part) for name, part in batch.items()}
        if self.device.type == "cuda":  # copies from pinned memory do not block
            parts = {name: part.pin_memory().to(self.device, non_blocking=True) for name, part in parts.items()}
        return parts | {"planes": parts["planes"].float().contiguous(memory_format=torch.channels_last)}

    def gradients(self, batch: dict[str, torch.Tensor], batch_size: int) -> torch.Tensor:
        """Set each parameter's gradient of the mean loss over a global batch; return this rank's sum of the loss of
        each head, float32 [heads] on the device. Collective over the trainers.

        batch: this rank's part, from `tensors` or `Replay.sample`; it may be empty. batch_size: positions in all parts.
        If a rank's loss is not finite, or it runs out of memory, no rank's gradient is finite, so that all ranks know.
        """
        self.optimizer.zero_grad()
        sums = torch.zeros(len(self._losses), device=self.device)
        self._starved = False
        try:
            self._backward(batch, batch_size, sums)
        except torch.OutOfMemoryError:
            self._starved = True
        if self._starved:  # not in the except block, which still holds backward's memory
            self._spoil()
        if self.world.size > 1:
            self._finish()
        begun = time.perf_counter()
        with watchdog.waiting():
            self._wait_for_sums()
        self._sums_s += time.perf_counter() - begun
        return sums

    def _finish(self):
        """Wait for this rank's own kernels, so that the watchdog can tell a hung kernel from a wait for other ranks.
        The sums over ranks run on other streams."""
        if self.device.type == "cuda":
            with watchdog.brief():
                torch.cuda.current_stream(self.device).synchronize()

    def _backward(self, batch, batch_size, sums):
        """Compute this rank's gradients, `micro_batch` samples at a time, and add its losses to `sums`.

        The backend's hooks start the sum of a gradient over ranks as soon as `backward` has made it. The hooks must
        run once, so only the last part uses `backward`; the gradients of the others are added before.
        """
        if isinstance(batch["weight"], np.ndarray):
            batch = self.tensors(batch)
        parameters, size = self._trained(), self.micro_batch
        first, last, num = [], batch, len(batch["weight"])
        if num > size:
            *first, last = [{name: part[at : at + size] for name, part in batch.items()} for at in range(0, num, size)]
        for part in first:
            gradients = torch.autograd.grad(self._loss(part, batch_size, sums), parameters, allow_unused=True)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:  # the network uses it
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    parameter.grad += gradient
        self._loss(last, batch_size, sums).backward()

    def _loss(self, part, batch_size, sums):
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            by_head = losses(self.network, part)
        sums += torch.stack(list(by_head.values())).detach()
        weights = [head.weight(self.config.train) for head in self.network.heads.values()]
        loss = sum(weight * loss for weight, loss in zip(weights, by_head.values())) / batch_size
        # A loss may be infinite though its gradient is finite: this factor is NaN then, and 1 otherwise.
        return loss * (1 + 0 * loss.detach())

    def _spoil(self):
        """Set to NaN all gradients whose sum over ranks has not begun; sums that have begun keep their tensors. If all
        have begun, the step is complete."""
        self.network.zero_grad()
        for parameter in self.network.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan, requires_grad=False)

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """Return copies of the optimiser's state on the CPU, by name, for a checkpoint."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.optimizer_state().items()}

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """Return the optimiser's own tensors by name, and `average.raw_weights`; the next step changes them."""
        mine = optimizer.state_by_name(self.optimizer, self.network)
        return mine | average.raw_weights(self.average, self.network)

    def load_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore the state that `optimizer_tensors` returned."""
        mine = average.restore(self.average, self.network, tensors)
        optimizer.load_state(self.optimizer, self.network, mine)

    def _batches(self, replay, local, steps):
        """Yield a batch for each of `steps`, a range. A thread makes the next one during each step."""

        def make(step):
            # Seeded by the step, so that a resumed run draws the same batches as an unbroken one.
            rng = np.random.default_rng([self.config.seed, step, self.world.rank])
            batch = replay.sample(rng, local)
            try:
                return self.tensors(batch)
            except torch.OutOfMemoryError:  # while another step runs; its own step tries again
                return batch

        with ThreadPoolExecutor(1, "prefetch") as thread:
            upcoming = thread.submit(make, steps[0])
            for step in steps:
                batch = upcoming.result()
                upcoming = thread.submit(make, step + 1) if step + 1 in steps else None
                yield batch

    def _step(self, batch, batch_size, rate, watch):
        """Take one step. Return (whether it was applied, the same on every trainer; this rank's figures, float
        [heads + 1]).

        The figures are this rank's parts of the mean losses and of the gradient norm: they add up over ranks. All steps
        of one call of `train` have equally many samples, so their mean over steps is the mean over samples."""
        while True:
            sums = self.gradients(batch, batch_size)
            norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.train.gradient_clip)
            with watchdog.waiting() if self.world.size > 1 else nullcontext():  # the GPU may wait for other ranks
                *sums, norm = torch.cat([sums, norm[None]]).tolist()
            # The norm is that of the sum over ranks, so every rank decides the same.
            if np.isfinite(norm) or not self._divide(watch):
                break
        watch.before_change()
        if np.isfinite(norm):
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
            average.follow(self.average, self.network, self.config.train.ema_decay)
        return bool(np.isfinite(norm)), np.array([*(loss / batch_size for loss in sums), norm / self.world.size])

    def _divide(self, watch):
        """If a rank ran out of memory, halve `micro_batch` on all and return whether to try again. Collective."""
        starved = [rank for rank, short in enumerate(self.world.collect(self._starved)) if short]
        if not starved:
            return False
        if self.micro_batch == 1:
            self.failure = (
                f"out of memory on trainer {starved}: not even the gradient of one sample fits\n"
                "  leave these ranks out with --set train.ranks=..., or lower selfplay.parallel_games:\n"
                "  self-play uses the same memory"
            )
            return False
        self.micro_batch = -(-self.micro_batch // 2)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # its cached blocks have the wrong sizes now
        watch.short_of_memory(starved)
        return True

    def _take_summary(self, rate):
        *by_head, norm = self.world.sum(self._summary[:-1] / self._summary[-1])
        self._summary[:] = 0
        return dict(zip(self._losses, by_head)) | {"gradient_norm": norm, "learning_rate": rate}
