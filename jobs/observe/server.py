"""`/metrics`, `/healthz` and `/readyz` of a Spark application over HTTP, on threads of their own.

A connection serves one request, which has to arrive in time, and the number of connections is limited, so that nobody
can block others by holding connections.
"""

import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, MetricsHandler

from jobs.errors import JobError

CONNECTIONS = 20
"""HTTP connections at a time; further ones are closed on arrival."""

LONGEST_S = 10.0
"""How long a connection may be open."""

LOOK_S = 0.5
"""How often open connections are checked; stopping takes as long."""

ALIVE = ("/healthz", "/livez")

log = structlog.get_logger(__name__)

Report = Callable[[], dict[str, object]]


class Place(NamedTuple):
    """Where to listen (port 0: any free one), and the settings that configure it."""

    host: str
    port: int
    host_setting: str
    port_setting: str


class ObserverServer:
    """Serves `registry`, and the readiness in `report` (`{"ready": bool, "parts": …}`), until stopped.

    Listens from the start. Raises JobError if the port is taken or the address is not of this machine. With
    `awaits_place` it listens as soon as it can instead: a process that replaces another starts alongside it.
    """

    def __init__(self, place: Place, registry: CollectorRegistry, report: Report, awaits_place: bool = False) -> None:
        self._make = partial(_Server, (place.host, place.port), registry, report)
        self._stopped = Event()
        self._server: _Server | None = None
        try:
            self._server = self._make()
        except (OSError, OverflowError) as error:
            if not awaits_place:
                raise JobError(
                    f"cannot serve metrics on {place.host}:{place.port}: {error}; set {place.host_setting} to an "
                    f"address of this machine and {place.port_setting} to a free port, or to 0 for any free one"
                ) from error
        shown = f"[{place.host}]" if ":" in place.host else place.host
        self.address = f"{shown}:{self._server.server_port if self._server else place.port}"
        """`host:port`."""
        self._thread = Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _serve(self) -> None:
        while self._server is None and not self._stopped.wait(LOOK_S):
            with suppress(OSError):  # the process before us has not released it yet
                self._server = self._make()
        if self._server is None:
            return
        self._server.timeout = LOOK_S
        while not self._stopped.is_set():
            self._server.handle_request()
            self._server.service_actions()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], registry: CollectorRegistry, report: Report) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.registry = registry
        self.report = report
        self._opened: dict[socket.socket, float] = {}
        self._lock = Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Skips the reverse lookup of the address, which nobody needs and which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_room = len(self._opened) < CONNECTIONS
            if is_room:
                self._opened[request] = time.monotonic()
        if is_room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._opened.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Runs regularly: closes connections open for too long, which ends their threads."""
        now = time.monotonic()
        with self._lock:
            for request, opened in self._opened.items():
                if now - opened > LONGEST_S:
                    _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that has gone away; all else is our mistake."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.error("cannot answer an HTTP request", error=repr(error))


class _Handler(MetricsHandler):
    """Answers one GET. :mod:`http.server` answers malformed and oversized requests; nothing is logged."""

    timeout = LONGEST_S
    server_version = "waystation"
    sys_version = ""
    server: _Server

    def setup(self) -> None:
        self.registry = self.server.registry
        super().setup()

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        path = self.path.partition("?")[0]
        if path == "/metrics":
            super().do_GET()
        elif path in ALIVE:
            self._answer(HTTPStatus.OK, b"ok\n", "text/plain; charset=utf-8")
        elif path == "/readyz":
            health = self.server.report()
            status = HTTPStatus.OK if health["ready"] else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, json.dumps(health).encode(), "application/json")
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "use /metrics, /healthz or /readyz")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # it has already gone
        connection.shutdown(socket.SHUT_RDWR)
