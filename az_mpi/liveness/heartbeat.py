"""Signs of life: every rank sends root a small UDP datagram a second, from a thread that knows nothing of MPI.

A datagram is a truncated HMAC-SHA256 under the run's token, then JSON. Root answers each one, from which a rank learns
which of root's addresses reaches it, and what root tells all ranks. How long a rank has been silent is measured by
root's monotonic clock alone: no clocks of two hosts are compared.
"""

import hmac
import json
import math
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple

EVERY_S = 1.0  # between two beats of a rank
SILENT_S = 5.0  # without a new beat: Offline
FAREWELLS = 3  # datagrams can be lost
LAST_WORDS_S = 2.0  # a rank that fails waits at most so long for root's answer
ADDRESSES_MAX = 8
_SIGNATURE_BYTES, _DATAGRAM_BYTES = 16, 1400  # fits one Ethernet frame
_LOOK_EVERY_S = 0.5


class Beat(NamedTuple):
    """The newest beat of a rank: what it said (None: it was never heard) and for how many seconds it is silent now."""

    content: dict | None
    silent_s: float


def start(world, content, on_urgent=None, silence_s=math.inf, on_silence=None, reply=dict, on_reply=None):
    """Start the heartbeats of every rank and return (root's Listener, None elsewhere; this rank's Sender). Collective.

    content(): what the rank has to say, a dict whose JSON is below 1 KiB; called in the thread. on_urgent: see
    `Listener`. on_silence(rank): called in the thread, once, where root hears nothing more of a rank, or another rank
    nothing more of root, for `silence_s` in which it was awake itself. Who was never heard is not missed.
    reply(): what root says to whom it has heard, a small dict, of keys of its own; called in root's thread.
    on_reply(reply): called with each new one, in the thread that hears it.
    """
    listener, place = None, None
    if world.is_root:
        token = secrets.token_hex(16)
        listener = Listener(token, world.size, on_urgent, silence_s, on_silence, reply)
        place = [world.host, own_addresses(), listener.port, token]
    host, addresses, port, token = world.share(place)
    if host == world.host:
        addresses = ["127.0.0.1", *addresses]
    places = [(address, port) for address in addresses]
    return listener, Sender(places, token, world.rank, content, silence_s, on_silence, on_reply)


def own_addresses():
    """Return this host's IPv4 addresses without its loopback ones; first what its own name resolves to."""
    import psutil

    try:
        found = socket.gethostbyname_ex(socket.gethostname())[2]
    except OSError:
        found = []  # a host that does not know its own name
    rows = [row for rows in psutil.net_if_addrs().values() for row in rows if row.family == socket.AF_INET]
    found += [row.address for row in rows]
    return [name for name in dict.fromkeys(found) if not name.startswith("127.")][:ADDRESSES_MAX]


def pack(token, message):
    """Return the datagram of a JSON-able dict, signed."""
    body = json.dumps(message).encode()
    return _signature(token, body) + body


def unpack(token, datagram):
    """Return the dict in a datagram, or None for one that is not of this run."""
    signature, body = datagram[:_SIGNATURE_BYTES], datagram[_SIGNATURE_BYTES:]
    if len(datagram) > _DATAGRAM_BYTES or not hmac.compare_digest(signature, _signature(token, body)):
        return None
    return json.loads(body)


def _signature(token, body):
    return hmac.digest(token.encode(), body, "sha256")[:_SIGNATURE_BYTES]


