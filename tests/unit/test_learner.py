"""The learner on one rank: its steps against a plain torch loop, its optimiser's state, failures of its thread."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import CONNECT4, make_config
from learners import BATCH, HEADS, filled, train

from az_mpi.core.registry import OPTIMIZERS
from az_mpi.network import resnet
from az_mpi.storage.checkpoint import Progress
from az_mpi.train import backends
from az_mpi.train.backends.gradient_sums import GradientSums
from az_mpi.train.backends.local_backend import LocalBackend
from az_mpi.train.learner import Learner, Watch
from az_mpi.train.loss import losses
from az_mpi.train.replay import Replay
from az_mpi.train.schedule import done, learning_rate


@pytest.fixture(scope="module")
def replay():
    return filled(Replay(CONNECT4, HEADS))


@pytest.fixture
def make_learner(world):
    """Return a function that makes a new learner, always the same. One rank has no use for Horovod or ddp."""
    return lambda: new_learner(world)


def new_learner(world, iterations=40, **settings):
    config = make_config(
        "connect4",
        seed=3,
        iterations=iterations,
        network={"blocks": 1, "channels": 8},
        train={"batch_size": BATCH, "replay_ratio": 1.0, "mixed_precision": False, **settings},
    )
    learner = Learner(
        config,
        CONNECT4,
        resnet.build(CONNECT4, config.network, 3),
        backends.make("horovod", world, world, "cpu"),
        "cpu",
    )
    learner.progress = Progress()  # of the test
    return learner


def plain_loop(learner, replay, steps, fused, samples=BATCH):
    """Train a copy of a new learner's network: sample, forward, loss, backward, clip, AdamW, in this thread alone."""
    settings, config = learner.config.train, learner.config
    network = resnet.build(CONNECT4, config.network, config.seed)
    biases = [p for p in network.parameters() if p.dim() == 1]
    groups = [
        {"params": [p for p in network.parameters() if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": biases, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, fused=fused)
    for step in range(steps):
        batch = replay.sample(np.random.default_rng([config.seed, step, 0]), samples)
        batch = {name: torch.from_numpy(part) for name, part in batch.items()}
        batch["planes"] = batch["planes"].float().contiguous(memory_format=torch.channels_last)
        policy_loss, value_loss = losses(network, batch).values()
        optimizer.zero_grad()
        ((policy_loss + settings.value_loss_weight * value_loss) / samples).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.gradient_clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, step, done(config, learner.progress))
        optimizer.step()
    return network


def test_steps_are_those_of_a_plain_loop(make_learner, replay):
    """Bit for bit with the same AdamW; within rounding with the one whose operations follow each other in Python."""
    learner = make_learner()
    train(learner, replay, 4)
    same, loose = (plain_loop(learner, replay, 4, fused) for fused in (True, False))
    begun = resnet.build(CONNECT4, learner.config.network, 3)
    for ours, bits, close, first in zip(*(n.parameters() for n in (learner.network, same, loose, begun)), strict=True):
        assert torch.equal(ours, bits) and not torch.equal(ours, first)
        torch.testing.assert_close(ours, close, rtol=1e-4, atol=1e-6)


def test_the_last_iterations_batches_are_larger_and_take_no_more_memory(world, replay):
    """Of 2 iterations; samples that are fewer than such a batch stay due."""
    learner = new_learner(world, iterations=2, batch_growth=3.0)
    learner.progress = Progress(iteration=1, samples_due=2 * 3 * BATCH + BATCH)
    assert learner.train(replay, learner.progress, lambda *what: None) == 2
    assert learner.progress.samples_due == BATCH and learner.micro_batch == BATCH
    expected = plain_loop(learner, replay, 2, True, 3 * BATCH)
    for ours, theirs in zip(learner.network.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_steps_are_taken_without_torchs_compiler():
    """Its import takes longer than anything else in a rank's start."""
    program = """
import sys, torch
from az_mpi.train import optimizer
for kind in (optimizer.AdamW, optimizer.SGD, optimizer.Muon):
    parameter = torch.nn.Parameter(torch.ones(3, 4))
    made = kind([{"params": [parameter], "hidden": True}], lr=0.5)
    parameter.sum().backward()
    made.step()
    made.zero_grad()
    assert (parameter < 1).all() and parameter.requires_grad and parameter.grad is None
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("optimizer", OPTIMIZERS.names)
def test_training_continues_from_a_checkpoint_to_the_same_bits(world, replay, optimizer):
    unbroken, broken, resumed = (new_learner(world, optimizer=optimizer) for _ in range(3))
    train(unbroken, replay, 5)
    train(broken, replay, 2)
    tensors = broken.optimizer_tensors()
    resumed.network.load_state_dict(broken.network.state_dict())
    resumed.progress = broken.progress.copy()
    resumed.load(resumed.progress, tensors)
    again = resumed.optimizer_tensors()
    assert again.keys() == tensors.keys() and all(torch.equal(again[key], tensors[key]) for key in again)
    train(resumed, replay, 3)
    for ours, theirs in zip(resumed.network.parameters(), unbroken.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert optimizer == "sgd" or tensors["stem.weight.step"] == 2  # what was handed out is a copy


def test_the_optimizer_is_kept_as_adamw_names_it(make_learner, replay):
    learner = make_learner()
    assert learner.optimizer_tensors() == {}
    train(learner, replay, 1)
    tensors, parameters = learner.optimizer_tensors(), dict(learner.network.named_parameters())
    assert set(tensors) == {f"{name}.{key}" for name in parameters for key in ("step", "exp_avg", "exp_avg_sq")}
    for name, parameter in parameters.items():
        assert tensors[f"{name}.step"].shape == () and tensors[f"{name}.step"].dtype == torch.float32
        assert tensors[f"{name}.exp_avg"].shape == tensors[f"{name}.exp_avg_sq"].shape == parameter.shape


def test_a_failure_in_the_prefetch_thread_is_raised_by_train(make_learner, replay):
    """The third batch fails: two steps are taken, the exception is the thread's own, and one may train again."""

    class Failing(Replay):
        drawn = 0

        def sample(self, rng, n):
            self.drawn += 1
            if self.drawn == 3:
                raise MemoryError("no room for the third batch")
            return super().sample(rng, n)

    failing, learner = filled(Failing(CONNECT4, HEADS)), make_learner()
    learner.progress.samples_due = 5 * BATCH
    with pytest.raises(MemoryError, match="third batch"):
        learner.train(failing, learner.progress, lambda *what: None)
    assert learner.progress.step == 2 and failing.drawn == 3
    train(learner, replay, 1)
    assert learner.progress.step == 3


def test_a_watch_may_end_training_after_any_step_and_the_rest_stays_due(world, replay):
    ended, whole = new_learner(world), new_learner(world)
    calls, answers = [], iter([False, False, True])
    watch = Watch()
    watch.begin = lambda: calls.append("begin")
    watch.before_change = lambda: calls.append("before change")
    watch.end = lambda: calls.append("end") or next(answers)
    progress = Progress(samples_due=5 * BATCH + 7)
    assert ended.train(replay, progress, lambda *what: None, watch) == 3
    assert calls == ["begin", "before change", "end"] * 3
    assert progress.step == 3 and progress.samples_due == 2 * BATCH + 7
    assert ended.train(replay, progress, lambda *what: None) == 2 and progress.samples_due == 7
    train(whole, replay, 5)
    for one, other in zip(ended.network.parameters(), whole.network.parameters()):
        assert torch.equal(one, other)


def watching(told):
    """Return a watch that notes the numbers of skipped steps and of trainers without memory."""
    watch = Watch()
    watch.bad_step = lambda batch, figures: told.append(figures)
    watch.short_of_memory = told.append
    return watch


def test_a_watch_is_called_before_the_step_has_changed_anything(world, replay):
    learner, seen = new_learner(world), []

    def state():
        return weights(learner) + list(learner.optimizer_tensors().values())

    watch = watching([])
    watch.before_change = lambda: seen.append(state())
    watch.begin = lambda: seen.append(state())
    learner.train(replay, Progress(samples_due=3 * BATCH), lambda *what: None, watch)
    assert len(seen) == 6
    for begun, told in zip(seen[::2], seen[1::2]):
        assert len(begun) == len(told) and all(torch.equal(*pair) for pair in zip(begun, told))
    assert not torch.equal(seen[0][0], seen[-1][0])


def weights(learner):
    return [parameter.detach().clone() for parameter in learner.network.parameters()]


def test_an_infinite_loss_is_skipped_though_its_gradient_is_finite(make_learner, replay):
    """(z - v)^2 is beyond float32 for z = 2e19, while its weight keeps the gradient in bounds."""
    huge, learner, told = filled(Replay(CONNECT4, HEADS), 2e19, 1e-3), make_learner(), []
    batch = learner.tensors(huge.sample(np.random.default_rng(0), BATCH))
    policy_loss, value_loss = losses(learner.network, batch).values()
    ((policy_loss + value_loss) / BATCH).backward()
    norms = [parameter.grad.norm() for parameter in learner.network.parameters()]
    assert value_loss.isinf() and torch.stack(norms).isfinite().all() and max(norms) > 0
    before = weights(learner)
    learner.progress.samples_due = 2 * BATCH
    assert learner.train(huge, learner.progress, lambda *what: pytest.fail("a summary of nothing"), watching(told)) == 2
    assert all(torch.equal(*pair) for pair in zip(before, weights(learner), strict=True))
    assert [np.isposinf(figures[1]) for figures in told] == [True, True] and learner.optimizer_tensors() == {}
    assert learner.progress == Progress(step=2, bad_steps=2) and learner.good_until == 0
    train(learner, replay, 1)
    assert learner.progress == Progress(step=3) and learner.good_until == 3
    assert not all(torch.equal(*pair) for pair in zip(before, weights(learner), strict=True))


@pytest.mark.parametrize("size", [47, 16, 5, 1])
def test_a_gradient_in_parts_is_that_of_the_whole_batch(make_learner, replay, size):
    learner = make_learner()
    train(learner, replay, 3)  # the heads begin at zero, which would hide most of the gradient
    batch = learner.tensors(replay.sample(np.random.default_rng(0), BATCH))
    results = []
    for learner.micro_batch in (BATCH, size):
        with learner.backend.session():
            sums = learner.gradients(batch, BATCH)
        results.append([sums, *(parameter.grad.clone() for parameter in learner.network.parameters())])
    for whole, parts in zip(*results, strict=True):
        assert parts.is_contiguous() and whole.abs().max() > 0  # Horovod takes nothing else
        assert (whole - parts).abs().max() < 1e-5 * whole.abs().max()


@pytest.mark.parametrize("size", [BATCH, 16])
def test_parameters_that_are_frozen_or_that_nothing_uses_are_left_alone(world, replay, monkeypatch, size):
    """As in a block of a user's own, with a back end that sums gradients, too."""

    def build(*arguments):
        network = real(*arguments)
        network.tower[0].second.bias.requires_grad_(False)
        network.tower[0].unused = torch.nn.Parameter(torch.zeros(3))
        return network

    def sum_gradients(self, parameters):
        return GradientSums(list(parameters), lambda total, number: SimpleNamespace(wait=lambda: None)).synchronize

    real = resnet.build
    monkeypatch.setattr(resnet, "build", build)
    monkeypatch.setattr(LocalBackend, "sum_gradients", sum_gradients)
    learner = new_learner(world)
    learner.micro_batch = size
    before = {name: tensor.clone() for name, tensor in learner.network.state_dict().items()}
    train(learner, replay, 4)
    same = [name for name, tensor in learner.network.state_dict().items() if torch.equal(tensor, before[name])]
    assert set(same) == {"tower.0.second.bias", "tower.0.unused"}


def test_a_batch_that_did_not_fit_on_the_device_is_moved_there_by_its_step(make_learner, replay):
    """The prefetch thread runs beside a step that may hold all memory."""
    whole, short, told = make_learner(), make_learner(), []
    train(whole, replay, 3)
    tensors, calls = short.tensors, {"prefetch": [], "step": []}

    def full_at_first(batch):
        mine = calls["prefetch" if threading.current_thread().name.startswith("prefetch") else "step"]
        mine.append(type(batch["value"]))
        if (mine is calls["prefetch"]) == (len(mine) == 2):  # the second batch, and the first try of its step
            raise torch.OutOfMemoryError("made up")
        return tensors(batch)

    short.tensors = full_at_first
    assert short.train(replay, Progress(samples_due=3 * BATCH), lambda *what: None, watching(told)) == 3
    assert told == [[0]] and short.micro_batch == BATCH // 2
    assert calls == {"prefetch": [np.ndarray] * 3, "step": [np.ndarray] * 2}
    for one, other in zip(weights(whole), weights(short), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
