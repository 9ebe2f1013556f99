"""python -m az_mpi web RUN: play against the network of a run in a browser, and see what it thinks."""

import contextlib
import hmac
import http.server
import ipaddress
import json
import secrets
import socket
import sys
import threading
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from az_mpi.core.exit_codes import DONE
from az_mpi.core.problems import Refusal
from az_mpi.play.options import add_level, end_on_interrupt, make_parser
from az_mpi.player import levels
from az_mpi.player.limits import Limit

if TYPE_CHECKING:
    from az_mpi.play.web_game import WebGame

PROG = "python -m az_mpi web"
ABOUT = "Play against the network of a run in a browser, and see what it thinks. The page loads nothing from elsewhere."
EPILOG = """\
It prints the address of the page. A secret word is part of the address, and everyone who has it can play. Ctrl-C ends
the command.
"""
HERE = Path(__file__).parent
BODY_MAX, WAIT_S = 2**16, 20.0
CONNECTIONS_MAX = 64  # at a time: a browser needs six, and each has a thread
NONCE = "NONCE"  # each answer with the page has a random word in its place, so that no other script runs in it
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; script-src 'nonce-NONCE'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def main(arguments: list[str]) -> int:
    """Serve the page until Ctrl-C ends it; return the exit status. Raises Refusal."""
    parser = make_parser(PROG, ABOUT, EPILOG, timed=False)
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port of the page (by default a free one)")
    parser.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="IP",
        help="where to listen (by default 127.0.0.1, "
        "this machine only; from elsewhere use ssh -L N:127.0.0.1:N with --port N)",
    )
    add_level(parser)
    given = parser.parse_args(arguments)
    try:
        address = ipaddress.ip_address(given.address)
        if address.is_unspecified:
            raise ValueError("it stands for all addresses of this machine")
        server = Server((given.address, given.port))
    except (OSError, OverflowError, ValueError) as error:
        raise Refusal(
            f"{PROG}: cannot listen at {given.address}, port {given.port}: {error}\n"
            "  name an address of this machine and a free port, or leave both out"
        ) from error
    end_on_interrupt()
    with contextlib.closing(server.socket):
        server.game = make_game(given.run, given.checkpoint, given.simulations, given.level)
        server.game.start()
        if not address.is_loopback:
            print(
                f"warning: {given.address} can be reached from other machines. Everyone who learns the address below "
                "can play, and nothing is encrypted.",
                file=sys.stderr,
            )
        print(f"the page is at {server.url}\nCtrl-C ends it", flush=True)
        server.serve_forever()
    return DONE


def make_game(run: Path, checkpoint: str, simulations: int, level: float = levels.FULL) -> "WebGame":
    """Load a network of a run and return the game against it. simulations: for each move; 0: as in the run's matches.
    level: see `player.levels`. Raises Refusal."""
    print(f"loading {run} ({checkpoint}) ...", file=sys.stderr, flush=True)
    from az_mpi.play.run_views import RunViews
    from az_mpi.play.web_game import WebGame

    views = RunViews(run)
    about: dict[str, Any] = {"run": str(run), "checkpoints": ["newest", "best", *views.checkpoints()]}
    return WebGame(views.open_session, checkpoint, Limit(simulations), about, views.requests, level)


def page_with(back_end: Path) -> str:
    """Return the page with the script `back_end` in it, which plays the game: it defines `ask` and calls `show`, as
    served.js does."""
    script = back_end.read_text(encoding="utf-8")
    return (HERE / "web_client.html").read_text(encoding="utf-8").replace("/*BACK END*/", script)


def hosts_of(address: str, port: int) -> set[str]:
    """Return what browsers may call a server in Host: they leave out port 80, and know 127.0.0.1 as localhost too."""
    names = {address} | ({"localhost"} if address == "127.0.0.1" else set())
    return {f"{name}:{port}" for name in names} | (names if port == 80 else set())


