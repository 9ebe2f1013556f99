"""Heartbeats over real sockets: lost, copied, forged and huge datagrams, routes, silence and last words."""

import os
import socket
import threading
import time
from collections import namedtuple

import pytest

from az_mpi.liveness import heartbeat
from az_mpi.liveness.heartbeat import Listener, Sender, pack, unpack
from az_mpi.liveness.monitor import Monitor

TOKEN = "a token"


def wait_until(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.005)


@pytest.fixture
def listener():
    listener = Listener(TOKEN, 3)
    yield listener
    listener.close()


@pytest.fixture
def say(listener):
    """Return say(bytes): send a datagram to the listener. Answers come to say.socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(30)

        def say(datagram):
            sock.sendto(datagram, ("127.0.0.1", listener.port))

        say.socket = sock
        yield say


def message(count, rank=1, content=None, urgent=False, last=False):
    return {
        "rank": rank,
        "count": count,
        "urgent": urgent,
        "last": last,
        "route": 0,
        "content": content or {"count": count},
    }


def heard(listener, rank=1):
    return listener.beats()[rank].content


def test_only_a_reader_with_the_token_can_read_a_datagram():
    assert unpack(TOKEN, pack(TOKEN, {"a": [1, "x"]})) == {"a": [1, "x"]}
    assert unpack("another", pack(TOKEN, {"a": 1})) is None
    datagram = bytearray(pack(TOKEN, {"a": 1}))
    for place in range(len(datagram)):  # no bit of it can be changed
        datagram[place] ^= 1
        assert unpack(TOKEN, bytes(datagram)) is None
        datagram[place] ^= 1


def test_beats_are_counted_by_rank(listener):
    games = iter(range(1, 100))
    sender = Sender([("127.0.0.1", listener.port)], TOKEN, 2, lambda: {"games": next(games)})
    wait_until(lambda: (heard(listener, 2) or {}).get("games", 0) >= 2)  # the first at once, then each second
    sender.close()
    assert [heard(listener, rank) for rank in (0, 1)] == [None, None]
    assert listener.beats()[2].silent_s < listener.beats()[0].silent_s


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"x",
        b"\0" * 16,
        b"garbage" * 10,
        os.urandom(1400),
        b"\0" * 60_000,
        pack("wrong", message(9)),
        pack(TOKEN, message(9))[:-1],
        pack(TOKEN, message(9)) + b" " * 2000,
        pack(TOKEN, {"heard": 9, "route": 0}),  # one of root's own answers, sent back to it
    ],
    ids=["empty", "one byte", "zeros", "garbage", "random", "huge", "token", "cut", "padded", "reflected"],
)
def test_a_datagram_of_another_run_changes_nothing(listener, say, datagram):
    say(datagram)
    say(pack(TOKEN, message(1, rank=0)))
    assert unpack(TOKEN, say.socket.recv(2000)) == {"heard": 1, "route": 0}  # of the good one, the only answer
    assert heard(listener, 0) == {"count": 1} and heard(listener, 1) is None


def test_lost_beats_are_no_silence_and_repeated_ones_no_sign_of_life(listener, say):
    say(pack(TOKEN, message(1)))
    wait_until(lambda: heard(listener) == {"count": 1})
    say(pack(TOKEN, message(7)))  # 2 to 6 were lost
    wait_until(lambda: heard(listener) == {"count": 7})
    moved = time.monotonic()
    for old in (7, 3):  # a copy, and one that was overtaken: answered, but the counter does not move
        say(pack(TOKEN, message(old, content={"forged": True})))
    for answer in (1, 7, 7, 3):
        assert unpack(TOKEN, say.socket.recv(2000))["heard"] == answer
    time.sleep(0.2)
    before = time.monotonic()
    beat = listener.beats()[1]
    assert beat.content == {"count": 7} and beat.silent_s >= before - moved
    say(pack(TOKEN, message(8)))
    wait_until(lambda: heard(listener) == {"count": 8})
    assert listener.beats()[1].silent_s < time.monotonic() - before


def test_silence_while_root_itself_slept_does_not_count():
    ahead = [0.0]
    listener = Listener(TOKEN, 1, clock=lambda: time.monotonic() + ahead[0])
    sender = Sender([("127.0.0.1", listener.port)], TOKEN, 0, dict)
    wait_until(lambda: heard(listener, 0) == {})
    ahead[0] = 60.0  # as after a SIGSTOP of a minute
    assert listener.beats()[0].silent_s < heartbeat.SILENT_S
    sender.close()
    listener.close()


def test_the_address_that_reaches_root_is_found_and_kept(listener):
    """No socket listens at the first of two addresses. Then the route is lost and found again."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        addresses = [nobody.getsockname(), ("127.0.0.1", listener.port)]
        sender = Sender(addresses, TOKEN, 0, dict)
        wait_until(lambda: sender.route == addresses[1])
        tried = 0
        nobody.setblocking(False)
        count = sender._count
        wait_until(lambda: sender._count >= count + 2)
        try:
            while nobody.recv(2000):
                tried += 1
        except BlockingIOError:
            pass
        assert tried < sender._count  # once the way is known the other address is left in peace
        sender.close()


