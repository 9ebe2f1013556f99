"""Which host is root, the first in mpirun's list or another one, and in which order ranks are then. And the other hosts
that a configuration names."""

import pytest

from az_mpi.config.schema import Selfplay
from az_mpi.core import host_names
from az_mpi.core.problems import Refusal
from az_mpi.mpi import named_hosts, root_host
from az_mpi.mpi.alone import Alone

HOSTFILE = "# ours\n\n  node3 slots=2 # the trainer\nnode1 slots=2\n"


@pytest.mark.parametrize(
    "words, first",
    [
        ("mpirun -np 4 -H node2:2,node1:2 python run_dist.py", "node2"),
        ("mpirun --host=user@10.0.0.2:2,node1 python run_dist.py", "10.0.0.2"),
        ("mpirun -np 2 --hostfile hosts python run_dist.py", "node3"),
        ("mpirun --machinefile {folder}/hosts python run_dist.py", "node3"),
        ("mpirun --hostfile hosts -H node1 python run_dist.py", "node3"),
        ("mpirun --hostfile missing python run_dist.py", None),
        ("mpirun -H +n1,+n0 python run_dist.py", None),
        ("mpirun -np 2 python run_dist.py", None),
        ("mpirun -H", None),
        ("", None),
    ],
)
def test_the_first_host_of_a_command_line(tmp_path, words, first):
    (tmp_path / "hosts").write_text(HOSTFILE)
    assert root_host.first_listed(words.format(folder=tmp_path).split(" "), tmp_path) == first


class Job:
    """What `order` uses of the World of a rank on node2, in a job with ranks on node1, node2 and node2."""

    rank, is_root, host, hosts = 1, False, "node2", ["node1", "node2", "node2"]

    def share(self, item):
        return self.listed

    def collect(self, item):
        return [name == self.wanted for name in self.hosts]

    def reorder(self, first):
        return ["reordered", first]


@pytest.mark.parametrize(
    "wanted, listed, result",
    [
        ("node2", None, ["reordered", True]),
        ("node1", None, ["reordered", False]),
        ("node1", "node2", ["reordered", False]),  # what is configured counts
        ("", "node2", ["reordered", True]),
        ("", "node3", "as it was"),  # a host without ranks, such as one beyond -np
        ("", None, "as it was"),
    ],
)
def test_the_ranks_of_the_host_chosen_come_first(wanted, listed, result):
    job = Job()
    job.listed, job.wanted = listed, wanted or listed
    assert root_host.order(job, wanted) == (job if result == "as it was" else result)


def test_a_host_without_ranks_is_refused_unless_it_was_lost(monkeypatch):
    for variable in (named_hosts.RESTARTS, "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(variable, raising=False)
    job = Job()
    job.listed = job.wanted = "node9"
    with pytest.raises(Refusal, match='"node9" is none of the hosts of this job: node1, node2'):
        root_host.order(job, "node9")
    for variable in (named_hosts.RESTARTS, "SLURM_RESTART_COUNT"):
        monkeypatch.setenv(variable, "1")
        assert root_host.order(job, "node9") is job
        monkeypatch.setenv(variable, "0")


def test_a_name_of_this_machine():
    assert host_names.is_here("localhost") and host_names.is_here("127.0.0.1") and host_names.is_here("127.0.0.9")
    assert not host_names.is_here("203.0.113.7") and not host_names.is_here("no-such-host.invalid")


def test_the_short_name_of_a_host_means_it_and_so_does_the_full_one(monkeypatch):
    monkeypatch.setattr(host_names.socket, "gethostname", lambda: "Node7.cluster.example")
    assert host_names.is_here("node7") and host_names.is_here("node7.cluster.EXAMPLE")
    assert not host_names.is_here("node8") and not host_names.is_here("cluster.example")
    values = {"node8": 2.0, "node7": 3.0}
    assert host_names.value_here(values, 1.0) == 3.0 and host_names.value_here({"node8": 2.0}, 1.0) == 1.0


def weights(deterministic=True, **values):
    return Selfplay(deterministic=deterministic, weights=values)


def test_weights_that_would_not_count_are_refused(monkeypatch):
    for variable in (named_hosts.RESTARTS, "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(variable, raising=False)
    world = Alone()
    named_hosts.check_weights(weights(False), world)
    named_hosts.check_weights(weights(localhost=2.0), world)
    with pytest.raises(Refusal, match="they count only with selfplay.deterministic"):
        named_hosts.check_weights(weights(False, localhost=2.0), world)
    with pytest.raises(Refusal, match='selfplay.weights: "node9" is none of the hosts of this job: ' + world.host):
        named_hosts.check_weights(weights(localhost=2.0, node9=1.0), world)
    with pytest.raises(Refusal, match="localhost and 127.0.0.1 are one host"):
        named_hosts.check_weights(weights(localhost=2.0, **{"127.0.0.1": 1.0}), world)
    monkeypatch.setenv(named_hosts.RESTARTS, "1")
    named_hosts.check_weights(weights(localhost=2.0, node9=1.0), world)  # its host may be lost
