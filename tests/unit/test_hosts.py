"""Lists of hosts: what they mean; names that ssh or a shell could misread are refused."""

import os
import string

import pytest

from az_mpi.core.arguments import Parser
from az_mpi.core.problems import Refusal
from az_mpi.launch import hosts
from az_mpi.launch.hosts import Host


@pytest.mark.parametrize(
    "text, expected",
    [
        ("node1", [Host("node1")]),
        ("10.0.0.1:2,node2:2", [Host("10.0.0.1", 2), Host("node2", 2)]),
        ("a-b_c.Example.org:1024", [Host("a-b_c.Example.org", 1024)]),
        ("localhost:1,127.0.0.1:01", [Host("localhost", 1), Host("127.0.0.1", 1)]),
        ("1node:3,n0de.1a:2", [Host("1node", 3), Host("n0de.1a", 2)]),
        ("a" * 63 + "." + "b" * 63, [Host("a" * 63 + "." + "b" * 63)]),
    ],
)
def test_a_list_of_hosts_is_read_as_written(text, expected):
    assert hosts.parse(text) == expected


# (entry, what the refusal must say)
BAD_SLOTS = [
    "0",
    "-1",
    "+1",
    "1025",
    "2.5",
    "two",
    "",
    " 2",
    "2 ",
    "0x2",
    "1e1",
    "\u0662",
    "\u00b2",
    "1_0",
    "9999999999999",
    "2;reboot",
    "2\n",
    "2\x00",
    "2:3",
    ":",
]
BAD_NAMES = [
    "",
    ":2",
    "-node1:2",
    "-oProxyCommand=x",
    "--",
    "-",
    "root@node1:2",
    "@node1",
    "node1@",
    "::",
    "::1",
    "[::1]:2",
    "[fe80::1%eth0]:4",
    "[2001:db8::7]",
    "[node1]:2",
    "node[1-3]:2",
    "n\u00f6de1",
    "nod\u0435",
    "node\u20281",
    "node1\u200b",
    "\uff4eode1",
    "\ud83d",
    "node1.",
    ".node1",
    "node..1",
    "node-:1",
    "node1.-a",
    "a" * 64,
    "a." * 200 + "b",
    "x" * 100_000,
    *(f"node{char}1" for char in string.punctuation if char not in ".-_,:"),
    *(f"node{chr(code)}1" for code in (*range(0, 33), 127, 0x85, 0xA0)),
    "$(id)",
    "`id`",
    "node1;id",
    "node1|id",
    "node1&",
    "'node1'",
    '"node1"',
    "node1>x",
    "~root",
    "*",
    "?",
    "a b",
    "node1 -oProxyCommand=id",
    "node1\tb",
    "!1",
    "{a",
    "node1\\",
    "%h",
    "a=b",
    "#node1",
    "../etc",
    "a/b",
]
BAD_ADDRESSES = ["10.0.0", "10.0.0.256", "10.0.0.1.2", "1234", "0x7f000001", "0x7f.1", "010.0.0.1", "node.7", "2001:2"]
BAD = [
    *((f"node1:{slots}", "from 1 to 1024") for slots in BAD_SLOTS),
    ("fe80::1%eth0", "from 1 to 1024"),
    *((name, "is no host's name") for name in BAD_NAMES),
    *((name, "is no IPv4") for name in BAD_ADDRESSES),
    *((name, "not the address") for name in ("0.0.0.0", "224.0.0.1", "255.255.255.255")),
]


@pytest.mark.parametrize("entry, says", BAD, ids=lambda value: ascii(value)[:40])
def test_bad_entries_are_refused(entry, says):
    with pytest.raises(Refusal, match=says) as refused:
        hosts.parse(f"good1:2,{entry}")
    lines = str(refused.value).split("\n")
    assert len(lines) == 3 and lines[0] == "--hosts: 1 problem; no host was contacted"
    assert all(line.isascii() and line.isprintable() and len(line) < 300 for line in lines)


@pytest.mark.parametrize("text", ["a:2,a:2", "a,A", "b,a:1,c,a:3"])
def test_a_host_that_is_listed_twice_is_refused(text):
    with pytest.raises(Refusal, match="the host is listed twice"):
        hosts.parse(text)


