"""Which backend can be used between which devices, and where ranks meet over TCP."""

import socket
from types import SimpleNamespace

import pytest

from az_mpi.core.problems import Refusal
from az_mpi.mpi.peers import PeerLost
from az_mpi.train import backends
from az_mpi.train.backends import ddp_backend, tcp_address
from az_mpi.train.backends.ddp_backend import DdpBackend, NcclSum
from az_mpi.train.backends.horovod_backend import MIXED, HorovodBackend


def test_gpus_of_their_own_are_needed_for_nccl(world):
    for gpus, carrier in [((), "gloo"), ([None], "gloo"), (["GPU-1"], "nccl")]:
        backend = DdpBackend(world, gpus)
        assert backend.carrier == carrier and backend.problem is None and carrier in backend.describe()


class Work:
    """A sum that ends, or raises, when it has been looked at three times; without an end: never."""

    def __init__(self, ends=True, error=None):
        self.ends, self.error, self.looks, self.waited = ends, error, 0, False

    def is_completed(self):
        self.looks += 1
        return self.ends and self.looks >= 3

    def wait(self):
        self.waited = True
        if self.error:
            raise self.error


def test_a_sum_over_gpus_ends_at_a_lost_rank_and_raises_errors(monkeypatch):
    done = Work()
    monkeypatch.setattr(ddp_backend, "is_lost", lambda comm: False)
    NcclSum(done, None).wait()
    assert done.waited and done.looks == 3
    with pytest.raises(RuntimeError, match="NCCL"):
        NcclSum(Work(error=RuntimeError("NCCL: unhandled system error")), None).wait()
    hanging = Work(ends=False)
    monkeypatch.setattr(ddp_backend, "is_lost", lambda comm: hanging.looks > 4)
    with pytest.raises(PeerLost):
        NcclSum(hanging, None).wait()
    assert not hanging.waited


@pytest.mark.parametrize("gpus", [["GPU-1", "GPU-1"], ["GPU-1", None], [None, None]])
def test_ranks_that_share_a_gpu_or_have_none_take_gloo(world, gpus):
    backend = DdpBackend(world, gpus)
    assert backend.carrier == "gloo" and ("train.ranks=gpu" in backend.describe()) == (gpus != [None, None])


def test_horovod_refuses_gpus_it_cannot_reduce_on(world, monkeypatch):
    import horovod.torch as hvd

    assert HorovodBackend(world, [None, None]).problem is None
    monkeypatch.setattr(hvd, "cuda_built", lambda: False)
    assert "on processors only" in HorovodBackend(world, ["GPU-1", None]).problem
    assert HorovodBackend(world, ["GPU-1"]).problem is None  # one trainer reduces nothing
    monkeypatch.setattr(hvd, "cuda_built", lambda: True)
    assert HorovodBackend(world, ["GPU-1", "GPU-2"]).problem is None
    assert "two ranks are to train on one GPU" in HorovodBackend(world, ["GPU-1", "GPU-1"]).problem
    monkeypatch.setattr(hvd, "mpi_built", lambda: False)
    assert "without MPI" in HorovodBackend(world, [None, None]).problem


def test_a_problem_is_refused_by_name(world, monkeypatch):
    monkeypatch.setattr("az_mpi.train.backends.horovod_backend._problem", lambda gpus: "of this test")
    two = SimpleNamespace(size=2, collect=lambda item: [item, item])
    with pytest.raises(Refusal, match=r'train.backend: "horovod" cannot be used on rank \[0\]: of this test'):
        backends.make("horovod", world, two, "cpu")
    assert backends.make("horovod", world, world, "cpu").problem is None  # one trainer does without
    assert backends.make("horovod", world, None, "cpu") is None  # this rank does not train


