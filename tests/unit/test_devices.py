"""The GPU of each rank, without GPUs: what torch would see in processes with these CUDA_VISIBLE_DEVICES."""

from types import SimpleNamespace

import pytest
import torch

from az_mpi.mpi import placement
from az_mpi.train.backends.ddp_backend import DdpBackend

BOARDS = {"node1": ["GPU-a", "GPU-b", "GPU-c", "GPU-d"], "node2": ["GPU-e", "GPU-f", "GPU-g", "GPU-h"]}


def properties(uuid, name="NVIDIA H100", bus=1):
    return SimpleNamespace(uuid=uuid, name=name, pci_domain_id=0, pci_bus_id=bus, pci_device_id=0)


@pytest.fixture
def sees(monkeypatch):
    """Return sees(devices): from now on torch sees these, in this order."""

    def sees(devices):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(devices))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: devices[int(name.split(":")[1])])

    return sees


def chosen(sees, ranks):
    """Return [host, UUID or "cpu"] of each rank. ranks: (host, devices that it sees)."""
    found, hosts = [], []
    for host, devices in ranks:
        sees(devices)
        device = placement.choose_device(SimpleNamespace(local_rank=hosts.count(host)))
        hosts.append(host)
        found.append([host, placement.gpu_of(device) or "cpu"])
    return found


def seen(host, places):
    """Return what a process sees with CUDA_VISIBLE_DEVICES=places."""
    return [properties(BOARDS[host][place]) for place in places]


@pytest.mark.parametrize(
    "visible, used",
    [
        (["0123"] * 4, "abcd"),  # all ranks see all boards, as under mpirun
        (["3210"] * 4, "dcba"),  # in another order
        (["13"] * 4, "bdbd"),  # two of them are left to others
        (["0", "1", "2", "3"], None),  # each rank sees one, as with srun --gpus-per-task=1
        (["", "", "", ""], "...."),
    ],
)
def test_ranks_of_a_host_take_its_visible_gpus_in_turn(sees, visible, used):
    places = chosen(sees, [("node1", seen("node1", map(int, one))) for one in visible])
    expected = used or "abcd"
    assert [gpu for _, gpu in places] == ["cpu" if one == "." else f"GPU-{one}" for one in expected]
    trains = placement.trainers("gpu", places)
    assert sum(trains) == len(set(expected) - {"."}), "one rank for each GPU"


def test_each_gpu_of_two_hosts_has_one_trainer_however_ranks_are_numbered(sees):
    hosts = ["node1", "node2", "node2", "node1", "node1", "node2", "node1", "node2"] * 2  # 16 ranks, 8 boards
    places = chosen(sees, [(host, seen(host, range(4))) for host in hosts])
    trains = placement.trainers("auto", places)
    trained_on = [gpu for (_, gpu), one in zip(places, trains) if one]
    assert sorted(trained_on) == sorted(sum(BOARDS.values(), []))


def test_ranks_without_a_gpu_play_beside_one_that_trains(sees):
    places = chosen(sees, [("node1", []), ("node1", seen("node1", [0, 1])), ("node2", []), ("node1", [])])
    assert placement.trainers("auto", places) == [False, True, False, False]
    assert places[1] == ["node1", "GPU-b"], "the second rank of its host takes the second GPU that it sees"


def test_slices_of_a_board_train_but_do_not_sum_by_nccl(sees, world):
    """MIG: each process sees one slice, whose UUID is its own; the address on the bus is that of the board."""
    ranks = [("node1", [properties(f"MIG-{k}", "NVIDIA A100 MIG 3g.20gb", bus)]) for k, bus in enumerate((1, 1, 2))]
    assert placement.trainers("gpu", chosen(sees, ranks)) == [True, True, True]
    boards = []
    for host, devices in ranks:
        sees(devices)
        boards.append(placement.board_of("cuda:0", host))
    assert boards[0] == boards[1] != boards[2]
    assert DdpBackend(world, boards).carrier == "gloo" and DdpBackend(world, boards[1:]).carrier == "nccl"
    sees([properties("MIG-9", "NVIDIA A100 MIG 3g.20gb", 1)])
    assert placement.board_of("cuda:0", "node2") != boards[0], "another host's board at the same address"


def test_a_whole_board_is_known_by_its_uuid_and_a_processor_has_none(sees):
    sees(seen("node1", [2]))
    assert placement.board_of("cuda:0", "node1") == placement.gpu_of("cuda:0") == "GPU-c"
    assert placement.board_of("cpu", "node1") is None
