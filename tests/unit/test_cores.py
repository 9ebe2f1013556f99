"""How many cores each rank uses: affinity and the quotas of cgroups, divided among the ranks of a host."""

import pytest

from az_mpi.core.host_facts import cpu_quotas
from az_mpi.mpi.cores import Allowed, in_words, share

EIGHT = list(range(8))


@pytest.fixture
def tree(tmp_path):
    """Return a function that makes files of a tree of cgroups and returns the quotas of a process in it."""

    def quotas(own, **files):
        (tmp_path / "own").write_text(own)
        for path, text in files.items():
            file = tmp_path / "mount" / path.replace("__", "/").replace("_dot_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return cpu_quotas(str(tmp_path / "own"), str(tmp_path / "mount"))

    return quotas


def test_quotas_of_version_2_are_those_of_the_group_and_of_all_above_it(tree):
    assert (
        sorted(
            tree(
                "0::/pod/box\n",
                cpu_dot_max="max 100000\n",
                pod__cpu_dot_max="250000 100000\n",
                pod__box__cpu_dot_max="20000 40000\n",
            )
        )
        != []
    )
    found = tree("0::/pod/box\n")
    assert sorted(found.values()) == [0.5, 2.5]
    assert tree("0::/pod/other\n").items() < found.items(), "a group has the same key for all of its processes"


def test_the_cgroup_of_a_container_is_its_top_group(tree):
    assert list(tree("0::/\n", cpu_dot_max="150000 100000\n").values()) == [1.5]
    assert list(tree("0::/system.slice/docker-1.scope\n").values()) == [1.5], "the host's path is not visible there"
    assert list(tree("0::/../../elsewhere\n").values()) == [1.5]


def test_quotas_of_version_1_are_those_of_the_group_and_of_all_above_it(tree):
    own = "4:cpu,cpuacct:/pod/box\n3:memory:/pod\n1:name=systemd:/x\n0::/pod\n"
    files = {
        "cpu__cpu_dot_cfs_quota_us": "-1\n",
        "cpu__cpu_dot_cfs_period_us": "100000\n",
        "cpu__pod__cpu_dot_cfs_quota_us": "300000\n",
        "cpu__pod__cpu_dot_cfs_period_us": "100000\n",
        "cpu__pod__box__cpu_dot_cfs_quota_us": "25000\n",
        "cpu__pod__box__cpu_dot_cfs_period_us": "50000\n",
    }
    assert sorted(tree(own, **files).values()) == [0.5, 3.0]


@pytest.mark.parametrize("text", ["", "max\n", "max 100000\n", "100000\n", "100000 0\n", "a b\n", "-1 100000\n"])
def test_a_file_that_names_no_quota_limits_nothing(tree, text):
    assert tree("0::/\n", cpu_dot_max=text) == {}


def test_without_cgroups_there_is_no_quota(tmp_path):
    assert cpu_quotas(str(tmp_path / "none"), str(tmp_path)) == {}


def shares(*ranks):
    everyone = [Allowed(*rank) for rank in ranks]
    return [share(mine, everyone) for mine in everyone]


def test_without_a_quota_the_cores_are_divided_among_the_ranks_that_share_them():
    assert shares(("a", EIGHT, {})) == [8]
    assert shares(*[("a", EIGHT, {})] * 3) == [2, 2, 2]
    assert shares(*[("a", EIGHT, {})] * 9) == [1] * 9
    assert shares(("a", [0, 1, 2, 3], {}), ("a", [4, 5], {}), ("b", EIGHT, {})) == [4, 2, 8]


def test_a_quota_is_divided_among_the_ranks_of_its_group_and_rounded_down():
    assert shares(("a", EIGHT, {"g": 2.5})) == [2]
    assert shares(*[("a", EIGHT, {"g": 5.9})] * 2) == [2, 2]
    assert shares(("a", EIGHT, {"g": 0.5})) == [1], "a rank has at least one core"
    assert shares(("a", EIGHT, {"g": 100.0})) == [8], "the least of quota and affinity"
    assert shares(*[("a", EIGHT, {"g": 6.0, "h": 3.0})] * 2) == [1, 1], "the smallest of several quotas"


def test_ranks_in_groups_of_their_own_do_not_share_a_quota():
    """Such groups are those of two containers on one host, and those of two hosts even if their keys are equal."""
    assert shares(("a", EIGHT, {"g": 3.0}), ("a", EIGHT, {"h": 2.0})) == [3, 2]
    assert shares(("a", EIGHT, {"g": 3.0}), ("b", EIGHT, {"g": 3.0})) == [3, 3]
    assert shares(("a", EIGHT, {"pod": 4.0, "g": 3.0}), ("a", EIGHT, {"pod": 4.0, "h": 3.0})) == [2, 2]


def test_the_table_names_a_quota_that_limits_a_rank():
    assert in_words(8, Allowed("a", EIGHT, {})) == "8"
    assert in_words(8, Allowed("a", EIGHT, {"g": 8.0})) == "8"
    assert in_words(2, Allowed("a", EIGHT, {"g": 2.5, "h": 7.0})) == "2, quota 2.5"