class Listener:
    """Root's ear: hears `size` ranks on UDP `port`, in a daemon thread.

    on_urgent(rank, content): called in that thread for a rank's last words, before they are answered.
    """

    def __init__(self, token, size, on_urgent=None, silence_s=math.inf, on_silence=None, reply=dict):
        self._token, self._on_urgent, self._silence_s, self._on_silence = token, on_urgent, silence_s, on_silence
        self._reply = reply
        self._left = set()  # the ranks that have said that they end
        self._last = [(0, None, time.monotonic())] * size  # by rank: counter, content, when the counter moved
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.settimeout(_LOOK_EVERY_S)
        self.port = self._socket.getsockname()[1]
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name="heartbeats", daemon=True)
        self._thread.start()

    def beats(self):
        """Return the `Beat` of each rank, by rank. May be called from any thread."""
        now = time.monotonic()
        return [Beat(content, now - moved) for _, content, moved in self._last]

    def close(self):
        """Stop listening; what was heard stays readable."""
        self._closed = True
        with suppress(OSError):
            self._socket.sendto(b"", ("127.0.0.1", self.port))  # it need not wait for its time to be up
        self._thread.join(2 * _LOOK_EVERY_S)  # it may be busy with last words and a slow disk
        self._socket.close()

    def _listen(self):
        looked = compared = time.monotonic()
        while not self._closed:
            try:
                datagram, sender = self._socket.recvfrom(_DATAGRAM_BYTES + 1)
            except TimeoutError:
                datagram = b""
            except OSError:
                if self._closed:
                    return
                raise
            now = time.monotonic()
            if now - looked > SILENT_S / 2:  # it was this process that slept: what came meanwhile is yet to be read
                self._last = [(count, content, now) for count, content, _ in self._last]
            looked = now
            message = unpack(self._token, datagram)
            if message and "content" in message:  # not one of our own answers, sent back
                self._take(message, sender, now)
            if now - compared < _LOOK_EVERY_S:
                continue
            compared = now
            for rank, (_, content, moved) in enumerate(self._last):
                if content and rank not in self._left and now - moved > self._silence_s:
                    self._on_silence(rank)
                    return

    def _take(self, message, sender, now):
        rank, count = message["rank"], message["count"]
        if count > self._last[rank][0]:  # else a copy, or overtaken on the way
            self._last[rank] = (count, message["content"], now)
            if message["last"]:
                self._left.add(rank)
            if message["urgent"] and self._on_urgent:
                self._on_urgent(rank, message["content"])
        answer = pack(self._token, {"heard": count, "route": message["route"], **self._reply()})
        try:
            self._socket.sendto(answer, sender)
        except OSError:
            pass  # it will ask again


class Sender:
    """A rank's heart: sends `content()` to root each second, in a daemon thread.

    addresses: (host, port) of root, the likeliest first. All are tried until root's answer says which one it heard, and
    again when it has been silent for SILENT_S.
    """

    def __init__(self, addresses, token, rank, content, silence_s=math.inf, on_silence=None, on_reply=None):
        self._addresses, self._token, self._rank, self._content = addresses, token, rank, content
        self._on_reply = on_reply
        self._silence_s, self._on_silence = silence_s, on_silence
        self._count, self._heard, self._route, self._answered = 0, 0, None, time.monotonic()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)
        self._thread.start()

    @property
    def route(self):
        """The (host, port) at which root hears this rank; None while that is not known."""
        return None if self._route is None else self._addresses[self._route]

    def close(self):
        """Stop beating, and say so, that nobody misses this rank."""
        self._stop.set()
        self._thread.join()
        for _ in range(FAREWELLS):
            self._beat(last=True)
        self._socket.close()

    def close_with_last_words(self):
        """Stop, and say `content()` once more; return whether root has taken notice, within LAST_WORDS_S."""
        self._stop.set()
        self._thread.join(_LOOK_EVERY_S)
        first, until = self._count + 1, time.monotonic() + LAST_WORDS_S
        while self._heard < first and time.monotonic() < until:
            self._beat(urgent=True)
            pause = time.monotonic() + _LOOK_EVERY_S
            while self._heard < first and time.monotonic() < pause:
                time.sleep(0.01)
                self._hear()
        return self._heard >= first

    def _run(self):
        while not self._stop.is_set():
            self._beat()
            self._stop.wait(EVERY_S)
            self._hear()
            # Beats are counted, not seconds: this process may have slept.
            if self._heard and (self._count - self._heard) * EVERY_S > self._silence_s:
                self._on_silence(0)
                return

    def _beat(self, urgent=False, last=False):
        self._count += 1
        message = {"rank": self._rank, "count": self._count, "urgent": urgent, "last": last}
        message["content"] = self._content()
        if time.monotonic() - self._answered > SILENT_S:
            self._route = None
        for route in range(len(self._addresses)) if self._route is None else [self._route]:
            try:
                self._socket.sendto(pack(self._token, message | {"route": route}), self._addresses[route])
            except OSError:
                pass  # no way there now; the next beat tries again

    def _hear(self):
        """Read the answers that have come."""
        while True:
            try:
                answer = unpack(self._token, self._socket.recv(_DATAGRAM_BYTES + 1))
            except OSError:
                return
            if answer and "heard" in answer:
                if self._on_reply and answer["heard"] > self._heard:
                    self._on_reply(answer)
                self._heard, self._answered = max(self._heard, answer["heard"]), time.monotonic()
                if self._route is None or answer["route"] < self._route:
                    self._route = answer["route"]
