"""Heartbeats: every rank sends root a small UDP datagram a second, from a thread that does not use MPI.

A datagram is a truncated HMAC-SHA256 under the run's token, followed by JSON. Root answers each one. From the answer a
rank learns by which of root's addresses it reaches root, and what root tells all ranks. Silence is measured by the
receiver's own clock: clocks of two hosts are never compared.
"""

import hmac
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from az_mpi.core.silence import SilenceTimer

EVERY_S = 1.0  # between two beats of a rank
SILENT_S = 5.0  # without a new beat: Offline
FAREWELLS = 3  # datagrams can be lost
LAST_WORDS_S = 2.0  # a rank that fails waits at most so long for root's answer
ADDRESSES_MAX = 8
_SIGNATURE_BYTES, _DATAGRAM_BYTES = 16, 1400  # fits one Ethernet frame
_LOOK_EVERY_S = 0.5


class Beat(NamedTuple):
    """The newest beat of a rank: its content (None: never heard) and the seconds of silence since then."""

    content: dict | None
    silent_s: float


def own_addresses() -> list[str]:
    """Return this host's IPv4 addresses without loopback ones; those that its own name resolves to come first."""
    import psutil

    try:
        found = socket.gethostbyname_ex(socket.gethostname())[2]
    except OSError:
        found = []  # a host that does not know its own name
    rows = [row for rows in psutil.net_if_addrs().values() for row in rows if row.family == socket.AF_INET]
    found += [row.address for row in rows]
    return [name for name in dict.fromkeys(found) if not name.startswith("127.")][:ADDRESSES_MAX]


def pack(token: str, message: dict[str, Any]) -> bytes:
    """Return a JSON-able dict as a signed datagram."""
    body = json.dumps(message).encode()
    return _signature(token, body) + body


def unpack(token: str, datagram: bytes) -> dict[str, Any] | None:
    """Return the dict in a datagram, or None if it does not belong to this run."""
    signature, body = datagram[:_SIGNATURE_BYTES], datagram[_SIGNATURE_BYTES:]
    if len(datagram) > _DATAGRAM_BYTES or not hmac.compare_digest(signature, _signature(token, body)):
        return None
    return json.loads(body)


def _signature(token, body):
    return hmac.digest(token.encode(), body, "sha256")[:_SIGNATURE_BYTES]


class Listener:
    """Root's end: receives the beats of `size` ranks on UDP `port`, in a daemon thread.

    on_urgent(rank, content): called in that thread with the last words of a rank, before they are answered.
    on_silence(rank): called in it, once, when a rank has not been heard for `silence_s`; not for a rank that was never
    heard. reply(): what the answers to ranks say in addition, a small dict. address: where it listens, "": everywhere.
    """

    def __init__(
        self,
        token: str,
        size: int,
        on_urgent: Callable[[int, dict[str, Any]], object] | None = None,
        silence_s: float = math.inf,
        on_silence: Callable[[int], object] | None = None,
        reply: Callable[[], dict[str, Any]] = dict,
        clock: Callable[[], float] = time.monotonic,
        address: str = "",
    ):
        self._token, self._on_urgent, self._silence_s, self._on_silence = token, on_urgent, silence_s, on_silence
        self._reply = reply
        self._left = set()  # the ranks that have announced their end
        self._contents = [None] * size  # by rank: what its newest beat said
        # By rank; the value is the number of its newest beat.
        self._timers = [SilenceTimer(2 * _LOOK_EVERY_S, clock) for _ in range(size)]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        self._socket.settimeout(_LOOK_EVERY_S)
        self.port = self._socket.getsockname()[1]
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="heartbeats", daemon=True)
        self._thread.start()

    def beats(self) -> list[Beat]:
        """Return the `Beat` of each rank, by rank. May be called from any thread."""
        return [Beat(content, timer.seconds()) for content, timer in zip(self._contents, self._timers)]

    def close(self) -> None:
        """Stop listening; `beats` can still be called."""
        self._closed = True
        with suppress(OSError):
            self._socket.sendto(b"", ("127.0.0.1", self.port))  # wakes the thread up
        self._thread.join(2 * _LOOK_EVERY_S)  # it may be busy with last words and a slow disk
        self._socket.close()

    def _listen(self):
        looked = time.monotonic()
        while not self._closed:
            try:
                datagram, sender = self._socket.recvfrom(_DATAGRAM_BYTES + 1)
            except TimeoutError:
                datagram = b""
            except OSError:
                if self._closed:
                    return
                raise
            message = unpack(self._token, datagram)
            if message and "content" in message:  # not one of our own answers, sent back
                self._take(message, sender)
            if (now := time.monotonic()) - looked < _LOOK_EVERY_S:
                continue
            looked = now
            for rank, timer in enumerate(self._timers):
                if timer.look(timer.value) > self._silence_s and self._contents[rank] and rank not in self._left:
                    self._on_silence(rank)
                    return

    def _take(self, message, sender):
        rank, count = message["rank"], message["count"]
        if count > (self._timers[rank].value or 0):  # else a copy, or a datagram that was overtaken
            self._contents[rank] = message["content"]
            self._timers[rank].look(count)
            if message["last"]:
                self._left.add(rank)
            if message["urgent"] and self._on_urgent:
                self._on_urgent(rank, message["content"])
        answer = pack(self._token, {"heard": count, "route": message["route"], **self._reply()})
        try:
            self._socket.sendto(answer, sender)
        except OSError:
            pass  # the rank's next beat asks again


