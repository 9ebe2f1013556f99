"""The trainers, and remarks on devices. Rows are [host, device] of each rank."""

from types import SimpleNamespace

import pytest
from helpers import make_config

from az_mpi.core.problems import Refusal
from az_mpi.mpi import placement
from az_mpi.mpi.placement import place, remarks, trainers

CPUS = [["a", "cpu"], ["a", "cpu"], ["b", "cpu"], ["b", "cpu"], ["c", "cpu"]]
# Round robin over two hosts, the second with a GPU for two of its three ranks; a CPU host comes first.
MIXED = [["a", "cpu"], ["b", "cuda:0"], ["a", "cpu"], ["b", "cuda:1"], ["b", "cuda:0"]]


@pytest.mark.parametrize(
    "ranks, places, expected",
    [
        ("all", CPUS, "TTTTT"),
        ("root_host", CPUS, "TT..."),
        ("root_host", [["a", "cpu"], ["b", "cpu"], ["a", "cpu"]], "T.T"),
        ("gpu", CPUS, "....."),
        ("gpu", MIXED, ".T.T."),
        ("root_host", MIXED, "T.T.."),
        (2, CPUS, "TT..."),
        (9, CPUS, "TTTTT"),
    ],
)
def test_trainers_by_hand(ranks, places, expected):
    assert trainers(ranks, places) == [mark == "T" for mark in expected]


class Ranks:
    """The world of `rank` of several, whose places are given."""

    def __init__(self, places, rank=0):
        self.places, self.rank, self.host = places, rank, places[rank][0]

    def collect(self, item):
        assert item == self.places[self.rank]
        return self.places

    def reorder(self, first):
        return SimpleNamespace(came_first=first)


@pytest.fixture(autouse=True)
def gpus(monkeypatch):
    """GPUs whose UUID is their name in `places`."""
    monkeypatch.setattr(placement, "gpu_of", lambda device: None if device == "cpu" else device)


def test_ranks_that_each_see_their_own_gpu_all_train(monkeypatch):
    """Each rank names its GPU cuda:0, as with CUDA_VISIBLE_DEVICES or srun --gpus-per-task=1."""
    places = [["a", "GPU-1"], ["a", "GPU-2"], ["b", "GPU-3"]]
    config = make_config("connect4", train={"ranks": "gpu"})
    for rank, (_, gpu) in enumerate(places):
        monkeypatch.setattr(placement, "gpu_of", lambda device, gpu=gpu: gpu)
        world, num_trainers = place(config, Ranks(places, rank), "cuda:0")
        assert world.came_first and num_trainers == 3


def test_place_puts_the_trainers_first():
    config = make_config("connect4", train={"ranks": "gpu"})
    got = [place(config, Ranks(MIXED, rank), MIXED[rank][1]) for rank in range(5)]
    assert [world.came_first for world, _ in got] == [False, True, False, True, False]
    assert {num for _, num in got} == {2}


def test_trainers_with_and_without_gpus_are_refused():
    """Their weights would differ after the first step."""
    with pytest.raises(Refusal, match="would train on GPUs and on processors"):
        place(make_config("connect4", train={"ranks": "all"}), Ranks(MIXED), "cpu")


def test_without_a_choice_of_the_user_each_gpu_trains_and_processors_where_there_is_none():
    found = [
        [place(make_config("connect4"), Ranks(places, rank), places[rank][1])[0].came_first for rank in range(5)]
        for places in (MIXED, CPUS)
    ]
    assert found == [[False, True, False, True, False], [True] * 5]


def test_gpu_without_any_is_refused():
    with pytest.raises(Refusal, match="no rank sees a GPU"):
        place(make_config("connect4", train={"ranks": "gpu"}), Ranks(CPUS), "cpu")


@pytest.mark.parametrize("ranks, refused", [("all", True), ("root_host", False), (4, False), (5, True)])
def test_a_batch_smaller_than_its_trainers_is_refused_with_the_numbers(ranks, refused):
    config = make_config("connect4", train={"batch_size": 4})
    config = config.model_copy(update={"train": config.train.model_copy(update={"ranks": ranks})})
    if not refused:
        place(config, Ranks(CPUS), "cpu")
        return
    with pytest.raises(Refusal) as raised:
        place(config, Ranks(CPUS), "cpu")
    assert "4 samples" in str(raised.value) and "5 ranks" in str(raised.value)
    assert "--set train.ranks=4" in str(raised.value)


@pytest.mark.parametrize(
    "hosts, gpus, expected",
    [
        ("aab", {"a": 0, "b": 0}, []),
        ("ab", {"a": 1, "b": 1}, []),
        ("aab", {"a": 1, "b": 1}, ["a has 2 ranks and 1 GPU: some share one; give each a single rank"]),
        (
            "ab",
            {"a": 4, "b": 4},
            ["a has 4 GPUs and 1 rank: some stay idle", "b has 4 GPUs and 1 rank: some stay idle"],
        ),
        ("aabb", {"a": 2, "b": 0}, ["hosts have different numbers of GPUs: a 2, b 0"]),
    ],
)
def test_remarks_name_processors_and_gpus_that_stay_unused(hosts, gpus, expected):
    assert remarks(list(hosts), gpus) == expected


def test_a_device_that_cannot_be_used_is_refused(monkeypatch):
    def held(*shape, device):
        if device == "cuda:1":
            raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA kernel errors might")

    monkeypatch.setattr(placement.torch, "zeros", held)
    placement.open_device("cuda:0")
    with pytest.raises(Refusal, match="cuda:1 cannot be used: CUDA error: all CUDA-capable"):
        placement.open_device("cuda:1")
