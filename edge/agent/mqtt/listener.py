"""The listener for MQTT clients here: TCP or TLS, with or without users (M16)."""

import asyncio
import logging
import ssl
from typing import Final

from edge.agent.errors import ListenerError, SessionRefused
from edge.agent.listening import Connections
from edge.agent.mqtt.connection import Connection
from edge.agent.mqtt.hub import Hub
from edge.agent.mqtt.settings import ListenerSettings
from edge.agent.settings import server_tls
from mqtt.codes import ReasonCode
from mqtt.packets import Connect
from schemas.password_file import Passwords, verify
from schemas.settings_files import secret_if_set

CLOSE_S: Final = 2.0

_log: Final = logging.getLogger("waystation.agent")


class _TooMany(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Listener:
    """Raises SettingsError if a file that the settings name cannot be used."""

    def __init__(self, settings: ListenerSettings, hub: Hub) -> None:
        self._settings, self._hub = settings, hub
        self._tls: ssl.SSLContext | None = server_tls("mqtt.listener", settings.certificate_file, settings.key_file)
        text = secret_if_set("mqtt.listener.password_file", settings.password_file)
        self._passwords = None if text is None else Passwords.read(text, settings.password_file)
        self._server: asyncio.Server | None = None
        self._connections: Connections[Connection] = Connections(
            None if self._tls is None else settings.connect_timeout_s
        )
        self._is_full = False

    async def open(self) -> int:
        """Listens; returns the port. Raises ListenerError."""
        settings, loop = self._settings, asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                *(self._connected, settings.host, settings.port),
                ssl=self._tls,
                ssl_handshake_timeout=self._connections.handshake_s,
            )
        except OSError as error:
            raise ListenerError(
                f"mqtt.listener cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; choose "
                "another port, or end the program that has it"
            ) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Ends the listener and all connections; clients of 5.0 learn why."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._hub.close()
        deadline = asyncio.get_running_loop().time() + CLOSE_S
        while len(self._connections) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        for connection in self._connections.all():
            connection.abort()
        await asyncio.sleep(0)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    def _connected(self) -> asyncio.Protocol:
        if len(self._connections) >= self._settings.connections:
            if not self._is_full:
                _log.warning("mqtt.listener has %d connections and refuses others", len(self._connections))
            self._is_full = True
            return _TooMany()
        self._is_full = False
        connection = Connection(self._settings, self._hub, self._authenticate, self._connections.discard)
        self._connections.add(connection)
        return connection

    async def _authenticate(self, packet: Connect) -> str:
        """The user. Takes as long for a user who does not exist."""
        if self._passwords is None:
            return ""
        user, password = packet.username or "", packet.password or b""
        known = self._passwords.users.get(user)
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(None, verify, known or self._passwords.decoy, password)
        if not is_right or known is None:
            raise SessionRefused(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the user name or password is wrong")
        return user
