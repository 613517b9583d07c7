"""`/metrics`, `/healthz` and `/readyz` of the dispatcher (HTTP/1.1, a request a connection).

Who connects may be anybody: requests are short, few at a time, and must arrive in time.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from schemas.readiness import readiness_report

CONNECTIONS: Final = 20
LONGEST_S: Final = 10.0
_REQUEST_BYTES: Final = 8192

_COUNTERS: Final = {
    "accepted": ("waystation_dispatcher_connections_accepted", "Connections that the dispatcher accepted"),
    "taken": ("waystation_dispatcher_connections_given", "Connections that a gateway of this machine has taken"),
    "returned": (
        "waystation_dispatcher_connections_returned",
        "How often a gateway ended or stood still before it took a connection, which then went to another one",
    ),
    "member_records_skipped": (
        "waystation_member_records_skipped",
        "Records on the topic members that are not valid, and were skipped",
    ),
    "lease_records_skipped": (
        "waystation_lease_records_skipped",
        "Records on the topic leases that are not valid, and were skipped",
    ),
}
_REFUSED: Final = {"full": "full", "nobody": "no_gateway", "left": "client_left"}


class DispatcherMetrics(Collector):
    """`counts` as in :class:`gateway.dispatch.dispatcher.Dispatcher`; `waiting` are connections that no gateway has
    yet, `reached` the gateways of this machine."""

    def __init__(self, counts: Counter[str], waiting: Callable[[], int], reached: Callable[[], int]) -> None:
        self._counts, self._waiting, self._reached = counts, waiting, reached

    def collect(self) -> Iterator[Metric]:
        for word, (name, meaning) in _COUNTERS.items():
            yield CounterMetricFamily(name, meaning, value=self._counts[word])
        ended = CounterMetricFamily(
            "waystation_dispatcher_connections_ended",
            "Connections that ended before a gateway had them",
            labels=["reason"],
        )
        for word, reason in _REFUSED.items():
            ended.add_metric([reason], self._counts[word])
        yield ended
        yield GaugeMetricFamily(
            "waystation_dispatcher_connections_waiting", "Connections that no gateway has yet", value=self._waiting()
        )
        yield GaugeMetricFamily(
            "waystation_dispatcher_gateways", "Gateways of this machine that take connections", value=self._reached()
        )


class DispatcherObserver:
    """Serves until it is stopped; `faults` says what is wrong with each part, "" if nothing is."""

    def __init__(self, metrics: Collector, faults: Callable[[], Mapping[str, str]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(metrics)
        ProcessCollector(registry=self._registry)
        self._faults = faults
        self._open = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=_REQUEST_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS:
                async with asyncio.timeout(LONGEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head.decode("latin-1")))
                    await writer.drain()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: str) -> bytes:
        method, _, rest = head.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method != "GET":
            return _response("405 Method Not Allowed", b"")
        if path == "/healthz":
            return _response("200 OK", b"ok\n")
        if path == "/readyz":
            faults = self._faults()
            status = "503 Service Unavailable" if any(faults.values()) else "200 OK"
            return _response(status, msgspec.json.encode(readiness_report(faults)), "application/json")
        if path == "/metrics":
            accept = [line.partition(":")[2] for line in head.lower().split("\r\n") if line.startswith("accept:")]
            encode, content_type = choose_encoder(",".join(accept))
            return _response("200 OK", encode(self._registry), content_type)
        return _response("404 Not Found", b"")


def _response(status: str, body: bytes, content_type: str = "text/plain") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + body
