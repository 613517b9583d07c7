"""A strict server for clients under test: the server core of `mqtt` behind a socket, with sessions that last."""

import asyncio
import ssl
from types import TracebackType

from mqtt.limits import ConnectionLimits
from mqtt.packets import Properties
from tests.unit.mqtt.server_session import ServerSession

HOST = "127.0.0.1"


class ServerHost:
    """`async with ServerHost() as server:`; one session, for one client at a time. What the client must not do is an
    assertion of :class:`ServerSession`, and collects in `faults`."""

    def __init__(self, connack: Properties | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.session = ServerSession(ConnectionLimits(), connack)
        self.drop_at: set[int] = set()  # reads after which the connection breaks, before anything is answered
        self.reads = 0
        self.faults: list[BaseException] = []
        self.connections = 0
        self.is_deaf = False  # whether it ignores what it is sent
        self.is_closed = False  # whether it ends new connections at once
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "ServerHost":
        self._server = await asyncio.start_server(self._serve, HOST, 0, ssl=self._tls)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.url = f"{'mqtt' if self._tls is None else 'mqtts'}://{HOST}:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.close()
        self.drop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if error is None:
            assert not self.faults, self.faults

    def drop(self) -> None:
        """Breaks the connection."""
        if self._writer is not None:
            self._writer.transport.abort()

    def deliver(self, topic: str, payload: bytes, qos: int, properties: Properties | None = None) -> None:
        """A message for the client, now or when it connects."""
        self.session.deliver(topic, payload, qos, properties)
        self._flush()

    def _flush(self) -> None:
        connection = self.session.connection
        if connection is not None and self._writer is not None:
            self._writer.write(connection.outgoing())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.is_closed:
            writer.transport.abort()
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.drop()
        self.session.eof()
        self._writer = writer
        self.connections += 1
        now = asyncio.get_running_loop().time
        self.session.begin(now())
        try:
            while data := await reader.read(65_536):
                if self._writer is not writer:
                    return
                if self.is_deaf:
                    continue
                self.session.receive(data, now())
                self.reads += 1
                if self.reads in self.drop_at:
                    return
                self._flush()
        except AssertionError as fault:
            self.faults.append(fault)
        except OSError:
            pass
        finally:
            if self._writer is writer:
                self.session.eof()
                self.session.connection = self._writer = None
            writer.transport.abort()