def test_words_of_root_reach_every_rank(monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.05)
    said, heard_by = {"news": 1}, {1: [], 2: []}
    listener = Listener(TOKEN, 3, reply=lambda: said)
    senders = [
        Sender(
            [("127.0.0.1", listener.port)],
            TOKEN,
            rank,
            dict,
            on_reply=lambda told, rank=rank: heard_by[rank].append(told["news"]),
        )
        for rank in heard_by
    ]
    for news in (1, 2):
        said["news"] = news
        wait_until(lambda news=news: all(news in heard for heard in heard_by.values()))
    for one in (*senders, listener):
        one.close()
    assert all(heard == sorted(heard) for heard in heard_by.values())


def test_an_unreachable_address_does_not_stop_the_heart(listener):
    addresses = [("255.255.255.255", 9), ("127.0.0.1", listener.port)]  # broadcasting is refused by the kernel
    sender = Sender(addresses, TOKEN, 0, lambda: {"fine": True})
    wait_until(lambda: heard(listener, 0) == {"fine": True})
    sender.close()


class Gate:
    """A way to the listener that loses the first `lost` datagrams."""

    def __init__(self, port, lost):
        self.outside, self.inside = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self.outside.bind(("127.0.0.1", 0))
        self.place, self.port, self.lost, self.client = self.outside.getsockname(), port, lost, None
        for work in (self.forward, self.back):
            threading.Thread(target=work, daemon=True).start()

    def forward(self):
        while True:
            datagram, self.client = self.outside.recvfrom(2000)
            if self.lost:
                self.lost -= 1
            else:
                self.inside.sendto(datagram, ("127.0.0.1", self.port))

    def back(self):
        while self.client is None:
            time.sleep(0.001)
        while True:
            self.outside.sendto(self.inside.recv(2000), self.client)


def test_last_words_are_said_until_root_has_acted_on_them():
    state, acted = {"state": "Active"}, []
    listener = Listener(TOKEN, 2, on_urgent=lambda rank, content: acted.append((rank, dict(content))))
    gate = Gate(listener.port, lost=2)
    sender = Sender([gate.place], TOKEN, 1, lambda: state)
    wait_until(lambda: sender._count >= 1)
    state["state"] = "Error"
    assert sender.close_with_last_words()
    assert acted[0] == (1, {"state": "Error"})  # before the answer, which was waited for
    listener.close()


def test_last_words_that_no_root_answers_end_in_a_bounded_time(monkeypatch):
    monkeypatch.setattr(heartbeat, "LAST_WORDS_S", 0.2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert not Sender([nobody.getsockname()], TOKEN, 1, dict).close_with_last_words()


def test_own_addresses_are_ipv4_and_none_is_the_loopback(monkeypatch):
    import psutil

    def row(address):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return namedtuple("Row", ["family", "address"])(family, address)

    rows = {"lo": ["127.0.0.1"], "eth0": ["fd00::1", "192.168.7.7"], "ib0": ["10.9.0.1"]}
    rows = {name: list(map(row, addresses)) for name, addresses in rows.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: rows)
    monkeypatch.setattr(socket, "gethostbyname_ex", lambda name: (name, [], ["127.0.1.1", "10.9.0.1"]))
    assert heartbeat.own_addresses() == ["10.9.0.1", "192.168.7.7"]  # first what the host's name stands for


def test_every_rank_of_a_world_finds_root(world, tmp_path):
    monitor = Monitor(world, tmp_path, 60.0, lambda: {"here": True}, lambda: 0.0, None, None)
    wait_until(lambda: monitor.beats()[0].content)
    assert monitor.beats()[0].content["here"]
    wait_until(lambda: monitor._sender.route == ("127.0.0.1", monitor.port))  # the same host
    monitor.close()


def test_a_rank_that_falls_silent_is_missed_once_and_one_that_says_farewell_is_not(say, listener, monkeypatch):
    """Rank 0 was never heard, 1 falls silent, 2 says that it ends."""
    missed = []
    monkeypatch.setattr(listener, "_silence_s", 0.6)
    monkeypatch.setattr(listener, "_on_silence", missed.append)
    for one in (message(1), message(1, rank=2), message(2, rank=2, last=True)):
        say(pack(TOKEN, one))
    wait_until(lambda: missed)
    time.sleep(0.8)
    assert missed == [1]


def test_a_sender_misses_root_by_the_beats_that_were_not_answered(monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.05)
    listener, missed = Listener(TOKEN, 2), []
    sender = Sender([("127.0.0.1", listener.port)], TOKEN, 1, dict, 1.0, missed.append)
    wait_until(lambda: sender.route)
    time.sleep(1.2)
    assert missed == []
    listener.close()
    wait_until(lambda: missed)
    assert missed == [0] and sender._count - sender._heard >= 10  # each counts as 0.1 s at most
    sender.close()
