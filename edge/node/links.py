"""From a network connection to a contact: authenticates the peer, and runs one contact a peer (M5)."""

import asyncio
import contextlib
import logging
import socket
from typing import Any, Final, NamedTuple

from bundles.certificates import Certificate
from bundles.errors import CertificateError
from edge.connected_socket import connected_socket
from edge.keep_alive import keep_alive
from edge.mesh.contact_events import Closed
from edge.node.certificates import Certificates
from edge.node.contact_driver import READ_BYTES, ContactDriver
from edge.node.contacts import Contacts
from edge.node.desk import Desk
from edge.node.errors import LinkRefused
from edge.node.tls import LinkTls, peer_certificate

_log: Final = logging.getLogger("waystation.mesh")


class _Link(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    certificate: Certificate


class Links:
    """`connections`: the most links at the same time, in both directions. Whoever is not authenticated yet takes no
    link's place: as many more connections may be on their way to one, each way. Of those that others have opened, the
    oldest gives way to a new one. Read-only: `open`, how many links there are; `refused`, how many connections were
    closed because there were too many."""

    def __init__(
        self,
        own_name: str,
        desk: Desk,
        contacts: Contacts,
        certificates: Certificates,
        tls: LinkTls,
        *,
        connections: int,
        handshake_s: float,
        idle_s: float,
    ) -> None:
        self._own_name, self._desk, self._contacts, self._certificates = own_name, desk, contacts, certificates
        self._tls, self._connections = tls, connections
        self._handshake_s, self._idle_s = handshake_s, idle_s
        self._arriving: dict[asyncio.Task[Any], None] = {}  # that others have opened, not authenticated yet
        self._dialling = 0  # that we are opening
        self.open = self.refused = 0

    async def accept(self, connection: socket.socket, address: str) -> None:
        """Serves a connection until it has ended; one beyond the limit is closed at once, before TLS costs anything. To
        be run as a task of its own. Raises StoreError."""
        if self.open >= self._connections:
            self.refused += 1
            connection.close()
            return
        if len(self._arriving) >= self._connections:
            self.refused += 1
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            oldest.cancel()
        task = asyncio.current_task()
        assert task is not None
        self._arriving[task] = None
        try:
            try:
                link = await self._authenticated(connection, dialled=False)
            finally:
                self._arriving.pop(task, None)
            await self._run(link, address, dialled=False)
        except (OSError, LinkRefused, CertificateError) as error:
            _log.info("a link from %s was not opened: %s", address, _text(error))

    async def dial(self, host: str, port: int, on_name: "asyncio.Future[str]") -> Closed | None:
        """Opens a link and runs its contact; how that ended; None if there is another link to this peer. `on_name` gets
        the peer's name. Raises OSError, LinkRefused, CertificateError, StoreError."""
        self._check_capacity()
        if self._dialling >= self._connections:
            raise LinkRefused(f"{self._dialling} links are being opened already")
        self._dialling += 1
        try:
            async with asyncio.timeout(self._handshake_s):
                connection = await _connect(host, port)
            link = await self._authenticated(connection, dialled=True)
        except TimeoutError as error:
            raise LinkRefused(f"no connection after {self._handshake_s:g} s") from error
        finally:
            self._dialling -= 1
        if not on_name.done():
            on_name.set_result(link.certificate.name)
        return await self._run(link, f"{host}:{port}", dialled=True)

    def _check_capacity(self) -> None:
        """Raises LinkRefused."""
        if self.open >= self._connections:
            raise LinkRefused(f"{self.open} links are open already")

    async def _run(self, link: _Link, address: str, *, dialled: bool) -> Closed | None:
        reader, writer, certificate = link
        try:
            self._check_capacity()
            driver = ContactDriver(self._desk, reader, writer, certificate, address, dialled=dialled)
            if not self._contacts.begin(driver):
                return None
            self.open += 1
            try:
                return await driver.run()
            finally:
                self.open -= 1
                self._contacts.over(driver)
        finally:
            writer.transport.abort()

    async def _authenticated(self, connection: socket.socket, *, dialled: bool) -> _Link:
        reader, writer = await self._handshake(connection, dialled=dialled)
        try:
            return _Link(reader, writer, self._certificates.peer(peer_certificate(writer.transport), self._own_name))
        except BaseException:
            writer.transport.abort()
            raise

    async def _handshake(
        self, connection: socket.socket, *, dialled: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READ_BYTES, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport: asyncio.BaseTransport
        try:
            keep_alive(connection, self._idle_s)  # a peer that has moved away says nothing
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            connection.close()
            raise
        # From here on the event loop owns the socket, see edge.connected_socket.
        if dialled:
            transport, _ = await loop.create_connection(
                lambda: protocol,
                sock=connection,
                ssl=self._tls.client,
                server_hostname="",
                ssl_handshake_timeout=self._handshake_s,
            )
        else:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls.server, ssl_handshake_timeout=self._handshake_s
            )
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=READ_BYTES)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    problem: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        try:
            return await connected_socket(family, kind, protocol, address)
        except OSError as error:
            problem = error
    raise problem or OSError(f"{host} has no address")


def _text(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