def test_ten_problems_of_a_list_are_shown_and_the_others_counted():
    with pytest.raises(Refusal) as refused:
        hosts.parse("-a,b:0,ok,c@d," + "$," * 20)
    lines = str(refused.value).split("\n")
    assert lines[0].startswith("--hosts: 24 problems") and len(lines) == 1 + 10 + 1 + 1
    assert "'-a'" in lines[1] and "'b:0'" in lines[2] and "'c@d'" in lines[3] and lines[11] == "  ... and 14 more"


def test_more_than_4096_hosts_are_refused():
    assert len(hosts.parse(",".join(f"n{k}" for k in range(4096)))) == 4096
    with pytest.raises(Refusal, match="4097 hosts: at most 4096"):
        hosts.parse(",".join(f"n{k}" for k in range(4097)))


def write(folder, content):
    path = folder / "hosts.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content, expected",
    [
        ("node1 slots=2\nnode2 slots=4 max_slots=4\n", [Host("node1", 2), Host("node2", 4)]),
        ("node1:2\nnode2:3", [Host("node1", 2), Host("node2", 3)]),
        (
            "# ours\n\n  node1\tslots=2   # the fast one\r\n\t\n#node9\n10.0.0.2 max-slots=8",
            [Host("node1", 2), Host("10.0.0.2")],
        ),
        (b"\xef\xbb\xbfnode1\n", [Host("node1")]),
    ],
)
def test_hostfiles_of_open_mpi_and_mpich_are_read(tmp_path, content, expected):
    assert hosts.read(write(tmp_path, content)) == expected


@pytest.mark.parametrize(
    "content, says",
    [
        ("", "names no host"),
        ("# only words\n\n", "names no host"),
        ("node1 slots=0", "line 1: .*from 1 to 1024"),
        ("node1\n\nnode2 slots=x", "line 3: .*from 1 to 1024"),
        ("node1 slots=", "from 1 to 1024"),
        ("node1 slots = 2", "'slots' is not understood"),
        ("node1 2", "'2' is not understood"),
        ("node1:2 slots=2", "the slots are given twice"),
        ("node1 slots=2 slots=3", "the slots are given twice"),
        ("node1 slots=4 max_slots=2", "slots is 4, max_slots 2"),
        ("node1 cpu=2", "'cpu=2' is not understood"),
        ("node1:2 ifname=eth0", "is not understood"),
        ("node1 SLOTS=2", "is not understood"),
        ("node1 slots=2 -oProxyCommand=id", "is not understood"),
        ("node1;id", "no host's name"),
        ("-node1 slots=2", "no host's name"),
        ("root@node1 slots=2", "~/.ssh/config"),
        ("node1\nnode1\n", "line 2: .*twice"),
        ("node1, node2", "no host's name"),
        ("node1\x0bnode2", "no host's name"),
        ("node1\x00", "no host's name"),
        ("[::1] slots=2", "no host's name"),
        (b"node\xff1 slots=2", "not text: byte 5"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "no host's name"),
        (b"node1\n" * 200_000, "larger than"),
        ('{"hosts": ["node1"]}', "no host's name"),
        ("node1\u2028node2", "no host's name"),
        ("node1 slots=\u0664", "from 1 to 1024"),
    ],
)
def test_bad_hostfiles_are_refused(tmp_path, content, says):
    with pytest.raises(Refusal, match=says) as refused:
        hosts.read(write(tmp_path, content))
    assert str(refused.value).isascii() and str(refused.value).count("\n") <= 12


def test_a_host_that_a_slurm_job_does_not_have_is_not_added():
    job = {"SLURM_JOB_NODELIST": "node[1-3]", "SLURM_TASKS_PER_NODE": "2(x3)"}
    hosts.refuse_outside_job(hosts.parse("node3:2"), job)
    hosts.refuse_outside_job(hosts.parse("node9:2"), {})
    with pytest.raises(Refusal, match="--add node9:2.*node1, node2, node3"):
        hosts.refuse_outside_job(hosts.parse("node3,node9:2"), job)