def test_auto_is_horovod_or_torchs_own_where_a_rank_cannot_use_that(world, monkeypatch):
    two = SimpleNamespace(size=2, collect=lambda item: [item, item])
    kinds = {"horovod": HorovodBackend, "ddp": lambda world, gpus: SimpleNamespace(problem=None, remark="")}
    monkeypatch.setattr(backends, "KINDS", kinds)
    made = backends.make("auto", world, two, "cpu")
    assert isinstance(made, HorovodBackend) and made.remark == ""
    monkeypatch.setattr("az_mpi.train.backends.horovod_backend._problem", lambda gpus: "of this test\n  a cure")
    assert backends.make("auto", world, two, "cpu").remark == (
        'ddp sums the gradients: "horovod" cannot be used on rank [0]: of this test'
    )
    monkeypatch.setattr("az_mpi.train.backends.horovod_backend._problem", lambda gpus: f"{MIXED}: of this test")
    with pytest.raises(Refusal, match=f'"horovod" cannot be used on rank .0.: {MIXED}'):
        backends.make("auto", world, two, "cpu")  # two MPI libraries are loaded
    monkeypatch.setattr("az_mpi.train.backends.horovod_backend._problem", lambda gpus: "of this test\n  a cure")
    kinds["ddp"] = lambda world, gpus: SimpleNamespace(problem="nor this")
    with pytest.raises(Refusal, match=r'(?s)"horovod" cannot .*: of this test.*"ddp" cannot .*: nor this'):
        backends.make("auto", world, two, "cpu")


class Hosts:
    """Root of a world of two hosts, as far as `meeting_address` asks; `arrive` is what the other host does."""

    rank, local_rank, is_root, hosts = 0, 0, True, ["a", "a", "b"]

    def __init__(self, arrive):
        self.arrive = arrive

    def share(self, item):
        self.shared = item
        return item

    def barrier(self):
        self.arrive(*self.shared)


def say(port, text):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(text)


@pytest.fixture
def addresses(monkeypatch):
    """Three addresses of root: one that nobody answers at, two that are really here."""
    monkeypatch.setattr(tcp_address, "_addresses", lambda alone: ["192.0.2.1", "127.0.0.1", "127.0.0.2"])
    monkeypatch.setattr(tcp_address, "PROBE_S", 0.2)


def test_the_address_that_every_host_reaches_is_taken(addresses):
    def arrive(port, addresses, secret):
        say(port, f"{secret} 2 2".encode())

    assert tcp_address.meeting_address(Hosts(arrive)) == "127.0.0.2"


def test_calls_without_the_secret_are_not_counted(addresses):
    def arrive(port, addresses, secret):
        for text in (b"GET / HTTP/1.1", b"", b"2 1", b"0 2 1", secret.encode(), b"x" * 100_000, b"\xff\xfe 2 1"):
            say(port, text)
        say(port, f"{secret} 2 1 1".encode())

    assert tcp_address.meeting_address(Hosts(arrive)) is None


def test_connections_that_say_nothing_or_half_a_call_neither_delay_nor_hide_those_of_ranks(addresses, monkeypatch):
    monkeypatch.setattr(tcp_address, "PROBE_S", 1.0)  # for all of them; one each would be longer than a test may take
    strangers = []

    def arrive(port, addresses, secret):
        for k in range(300):
            strangers.append(socket.create_connection(("127.0.0.1", port)))
            strangers[-1].sendall(b"12ab" * (k % 2))
        say(port, f"{secret} 2 2".encode())
        strangers.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(100))

    assert tcp_address.meeting_address(Hosts(arrive)) == "127.0.0.2"
    for one in strangers:
        one.close()


def test_the_store_of_ddp_listens_at_the_one_address_that_it_was_given():
    store = ddp_backend.listen("127.0.0.2")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", store.port))
    store.set("a", "b")
    assert ddp_backend.connect("127.0.0.2", store.port).get("a") == b"b"


def test_loopback_is_for_one_host_and_a_users_choice_comes_first(monkeypatch):
    interfaces = [("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("ib0", "10.1.0.1")]
    monkeypatch.setattr(tcp_address, "_interfaces", lambda: interfaces)
    assert tcp_address._addresses(alone=True) == ["127.0.0.1"]
    assert tcp_address._addresses(alone=False) == ["10.0.0.1", "10.1.0.1"]
    monkeypatch.setattr(tcp_address, "CHOSEN", "ib0,ib1")
    assert tcp_address._addresses(alone=False) == tcp_address._addresses(alone=True) == ["10.1.0.1"]
    assert tcp_address.interface_towards("10.0.0.9") == "ib0,ib1"


def test_the_interface_towards_this_host_is_loopback():
    assert tcp_address.interface_towards("127.0.0.1") == "lo"
