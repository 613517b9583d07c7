"""The agent: its parts, wired (M1, M16, M20, M21).

    programs ── SMTP, folders ──► submission, outbox_folders ──► mailroom ──► client (outbox on disk) ──► platform
    mail server, folder ◄── relay (store on disk), inbox_folder ◄── dispatch ◄── client's inbox ◄── platform

MQTT clients and brokers have a part of their own, :mod:`edge.agent.mqtt`.

A message from the platform is acknowledged once it is on disk in the relay's store or in the folder. If there is no
space it waits: it is not acknowledged, and the platform keeps it.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from edge.agent import control
from edge.agent.control import ControlServer
from edge.agent.courier import Courier, SmtpCourier
from edge.agent.dispatch import Dispatch
from edge.agent.envelope import NAME_BYTES_MAX, File, Mail
from edge.agent.errors import AgentError, ControlError
from edge.agent.failures import Failures
from edge.agent.inbox_folder import InboxFolder
from edge.agent.mailroom import Mailroom, new_id
from edge.agent.mqtt.exact_store import ExactStore
from edge.agent.mqtt.standin import Standin
from edge.agent.outbox_folders import OutboxFolders
from edge.agent.relay import Relay
from edge.agent.relay_store import RelayStore
from edge.agent.routes import Routes
from edge.agent.settings import AgentSettings, client_tls, limits, read_secret
from edge.agent.submission import Submission
from edge.agent.way import Step
from edge.client.client import Client
from edge.client.errors import StoreError
from edge.client.message import Message
from edge.client.options import ClientOptions
from edge.client.store_clock import running_s
from edge.link import QuicTls
from edge.reconnect import FullJitter

LOG_MAX: Final = 10_000


class Agent:
    """`async with Agent(settings) as agent: await agent.ended()`. `courier`: what speaks to the mail server.

    Entering raises StoreError, SettingsError, ListenerError, ControlError.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        courier: Courier | None = None,
        backoff: FullJitter | None = None,
        wall_s: Callable[[], float] = time.time,
        running_s: Callable[[], float] = running_s,
    ) -> None:
        self._settings, self._courier, self._backoff = settings, courier, backoff
        self._wall_s, self._running_s = wall_s, running_s
        self._directory = Path(settings.store.directory)
        relay = settings.smtp.relay
        self._routes = Routes(settings.smtp.routes, relay.domains if relay.enabled else ())
        self._relay: Relay | None = None
        self._relay_store: RelayStore | None = None
        self._submission: Submission | None = None
        self._standin: Standin | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.submission_port = self.mqtt_port = 0

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Agent":
        async with contextlib.AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def connected(self) -> None:
        """See :meth:`edge.client.client.Client.connected`."""
        await self._client.connected()

    async def ended(self) -> None:
        """Returns never; raises the error of the part that has ended."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise AgentError("a part of the agent has ended")

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        settings, smtp = self._settings, self._settings.smtp
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"store.directory {self._directory} cannot be made: {error.strerror}") from error
        self._thread = ThreadPoolExecutor(1, "waystation-agent")
        stack.callback(self._thread.shutdown)
        self._client = self._make_client()
        host = smtp.relay.hostname or smtp.submission.hostname or socket.gethostname()
        take = self._relay_here if smtp.relay.enabled else None
        self._mailroom = Mailroom(self._client, self._routes, take=take, host=host, wall_s=self._wall_s)
        self._inbox = await self._on_thread(self._open_inbox)
        stack.push_async_callback(self._on_thread, self._inbox.close)
        if smtp.relay.enabled:
            courier = self._courier or SmtpCourier.of(smtp.relay)
            self._relay_store = store = await self._on_thread(self._open_relay)
            stack.push_async_callback(self._on_thread, store.close)
            self._relay = Relay(store, courier, smtp.relay, self._routes, self._on_thread, self._mailroom.report)
        if smtp.submission.enabled:
            self._submission = Submission(smtp.submission, self._mailroom, self._routes)
        outboxes = None
        if settings.folders.enabled and settings.folders.outboxes:
            most = settings.store.message_bytes
            outboxes = OutboxFolders(settings.folders, settings.client_id, most, self._mailroom)
        await stack.enter_async_context(self._client)
        if settings.mqtt.is_on:
            self._standin = await stack.enter_async_context(self._make_standin())
            self.mqtt_port = self._standin.port
        stack.push_async_callback(self._stop)
        handlers = {"status": self._status, "log": self._newest, "trace": self._trace, "send": self._send}
        self._control = ControlServer(self._directory, handlers)
        await self._control.open()
        if self._submission is not None:
            self.submission_port = await self._submission.open()
        dispatch = Dispatch(self._client, self._relay, self._inbox, self._on_thread, self._standin)
        self._start(self._stay_subscribed(), dispatch.run())
        self._start(Failures(self._client, self._agent_store, self._mailroom.report).run())
        if self._relay is not None:
            self._start(self._relay.run())
        if outboxes is not None:
            self._start(outboxes.run())
        if self._standin is not None:
            self._start(*self._standin.parts())

    async def _stop(self) -> None:
        if self._submission is not None:
            await self._submission.close()
        await self._control.close()
        if self._relay is not None:
            await self._relay.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, *parts: Coroutine[Any, Any, None]) -> None:
        self._tasks += [asyncio.create_task(part) for part in parts]

    def _make_standin(self) -> Standin:
        return Standin(
            self._settings,
            self._client,
            self._agent_store,
            backoff=self._backoff,
            wall_s=self._wall_s,
            running_s=self._running_s,
        )

    def _make_client(self) -> Client:
        settings, platform = self._settings, self._settings.platform
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
            "backoff": self._backoff or FullJitter(most_s=platform.reconnect_most_s),
        }
        password = read_secret("platform.password_file", platform.password_file)
        if password is not None:
            options["password"] = password.encode()
        return Client(
            store=self._open_outbox,
            limits=limits(settings),
            on_failed=self._on_failed,
            wall_s=self._wall_s,
            running_s=self._running_s,
            **options,
        )

    def _open_outbox(self) -> ExactStore:
        settings = self._settings
        self._agent_store = ExactStore(self._directory / "outbox", settings.client_id, settings.store.log_entries)
        return self._agent_store

    def _open_inbox(self) -> InboxFolder:
        folders = self._settings.folders
        return InboxFolder(
            Path(folders.inbox) if folders.enabled and folders.inbox else None,
            self._directory / "inbox",
            remembered=folders.remembered,
            log_entries=self._settings.store.log_entries,
            wall_s=self._wall_s,
        )

    def _open_relay(self) -> RelayStore:
        relay = self._settings.smtp.relay
        return RelayStore(
            self._directory / "relay",
            messages=relay.messages,
            total_bytes=relay.total_bytes,
            remembered=relay.remembered,
            log_entries=self._settings.store.log_entries,
            wall_s=self._wall_s,
            running_s=self._running_s,
        )

    async def _on_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a call on the thread of the relay's store and the inbox. If it is cancelled, the call still ends."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    # -- parts ---------------------------------------------------------------------------------------------------------

    async def _stay_subscribed(self) -> None:
        """Raises the error that ended the client. A gateway of Waystation delivers to inboxes without a subscription;
        other servers do not."""
        await self._client.open_inbox()
        await self._client.ended()

    async def _relay_here(self, mail: Mail) -> bool:
        assert self._relay is not None
        return await self._relay.take(mail)

    def _on_failed(self, message: Message, error: Exception) -> None:
        self._agent_store.fails(message.sequence, message.state.value, str(error))

    # -- answers on the control socket ---------------------------------------------------------------------------------

    async def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        messages, size = self._client.usage
        store = self._settings.store
        last = self._client.last_error
        found: dict[str, Any] = {
            "client_id": self._settings.client_id,
            "connected": self._client.is_connected,
            "problem": " ".join(str(last).split()) if last is not None and not self._client.is_connected else "",
            "outbox": {
                "messages": messages,
                "messages_limit": store.messages,
                "bytes": size,
                "bytes_limit": store.total_bytes,
            },
        }
        if self._submission is not None:
            address = f"{self._settings.smtp.submission.host}:{self.submission_port}"
            found["submission"] = {"address": address, "connections": self._submission.connections}
        if self._relay is not None and self._relay_store is not None:
            found["relay"] = {**await self._on_thread(self._relay_store.status), "problem": self._relay.last_problem}
        if self._standin is not None:
            found |= await self._standin.status()
        return found

    async def _newest(self, request: dict[str, Any]) -> list[Step]:
        count = request.get("count")
        if not isinstance(count, int) or not 0 < count <= LOG_MAX:
            raise ControlError(f"the number of entries must be from 1 to {LOG_MAX}")
        return (await self._steps("newest", count))[-count:]

    async def _trace(self, request: dict[str, Any]) -> list[Step]:
        found = await self._steps("steps_of", str(request.get("id")))
        if not found:
            raise ControlError("the log has no message with this id: it is unknown here, or older than the log")
        return found

    async def _steps(self, method: str, argument: Any) -> list[Step]:
        """From all parts, in order of time."""
        found: list[Step] = await self._client.on_store(lambda store: getattr(store, method)(argument))
        for part in (self._inbox, self._relay_store):
            if part is not None:
                found = found + await self._on_thread(getattr(part.file, method), argument)
        if self._standin is not None:
            found = found + await self._standin.steps(method, argument)
        return sorted(found, key=lambda step: step.at_s)

    async def _send(self, request: dict[str, Any]) -> str:
        """Sends a text or a file to a topic, or to an agent's inbox (`@client-id`); returns its id."""
        name = str(request.get("name", "")).encode()[:NAME_BYTES_MAX].decode(errors="ignore")
        file = File(new_id(), name, control.from_json(request.get("content", "")))
        await self._mailroom.send_file(str(request.get("to", "")), file)
        return file.id