def test_a_hostfile_that_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", "/dev/zero", tmp_path / "pipe", "a\x00b", ""):
        with pytest.raises(Refusal, match="^--hostfile"):
            hosts.read(path)


@pytest.mark.parametrize(
    "nodes, tasks, expected",
    [
        ("node[1-3,07],login.b", "2(x3),1,4", "node1:2,node2:2,node3:2,node07:1,login.b:4"),
        ("node[08-11]", "1(x4)", "node08:1,node09:1,node10:1,node11:1"),
        ("r[1-2]n[3-4]-ib", "", "r1n3-ib,r1n4-ib,r2n3-ib,r2n4-ib"),
        ("a,b", "2", "a,b"),
        ("", "2", ""),
    ],
)
def test_the_nodes_of_a_slurm_job_are_its_hosts_and_its_tasks_their_slots(nodes, tasks, expected):
    found = hosts.from_slurm({"SLURM_JOB_NODELIST": nodes, "SLURM_TASKS_PER_NODE": tasks})
    assert ",".join(map(str, found)) == expected


def test_options_without_hosts_mean_the_nodes_of_the_slurm_job_and_those_with_hosts_do_not(monkeypatch, tmp_path):
    """compare and suggest read the options like this; launch, which they start, must get the same hosts."""
    for name in ("SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    parser = Parser("compare", "")
    hosts.add_options(parser)
    (tmp_path / "hostfile").write_text("c slots=3\n")

    def found(*words):
        options = parser.parse_args([*words])
        assert hosts.words(options) == [*words]
        return ",".join(map(str, hosts.listed(options)))

    assert found() == found("--np", "2") == found("--no_check") == ""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "4(x2)")
    assert found() == found("--np", "2") == "n1:4,n2:4"
    assert found("--hosts", "a:2,b:1") == "a:2,b:1" and found("--hostfile", str(tmp_path / "hostfile")) == "c:3"


@pytest.mark.parametrize("nodes", ["-a", "$(id)", "n[1-999999]", "n[a-b]", "n[1-2", "a;b"])
def test_a_malformed_list_of_slurm_nodes_is_refused(nodes):
    with pytest.raises(Refusal, match="SLURM_JOB_NODELIST"):
        hosts.from_slurm({"SLURM_JOB_NODELIST": nodes})


@pytest.mark.parametrize(
    "given, options, chosen, ranks",
    [
        ("", {}, "localhost:1", 1),
        ("", {"np": 3}, "localhost:3", 3),
        ("", {"gpus": 4, "nodes": 1}, "localhost:4", 4),
        ("", {"gpus": 4, "np": 2}, "localhost:4", 2),
        ("a:2,b:3", {}, "a:2,b:3", 5),
        ("a:2,b:3", {"np": 4}, "a:2,b:3", 4),
        ("a,b:3", {}, "a:1,b:3", 4),
        ("a,b,c", {"nodes": 2, "gpus": 4}, "a:4,b:4", 8),
        ("a:4,b", {"gpus": 4}, "a:4,b:4", 8),
    ],
)
def test_options_choose_the_hosts_slots_and_ranks_of_a_job(given, options, chosen, ranks):
    found, np = hosts.choose(hosts.parse(given) if given else [], **options)
    assert (",".join(map(str, found)), np) == (chosen, ranks)


@pytest.mark.parametrize(
    "given, options, says",
    [
        ("", {"nodes": 2}, "--nodes 2: the hosts are not known"),
        ("", {"gpus": 2, "np": 3}, "--np 3: the hosts have 2 slots"),
        ("a,b", {"nodes": 3}, "--nodes 3: only 2 hosts given"),
        ("a:2,b:3", {"np": 6}, "--np 6: the hosts have 5 slots: a:2,b:3"),
        ("a:2,b:4,c", {"gpus": 4}, "--gpus 4 asks for 4 ranks on each host, the list says a:2"),
    ],
)
def test_options_that_do_not_fit_the_hosts_are_refused(given, options, says):
    with pytest.raises(Refusal, match=says):
        hosts.choose(hosts.parse(given) if given else [], **options)
