"""`subscribe`: prints messages, and acknowledges each only after it has been printed.

Guarantee: a message of QoS 1 or 2 that was not written to standard output is not acknowledged, so it is redelivered to
a persistent session (`--client-id`). It is printed twice only if the program dies between printing and acknowledging.
Order: as the gateway sends. After a lost connection the client reconnects; after a lost session it resubscribes and
says so on standard error. It ends with an error if reconnecting cannot help.
"""

import asyncio
import contextlib
import errno
import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from edge.errors import ConnectionLost, ConnectRefused, MqttClientError
from edge.hooks import Hooks
from edge.mqtt_client import MqttClient
from edge.reconnect import FullJitter, StayConnected, is_final
from jobs.cli.access_options import over_mqtt
from jobs.cli.connecting import (
    LIMITS,
    Access,
    InTurn,
    Qos,
    explained,
    is_elsewhere_better,
)
from jobs.cli.context import shared
from jobs.cli.message_format import FORMATS, Format
from jobs.errors import JobError
from jobs.output import errors
from mqtt.client_events import Closed, EndedBy, SessionLost
from mqtt.codes import ReasonCode
from mqtt.errors import ProtocolError
from mqtt.packets import Connect, Properties, Publish

KEPT_S = 86_400
RECEIVE_MAXIMUM = 1_000
RETRY_MOST_S = 10.0

# Reason codes of a gateway's DISCONNECT after which reconnecting helps. After any other one (kicked, taken over, no
# longer authorised, a fault of ours) it would only undo what somebody wanted, or fail again.
_PASSING = frozenset(
    {
        ReasonCode.UNSPECIFIED_ERROR,
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
        ReasonCode.SERVER_UNAVAILABLE,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.KEEP_ALIVE_TIMEOUT,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
        ReasonCode.CONNECTION_RATE_EXCEEDED,
        ReasonCode.MAXIMUM_CONNECT_TIME,
    }
)


def register(app: typer.Typer) -> None:
    app.command()(subscribe)


@over_mqtt
def subscribe(
    context: typer.Context,
    filters: Annotated[
        list[str],
        typer.Argument(metavar="FILTER...", help="Topic filters: `+` matches one level, `#` all remaining levels."),
    ],
    qos: Qos = 1,
    count: Annotated[int | None, typer.Option(min=1, help="Exit after this many messages.")] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            help="Use this client id and keep its session for a day. Messages are queued while it is offline."
        ),
    ] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="text: topic and payload on one line; json: one object per line; raw: the bytes of the payload."
        ),
    ] = Format.TEXT,
    *,
    access: Access,
) -> None:
    """Subscribe and print every message until Ctrl-C. Each message is acknowledged after it is printed.

    Examples:

        waystation subscribe 'flights/JFK/#' 'weather/+'
        waystation subscribe --client-id alice 'news/#'    also receives messages to @alice
        waystation subscribe --client-id jobs --count 1 'jobs/#'
        waystation subscribe --format json '#' | head -3
    """
    where = access.where(shared(context))
    properties: Properties = {"receive_maximum": min(count or RECEIVE_MAXIMUM, RECEIVE_MAXIMUM)}
    if client_id:
        properties["session_expiry_interval"] = KEPT_S
    connect = access.connect_packet(client_id, properties, clean_start=not client_id)
    printer = _Printer(FORMATS[format])
    with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it
        asyncio.run(_Subscribing(where, connect, printer).run(filters, qos, count))


class _Printer:
    """Writes messages to standard output without holding up the event loop while the reader is slow."""

    def __init__(self, line: Callable[[Publish], bytes]) -> None:
        self._line, self._fd = line, sys.stdout.fileno()
        mode = os.fstat(self._fd).st_mode
        self._is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)

    async def write(self, message: Publish) -> None:
        """Returns once the message is written. Raises BrokenPipeError."""
        line = self._line(message)
        if len(line) <= select.PIPE_BUF and self._poll.poll(0):
            self._write_all(line)
        else:
            await asyncio.to_thread(self._write_all, line)

    def _write_all(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    async def reader_gone(self) -> None:
        """Raises BrokenPipeError once nobody reads the output any more, even if nothing is being written."""
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        if not self._is_pipe:
            await gone.wait()
        loop.add_reader(self._fd, gone.set)  # on a write end, the loop reports only that the reader has closed
        try:
            await gone.wait()
        finally:
            loop.remove_reader(self._fd)
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has closed it")


class _Subscribing:
    """One client that prints what it receives, over any number of connections."""

    def __init__(self, where: InTurn, connect: Connect, printer: _Printer) -> None:
        self._printer, self._where = printer, where
        self._client = MqttClient(
            where,
            connect,
            limits=LIMITS,
            manual=True,
            hooks=Hooks(
                on_connected=lambda _: where.connected(), on_session_lost=self._session_lost, on_closed=self._closed
            ),
        )

    async def run(self, filters: list[str], qos: int, count: int | None) -> None:
        """Returns after `count` messages. Raises JobError, BrokenPipeError."""
        client, backoff = self._client, FullJitter(most_s=RETRY_MOST_S)
        try:
            async with StayConnected(client, backoff, self._gives_up), asyncio.TaskGroup() as tasks:
                gone = tasks.create_task(self._printer.reader_gone())
                try:
                    await client.wait_connected()
                    await client.subscribe(*filters, qos=qos)
                    await self._print(count)
                finally:
                    gone.cancel()
                    await client.disconnect()
        except BaseExceptionGroup as group:
            raise _first(group) from group

    async def _print(self, count: int | None) -> None:
        printed = 0
        async for message in self._client.messages():
            await self._printer.write(message)
            self._client.acknowledge(message)
            printed += 1
            if printed == count:
                return

    def _gives_up(self, error: Exception) -> bool:
        if self._client.connack is None:
            return not (self._where.has_more and is_elsewhere_better(error))  # it never connected: report why at once
        if isinstance(error, ConnectionLost) and error.closed.by is EndedBy.SERVER:
            return error.reason not in _PASSING
        return is_final(error) or (isinstance(error, ConnectRefused) and error.reason not in _PASSING)

    def _closed(self, closed: Closed) -> None:
        if closed.by is not EndedBy.CLIENT and not self._gives_up(ConnectionLost(closed)):
            errors().print(f"lost the connection ({closed.detail}); reconnecting", style="yellow")

    def _session_lost(self, lost: SessionLost) -> None:
        errors().print(
            "the gateway no longer has the session; subscribed again, but messages sent in between may be missing",
            style="yellow",
        )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to end with: BrokenPipeError first, then the client's error as a sentence."""
    broken, _ = group.split(BrokenPipeError)
    if broken is not None:
        return BrokenPipeError(errno.EPIPE, "the reader of the output has closed it")
    error = group.exceptions[0]
    if isinstance(error, BaseExceptionGroup):
        return _first(error)
    if isinstance(error, MqttClientError):
        return explained(error)
    return JobError(str(error)) if isinstance(error, ProtocolError) else error
