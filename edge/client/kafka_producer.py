"""kafka-python's producer on a thread of its own: an idempotent producer, `acks=all` (KIP-98).

Within one producer no record is written twice and none overtakes another. kafka-python blocks, so every call of it is
made on one thread; its reports come on another, and reach the event loop in batches.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import kafka
from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from edge.client.connect_points import ConnectPoint
from edge.client.kafka_options import KafkaOptions
from edge.errors import ConnectRefused, MqttClientError, Unreachable
from edge.link import text_of
from mqtt.client_events import Closed, EndedBy
from mqtt.codes import ReasonCode

CLOSE_S: Final = 1.0
_RECORD_BYTES_MAX: Final = 64 << 20  # the broker's limit decides
_TOO_LARGE: Final = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
_CREDENTIALS: Final = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)


class Record(Protocol):
    """What is written. Without a value it removes its key from a compacted topic."""

    @property
    def partition(self) -> int: ...
    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes]]: ...


class Report(NamedTuple):
    """What became of the record that was handed over as `number`: Kafka has it at `offset`, or `error` says why not."""

    number: int
    error: Exception | None
    offset: int


class KafkaProducer:
    """`on_reports` is called on the event loop with the reports of records, in order. `more`: settings of
    kafka-python's producer."""

    def __init__(self, options: KafkaOptions, connect_s: float, answer_s: float, **more: Any) -> None:
        self._options, self._connect_s, self._answer_s, self._more = options, connect_s, answer_s, more
        self._thread = ThreadPoolExecutor(1, "waystation-kafka")
        self._loop = asyncio.get_running_loop()
        self._producer: Any = None
        self._reports: deque[Report] = deque()
        self._on_reports: Callable[[list[Report]], None] = lambda _: None

    async def open(self, point: ConnectPoint, on_reports: Callable[[list[Report]], None]) -> int:
        """Connects by way of this broker; the number of the topic's partitions. Raises Unreachable, ConnectRefused."""
        self._on_reports = on_reports
        await self._probe(point)
        try:
            partitions: int = await self._call(self._open, f"{_host(point)}:{point.port}")
            return partitions
        except (errors.KafkaError, OSError, ValueError) as error:  # OSError: TLS, or a file of a certificate
            raise connect_error(error, self._options.topic) from error

    async def send(self, records: Sequence[tuple[int, Record]]) -> None:
        """Hands records over, in order; what becomes of each is reported. The rest of them is not sent if one fails."""
        await self._call(self._send, records)

    async def close(self) -> None:
        """Ends the producer; nothing more is written or reported. Another one may be opened."""
        self._on_reports = lambda _: None
        await self._call(self._close)

    def stop(self) -> None:
        """Releases the thread."""
        self._thread.shutdown(wait=False)

    async def _probe(self, point: ConnectPoint) -> None:
        """kafka-python tries a broker that is away every 50 ms until the time is over, does not say why it is not
        reached, and leaves each socket to the garbage collector."""
        try:
            async with asyncio.timeout(self._connect_s):
                _, writer = await asyncio.open_connection(point.host, point.port)
        except TimeoutError:
            raise Unreachable(f"no answer within {self._connect_s:g} s") from None
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be encoded
            raise Unreachable(f"cannot be reached: {text_of(error)}") from error
        writer.transport.abort()

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return asyncio.shield(self._loop.run_in_executor(self._thread, call, *arguments))

    def _open(self, bootstrap: str) -> int:
        self._close()
        clients: list[_NetClient] = []

        def client(**config: Any) -> Any:
            clients.append(_NetClient(**config))
            return clients[-1]

        try:
            producer = self._new_producer(bootstrap, client)
        except BaseException as error:
            for failed in clients:  # kafka-python leaves it open
                failed.close()
                failed.connections.close_sockets()
                if isinstance(error, errors.KafkaTimeoutError) and failed.connections.failure is not None:
                    raise failed.connections.failure from error
            raise
        try:
            partitions = producer.partitions_for(self._options.topic)
            if not partitions:
                raise errors.UnknownTopicOrPartitionError()
        except BaseException:
            _end(producer)
            raise
        self._producer = producer
        return len(partitions)

    def _new_producer(self, bootstrap: str, client: Callable[..., Any]) -> Any:
        connect_ms, answer_ms = int(self._connect_s * 1000), int(self._answer_s * 1000)
        settings = {
            "bootstrap_servers": [bootstrap],
            "client_id": "waystation-client",
            "enable_idempotence": True,
            "acks": "all",
            "delivery_timeout_ms": answer_ms,
            "request_timeout_ms": max(1, answer_ms // 2),
            "max_block_ms": connect_ms,
            "bootstrap_timeout_ms": connect_ms,
            "max_request_size": _RECORD_BYTES_MAX,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
            "kafka_client": client,
        }
        return kafka.KafkaProducer(**(settings | self._options.client() | self._more))

    def _send(self, records: Sequence[tuple[int, Record]]) -> None:
        producer = self._producer
        if producer is None:
            return
        for number, record in records:
            report = partial(self._report, producer, number)
            try:
                future = producer.send(
                    self._options.topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                )
            except Exception as error:
                report(error)
                if not isinstance(error, _TOO_LARGE):
                    return
            else:
                future.add_callback(lambda found, report=report: report(None, found.offset))
                future.add_errback(report)

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            _end(producer)

    # -- on the producer's thread --------------------------------------------------------------------------------------

    def _report(self, producer: Any, number: int, error: Exception | None, offset: int = -1) -> None:
        if producer is not self._producer:
            return
        self._reports.append(Report(number, error, offset))
        if len(self._reports) == 1:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._take_reports)

    def _take_reports(self) -> None:
        reports = []
        while self._reports:
            reports.append(self._reports.popleft())
        self._on_reports(reports)