class Sender:
    """A rank's end: sends `content()` to root each second, in a daemon thread.

    addresses: (host, port) of root, the likeliest first. All are used until root's answer says which one reached it,
    and again after SILENT_S without a new answer. on_silence(0): called in the thread, once, when root has not answered
    for `silence_s`; not if it has never answered. on_reply(reply): called in it with each new answer.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        token: str,
        rank: int,
        content: Callable[[], dict[str, Any]],
        silence_s: float = math.inf,
        on_silence: Callable[[int], object] | None = None,
        on_reply: Callable[[dict[str, Any]], object] | None = None,
    ):
        self._addresses, self._token, self._rank, self._content = addresses, token, rank, content
        self._on_reply = on_reply
        self._silence_s, self._on_silence = silence_s, on_silence
        self._count, self._heard, self._route = 0, 0, None  # beats sent; the newest that was answered; of `addresses`
        self._answers = SilenceTimer(2 * EVERY_S)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        self._thread.start()

    @property
    def route(self) -> tuple[str, int] | None:
        """The (host, port) by which this rank reaches root; None while that is not known."""
        return None if self._route is None else self._addresses[self._route]

    def close(self) -> None:
        """Stop, and tell root so: this rank does not time out."""
        self._stop.set()
        self._thread.join()
        for _ in range(FAREWELLS):
            self._beat(last=True)
        self._socket.close()

    def close_with_last_words(self) -> bool:
        """Stop, and send `content()` once more; return whether root has answered within LAST_WORDS_S."""
        self._stop.set()
        self._thread.join(_LOOK_EVERY_S)
        first, until = self._count + 1, time.monotonic() + LAST_WORDS_S
        while self._heard < first and time.monotonic() < until:
            self._beat(urgent=True)
            time.sleep(0.05)
            self._hear()
        return self._heard >= first

    def _run(self):
        while not self._stop.is_set():
            self._beat()
            self._stop.wait(EVERY_S)
            self._hear()
            if self._answers.look(self._heard) > self._silence_s and self._heard:
                self._on_silence(0)
                return

    def _beat(self, urgent=False, last=False):
        self._count += 1
        message = {"rank": self._rank, "count": self._count, "urgent": urgent, "last": last}
        message["content"] = self._content()
        if self._answers.seconds() > SILENT_S:
            self._route = None
        for route in range(len(self._addresses)) if self._route is None else [self._route]:
            try:
                self._socket.sendto(pack(self._token, message | {"route": route}), self._addresses[route])
            except OSError:
                pass  # not reachable now; the next beat tries again

    def _hear(self):
        """Read the answers that have arrived."""
        while True:
            try:
                answer = unpack(self._token, self._socket.recv(_DATAGRAM_BYTES + 1))
            except OSError:
                return
            if answer and "heard" in answer:
                if self._on_reply and answer["heard"] > self._heard:
                    self._on_reply(answer)
                self._heard = max(self._heard, answer["heard"])
                if self._route is None or answer["route"] < self._route:
                    self._route = answer["route"]