class Server(http.server.ThreadingHTTPServer):
    """Serves the page of one game, and answers its requests. Both need `token`.

    Of CONNECTIONS_MAX connections the oldest one that has not shown the token makes place for a new one, so that
    strangers who connect and say nothing do not keep the user out."""

    daemon_threads = True
    request_queue_size = 128
    game: "WebGame"

    def __init__(self, address: tuple[str, int]):
        super().__init__(address, Handler)
        self.token = secrets.token_urlsafe(16)
        host, port = self.server_address[:2]
        self.origin = f"http://{host!s}:{port}"
        self.hosts = hosts_of(str(host), port)
        self._open: dict[Any, bool] = {}  # the connections, oldest first: whether one has shown the token
        self._lock = threading.Lock()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is place for a new connection."""
        with self._lock:
            if len(self._open) >= CONNECTIONS_MAX:
                oldest = next((one for one, known in self._open.items() if not known), None)
                if oldest is None:
                    return False
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # ends its thread
            self._open[request] = False
            return True

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def know(self, request: Any) -> None:
        """Keep this connection: it has shown the token."""
        with self._lock:
            if request in self._open:
                self._open[request] = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a connection that broke off."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"{self.origin}/?token={self.token}"


class Handler(http.server.BaseHTTPRequestHandler):
    """GET / is the page, GET /state?version=N waits for a newer state, POST /ask {"what", "argument"} is a request.

    Another site that the user has open can do none of these: it does not know the token, its requests have another
    Origin, and if it points a name of its own at this machine, its requests have another Host."""

    server: Server
    server_version, sys_version = "az_mpi", ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        try:
            place = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(place.query).items()}
            version = query.get("version", "0")
            number = int(version) if version.isdecimal() else 0
        except ValueError:  # also of a number with thousands of digits
            self._refuse(HTTPStatus.BAD_REQUEST, "this address cannot be read")
            return
        if place.path == "/" and self._may(query.get("token", "")):
            nonce = secrets.token_urlsafe(16)
            page = page_with(HERE / "served.js").replace(NONCE, nonce)
            self._answer(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8", nonce)
        elif place.path == "/state" and self._may(self.headers.get("X-Token", "")):
            self._json(self.server.game.state(number, WAIT_S))
        elif place.path not in ("/", "/state"):
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")

    def do_POST(self) -> None:
        if not self._may(self.headers.get("X-Token", "")):
            return
        length = self.headers.get("Content-Length", "")
        if self.path != "/ask" or not length.isdecimal() or len(length) > 9 or int(length) > BODY_MAX:
            self._refuse(HTTPStatus.BAD_REQUEST, "POST /ask takes a small JSON object")
            return
        try:
            asked = json.loads(self.rfile.read(int(length)))
            what, argument = str(asked["what"]), asked.get("argument")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, 'the body is {"what": NAME, "argument": ...}')
            return
        self._json({"error": self.server.game.ask(what, argument)})

    def _may(self, token: str) -> bool:
        """Return whether this request comes from the page itself. If it does not, answer it."""
        origin = self.headers.get("Origin")
        is_from_page = (
            self.headers.get("Host") in self.server.hosts
            and origin in (None, *(f"http://{host}" for host in self.server.hosts))
            and hmac.compare_digest(token.encode(), self.server.token.encode())
        )
        if is_from_page:
            self.server.know(self.connection)
        else:
            self._refuse(HTTPStatus.FORBIDDEN, "open the complete address that az_mpi web has printed")
        return is_from_page

    def _refuse(self, status, text):
        self.close_connection = True
        self._answer(status, text.encode(), "text/plain; charset=utf-8")

    def _json(self, value: Any) -> None:
        self._answer(HTTPStatus.OK, json.dumps(value).encode(), "application/json")

    def _answer(self, status, body, kind, nonce="none"):
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value.replace(NONCE, nonce))
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing, since the first request contains the token."""