class _Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """Remembers why the first connection fails, which kafka-python only logs, and ends its attempts then: the client
    library has its own, and other brokers to try."""

    def __init__(self, net: Any, **config: Any) -> None:
        super().__init__(net, **config)
        self.failure: Exception | None = None
        self._transports: list[Any] = []

    def close_sockets(self) -> None:
        """Those of failed connections, which kafka-python leaves to the garbage collector."""
        for transport in self._transports:
            if transport._sock is not None:
                transport._sock.close()

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """As kafka-python's, which forgets a connection whose TLS handshake fails."""
        options = self.config["socket_options"]
        sock = await create_connection(self._net, node.host, node.port, options, timeout_at=timeout_at)
        tls = {name: value for name, value in self.config.items() if name.startswith("ssl_")}
        kind = KafkaSSLTransport if self.ssl_enabled else KafkaTCPTransport
        transport = kind(self._net, sock, host=node.host, **(tls if self.ssl_enabled else {}))
        if not self.bootstrapped:
            self._transports.append(transport)
        try:
            await transport.handshake()
        except Exception as error:
            raise errors.KafkaConnectionError(f"TLS handshake failed: {error}") from error
        return transport

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        connection = super().get_connection(*arguments, **options)
        connection.init_future.add_errback(self._failed)
        return connection

    def _failed(self, error: Exception) -> None:
        if not self.bootstrapped:
            self.failure = self.failure or error
            self._net.call_soon(self.close)


class _NetClient(KafkaNetClient):  # type: ignore[misc]
    """kafka-python's, with our connections."""

    def __init__(self, **config: Any) -> None:
        net = NetworkSelector(**config)
        self.connections = _Connections(net, **config)
        super().__init__(net, self.connections, **config)


def is_too_large(error: Exception) -> bool:
    """Whether Kafka will never take the record."""
    return isinstance(error, _TOO_LARGE)


def connect_error(error: Exception, topic: str) -> MqttClientError:
    """The error of an attempt to connect. Refused credentials and rights are final."""
    text = describe(error)
    if isinstance(error, _CREDENTIALS):
        return _refused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, f"Kafka refused the credentials: {text}")
    if isinstance(error, errors.AuthorizationError):
        return _refused(ReasonCode.NOT_AUTHORIZED, f"Kafka does not let this client write to {topic!r}: {text}")
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return Unreachable(f"there is no topic {topic!r}: is its prefix right?")
    return Unreachable(f"no connection, or no topic {topic!r}: {text}")


def describe(error: Exception) -> str:
    """kafka-python's errors often have no text."""
    return f"{type(error).__name__}{': ' if str(error) else ''}{str(error)[:300]}"


def _refused(reason: ReasonCode, text: str) -> ConnectRefused:
    return ConnectRefused(Closed(reason, text, EndedBy.REFUSED))


def _host(point: ConnectPoint) -> str:
    return f"[{point.host}]" if ":" in point.host else point.host


def _end(producer: Any) -> None:
    with contextlib.suppress(errors.KafkaError):
        producer.close(timeout=CLOSE_S)
    with contextlib.suppress(errors.KafkaError):
        producer.close(timeout=0)
