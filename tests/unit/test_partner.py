"""A copy of a state is that state to the last bit, and an error in its thread is not ignored."""

import time

import pytest
import torch
from helpers import make_config

from az_mpi.mpi.peers import PeerLost
from az_mpi.run import partner_checkpoint
from az_mpi.run.partner_checkpoint import PartnerCheckpoint
from az_mpi.storage.checkpoint import Checkpoint, Progress


class Pair:
    """One rank's view of a pair."""

    def __init__(self, is_root=False):
        self.is_root, self.given_up = is_root, []

    def beside(self):
        return self

    def broadcast(self, array, into=None):
        raise self.error

    def abort(self, code):
        self.given_up.append(code)


def state(**more):
    progress = Progress(3, "train", 41, 0.1 + 0.2, 7, 60, 3, 2, 1)
    model = {"stem.weight": torch.randn(8, 2, 3, 3).to(memory_format=torch.channels_last), "bias": torch.randn(1)}
    return Checkpoint(
        progress, model | more, {"stem.weight.exp_avg": torch.randn(8, 2, 3, 3), "stem.weight.step": torch.tensor(41.0)}
    )


@pytest.mark.parametrize("names", [0, 100])  # with so many, what is said of them is longer than partner.WORDS
def test_a_copy_is_the_state_to_the_last_bit(names):
    one, before = PartnerCheckpoint(Pair()), state(**{f"block {k}": torch.randn(k, 2) for k in range(names)})
    before.model["bias"][:] = -0.0
    one.keep(before)
    after = one.kept()
    assert after.progress == before.progress
    for found, expected in ((after.model, before.model), (after.optimizer, before.optimizer)):
        assert list(found) == list(expected)
        for name, tensor in found.items():
            assert tensor.dtype == torch.float32 and tensor.shape == expected[name].shape
            assert tensor.contiguous().numpy().tobytes() == expected[name].contiguous().numpy().tobytes()


def test_the_place_of_a_copy_is_used_again_while_it_is_as_large():
    first = partner_checkpoint._pack(state())
    second = state()
    assert partner_checkpoint._pack(second, first) is first
    assert torch.equal(partner_checkpoint._unpack(first).model["stem.weight"], second.model["stem.weight"])
    larger = partner_checkpoint._pack(state(more=torch.ones(1)), first)
    assert larger is not first and partner_checkpoint._unpack(larger).model["more"] == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_copy_with_numbers_that_are_not_finite_is_not_used(number):
    one = PartnerCheckpoint(Pair())
    assert one.kept() is None
    one.keep(state(more=torch.tensor(number)))
    assert one.kept() is None


def test_a_loss_in_a_transfer_is_raised_where_its_end_is_waited_for_and_another_error_ends_the_job(capfd):
    one = PartnerCheckpoint(Pair())
    one.pair.error = PeerLost("rank 0")
    one.begin()
    with pytest.raises(PeerLost, match="rank 0"):
        one.settle()
    one.settle()  # nothing is under way any more
    assert one.pair.given_up == []
    one.pair.error = MemoryError("no room for a copy")
    one.begin()
    end = time.monotonic() + 10
    while not one.pair.given_up and time.monotonic() < end:
        time.sleep(0.01)
    assert one.pair.given_up == [70] and "no room for a copy" in capfd.readouterr().err


def test_only_a_lone_trainer_beside_others_has_a_partner():
    class World(Pair):
        survives, size = True, 3

        def split(self, member):
            return Pair() if member else None

    world, config = World(), make_config()

    def made(rank):
        world.rank = rank
        return partner_checkpoint.make(config, world, 1)

    assert partner_checkpoint.make(config, world, 2) is partner_checkpoint.make(config, world, 0) is None
    assert partner_checkpoint.make(make_config(fault={"copy_every": 0}), world, 1) is None
    world.hosts = "node1", "node1", "node1"
    assert [rank for rank in range(3) if made(rank)] == [0, 1]
    world.hosts = "node1", "node2", "node1"  # one of its host before others
    assert [rank for rank in range(3) if made(rank)] == [0, 2]
    world.hosts = "node1", "node2", "node2"
    assert [rank for rank in range(3) if made(rank)] == [0, 1]
    world.rank, world.size = 0, 1
    assert partner_checkpoint.make(config, world, 1) is None
    world.size, world.survives = 3, False  # a loss ends the job
    assert partner_checkpoint.make(config, world, 1) is None
