"""The agent as a client of the platform: its outbox on disk, its connection, its inbox (M1, M2)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from edge.agent.failures import OutboxFailures
from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.mqtt.forwarding import ClientTransport, to_platform
from edge.agent.settings import AgentSettings, client_tls, limits
from edge.agent.way import Step
from edge.client.client import Client
from edge.client.message import Message
from edge.client.options import ClientOptions
from edge.link import QuicTls
from edge.reconnect import FullJitter
from schemas.settings_files import secret_if_set


class Platform:
    """An asynchronous context manager around `client`. `store` is there inside. Raises SettingsError; entering raises
    StoreError."""

    store: ExactStore

    def __init__(
        self,
        settings: AgentSettings,
        *,
        backoff: FullJitter | None,
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self.client = Client(
            store=self._open_outbox,
            limits=limits(settings),
            on_failed=self._on_failed,
            wall_s=wall_s,
            running_s=running_s,
            **_options(settings, backoff),
        )

    async def __aenter__(self) -> "Platform":
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def stay_subscribed(self) -> None:
        """Raises the error that ended the client. A gateway of Waystation delivers to inboxes without a subscription;
        other servers do not."""
        await self.client.open_inbox()
        await self.client.ended()

    def failures(self) -> OutboxFailures:
        """The messages that failed."""
        return OutboxFailures(self.client, self.store)

    def transport(self, prefix: str) -> ClientTransport:
        """For the spool of the MQTT stand-in."""
        return ClientTransport(
            self.client, self.store, partial(to_platform, prefix=prefix), self._settings.store.lifetime_s
        )

    def status(self) -> dict[str, Any]:
        """For people."""
        messages, size = self.client.usage
        store, last, is_connected = self._settings.store, self.client.last_error, self.client.is_connected
        return {
            "connected": is_connected,
            "problem": _in_one_line(last) if last is not None and not is_connected else "",
            "outbox": {
                "messages": messages,
                "messages_limit": store.messages,
                "bytes": size,
                "bytes_limit": store.total_bytes,
            },
        }

    async def steps(self, method: str, argument: Any) -> list[Step]:
        """Of the log of ways: `newest` or `steps_of`."""
        found: list[Step] = await self.client.on_store(lambda store: getattr(store, method)(argument))
        return found

    def _open_outbox(self) -> ExactStore:
        settings = self._settings
        path = Path(settings.store.directory) / "outbox"
        self.store = ExactStore(path, settings.client_id, settings.store.log_entries)
        return self.store

    def _on_failed(self, message: Message, error: Exception) -> None:
        self.store.fails(message.sequence, message.state.value, str(error))


def _options(settings: AgentSettings, backoff: FullJitter | None) -> ClientOptions:
    platform = settings.platform
    options: ClientOptions = {
        "client_id": settings.client_id,
        "access_points": platform.access_points,
        "connect_points": platform.connect_points,
        "bearer": platform.bearer or None,
        "username": platform.username or None,
        "tls": client_tls("platform", platform.ca_file, platform.certificate_file, platform.key_file),
        "quic": QuicTls(platform.ca_file or None, platform.certificate_file or None, platform.key_file or None),
        "server_hostname": platform.server_name or None,
        "keep_alive_s": platform.keep_alive_s,
        "backoff": backoff or FullJitter(most_s=platform.reconnect_most_s),
    }
    password = secret_if_set("platform.password_file", platform.password_file)
    if password is not None:
        options["password"] = password.encode()
    return options


def _in_one_line(error: Exception) -> str:
    """Of NotReachable, which has a line for each attempt, equal lines once."""
    head, *attempts = str(error).splitlines()
    return " ".join([head, "; ".join(dict.fromkeys(attempt.strip() for attempt in attempts))]).strip()
