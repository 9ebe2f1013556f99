"""Which hosts a job gets when hosts are lost, come back, are added or removed."""

from argparse import Namespace

import pytest

from az_mpi.core.problems import Refusal
from az_mpi.launch import hosts
from az_mpi.launch.host_pool import HostPool


@pytest.fixture
def host_pool():
    clock = Namespace(now=0.0)
    made = HostPool(lambda: hosts.parse("a:2,b:2"), np=3, clock=lambda: clock.now)
    made.time = clock
    return made


def test_a_host_that_is_lost_often_is_waited_for_longer(host_pool):
    waits = []
    for _ in range(9):
        host_pool.lose(["b"])
        begun = host_pool.time.now
        while not host_pool.may_return("b"):
            host_pool.time.now += 10
        waits.append(host_pool.time.now - begun)
    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600] and host_pool.may_return("a")


def test_a_job_gets_the_answering_hosts_and_at_most_np_ranks(host_pool):
    def width(*names):
        chosen, np = host_pool.choose(names)
        return ",".join(map(str, chosen)), np

    assert width("b", "a") == ("a:2,b:2", 3) and width("b") == ("b:2", 2) and width() == ("", 0)
    host_pool.change(hosts.parse("c:1"), ["a"])
    assert width("a", "b", "c") == ("b:2,c:1", 3) and width("a") == ("", 0)
    host_pool.change(hosts.parse("a:4,c:2"), [])
    assert width("a", "b", "c") == ("a:4,b:2,c:2", 8)


@pytest.mark.parametrize(
    "add, remove, says",
    [
        ("", ["c"], "not among the hosts of this run: a, b"),
        ("", ["a", "b"], "no host would be left"),
        ("a:2", [], "among the hosts already"),
        ("a", [], "among the hosts already"),
    ],
)
def test_changes_that_do_not_fit_the_hosts_are_refused(host_pool, add, remove, says):
    with pytest.raises(Refusal, match=says):
        host_pool.check(hosts.parse(add) if add else [], remove)


def test_hosts_without_slots_get_those_of_gpus_at_once():
    """The check of a host, before the first job, counts a GPU for each slot."""
    made = HostPool(lambda: hosts.parse("a,b"), gpus=4)
    assert made.wanted() == [hosts.Host("a", 4), hosts.Host("b", 4)]


def test_a_host_that_is_added_again_keeps_its_slots():
    made = HostPool(lambda: hosts.parse("a:2,b:4"))
    made.change([hosts.Host("b", None), hosts.Host("c", None)], [])
    assert made.wanted() == [hosts.Host("a", 2), hosts.Host("b", 4), hosts.Host("c", 1)]
