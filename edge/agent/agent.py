"""The agent: its parts, wired (M1, M16, M20, M21).

    programs ── SMTP, folders ──► submission, outbox_folders ──► mailroom ──► client (outbox on disk) ──► platform
    mail server, folder ◄── relay (store on disk), inbox_folder ◄── dispatch ◄── client's inbox ◄── platform

With `mesh.enabled` the mailroom hands to the mesh's node instead (:mod:`edge.agent.mesh`), and dispatch gets from it,
too. MQTT clients and brokers have a part of their own, :mod:`edge.agent.mqtt`.

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
from typing import TYPE_CHECKING, Any

from edge.agent.answers import Answers
from edge.agent.control import ControlServer
from edge.agent.dispatch import Dispatch
from edge.agent.envelope import Mail
from edge.agent.errors import AgentError
from edge.agent.failures import Failures
from edge.agent.inbox_folder import InboxFolder
from edge.agent.left_over import left_over
from edge.agent.mailroom import Mailroom
from edge.agent.mqtt.settings import STORE_FILE
from edge.agent.network import NetworkWatch
from edge.agent.outbox_folders import OutboxFolders
from edge.agent.platform import Platform
from edge.agent.relay import Relay
from edge.agent.relay_store import FILE as RELAY_FILE
from edge.agent.relay_store import RelayStore
from edge.agent.routes import Routes
from edge.agent.sender import ClientSender, Sender
from edge.agent.settings import AgentSettings
from edge.client.errors import StoreError
from edge.client.store_clock import running_s
from edge.reconnect import FullJitter

if TYPE_CHECKING:
    from edge.agent.courier import Courier
    from edge.agent.mesh.member import Member
    from edge.agent.mqtt.standin import Standin
    from edge.agent.submission import Submission


class Agent:
    """`async with Agent(settings) as agent: await agent.ended()`. `courier`: what speaks to the mail server.

    Entering raises StoreError, SettingsError, ListenerError, ControlError; with a mesh IdentityFilesError, NodeError.
    """

    def __init__(
        self,
        settings: AgentSettings,
        *,
        courier: "Courier | None" = None,
        backoff: FullJitter | None = None,
        wall_s: Callable[[], float] = time.time,
        running_s: Callable[[], float] = running_s,
    ) -> None:
        self._settings, self._courier, self._backoff = settings, courier, backoff
        self._wall_s, self._running_s = wall_s, running_s
        self._directory = Path(settings.store.directory)
        relay = settings.smtp.relay
        self._routes = Routes(settings.smtp.routes, relay.domains if relay.enabled else ())
        self._platform: Platform | None = None
        self._member: Member | None = None
        self._relay: Relay | None = None
        self._relay_store: RelayStore | None = None
        self._submission: Submission | None = None
        self._standin: Standin | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.submission_port = self.mqtt_port = self.mesh_port = self.metrics_port = 0

    # -- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Agent":
        async with contextlib.AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def connected(self) -> None:
        """See :meth:`edge.client.client.Client.connected`; at once without `[platform]`."""
        if self._platform is not None:
            await self._platform.client.connected()

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
        times: Any = {"backoff": self._backoff, "wall_s": self._wall_s, "running_s": self._running_s}
        if settings.platform.is_set:
            self._platform = Platform(settings, **times)
        if settings.mesh.enabled:
            from edge.agent.mesh.member import Member  # cryptography takes memory: only when it is used

            self._member = Member(settings, **times)
        host = smtp.relay.hostname or smtp.submission.hostname or socket.gethostname()
        take = self._relay_here if smtp.relay.enabled else None
        self._mailroom = Mailroom(self._sender(), self._routes, take=take, host=host, wall_s=self._wall_s)
        self._left = await self._on_thread(left_over, settings)
        self._inbox = await self._on_thread(self._open_inbox)
        stack.push_async_callback(self._on_thread, self._inbox.close)
        if smtp.relay.enabled or (self._directory / RELAY_FILE).exists():
            courier = (self._courier or self._smtp_courier()) if smtp.relay.enabled else None
            self._relay_store = store = await self._on_thread(self._open_relay)
            stack.push_async_callback(self._on_thread, store.close)
            self._relay = Relay(store, courier, smtp.relay, self._routes, self._on_thread, self._mailroom.report)
        if smtp.submission.enabled:
            from edge.agent.submission import Submission  # its library takes memory: only when it is used

            self._submission = Submission(smtp.submission, self._mailroom, self._routes)
        outboxes = None
        if settings.folders.enabled and settings.folders.outboxes:
            most = settings.store.message_bytes
            outboxes = OutboxFolders(settings.folders, settings.client_id, most, self._mailroom)
        if self._platform is not None:
            await stack.enter_async_context(self._platform)
        # With MQTT turned off, what clients here had handed in goes on, and what waits for the broker is counted.
        if settings.mqtt.is_on or (self._directory / STORE_FILE).exists():
            self._standin = await stack.enter_async_context(self._make_standin(times))
            self.mqtt_port = self._standin.port
        if self._member is not None:
            await stack.enter_async_context(self._member)
            self.mesh_port = self._member.port
        stack.push_async_callback(self._stop)
        answers = self._answers()
        self._control = ControlServer(self._directory, answers.handlers())
        await self._control.open()
        if settings.metrics.enabled:
            from edge.agent.metrics_server import MetricsServer

            server = MetricsServer(settings.metrics, answers.metrics)
            await server.open()
            stack.push_async_callback(server.close)
            self.metrics_port = server.port
        if self._submission is not None:
            self.submission_port = await self._submission.open()
        self._start_parts(outboxes)

    def _start_parts(self, outboxes: OutboxFolders | None) -> None:
        standin = self._standin if self._settings.mqtt.is_on else None
        relay = self._relay if self._settings.smtp.relay.enabled else None
        dispatch = Dispatch(relay, self._inbox, self._on_thread, standin)
        if self._platform is not None:
            platform = self._platform
            self._start(platform.stay_subscribed(), dispatch.receive(platform.client, self._member))
            self._start(Failures(platform.failures(), self._mailroom.report).run())
        if self._member is not None:
            self._member.give_to(dispatch.take)
            self._start(*self._member.parts(), Failures(self._member, self._mailroom.report).run())
        self._start(NetworkWatch(self._network_changed).run())
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

    async def _network_changed(self) -> None:
        if self._member is not None:
            await self._member.network_changed()
        if self._platform is not None:
            await self._platform.client.network_changed()

    def _start(self, *parts: Coroutine[Any, Any, None]) -> None:
        self._tasks += [asyncio.create_task(part) for part in parts]

    def _smtp_courier(self) -> "Courier":
        from edge.agent.courier import SmtpCourier  # as above

        return SmtpCourier.of(self._settings.smtp.relay)

    def _sender(self) -> Sender:
        if self._member is not None:
            return self._member.sender
        assert self._platform is not None
        return ClientSender(self._platform.client)

    def _make_standin(self, times: Any) -> "Standin":
        from edge.agent.mqtt.hub import ONWARD  # as above
        from edge.agent.mqtt.standin import Standin

        platform, prefix = self._platform, self._settings.mqtt.listener.platform_prefix
        client, store = (None, None) if platform is None else (platform.client, platform.store)
        if self._member is not None:
            return Standin(self._settings, client, store, self._member.transport(ONWARD, prefix), **times)
        assert platform is not None
        return Standin(self._settings, client, store, platform.transport(prefix), **times)

    def _answers(self) -> Answers:
        return Answers(
            *(self._settings, self._on_thread, self._mailroom, self._inbox),
            platform=self._platform,
            member=self._member,
            submission=self._submission,
            relay=self._relay,
            relay_store=self._relay_store,
            standin=self._standin,
            left=self._left,
        )

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
            self._directory / RELAY_FILE,
            messages=relay.messages,
            total_bytes=relay.total_bytes,
            remembered=relay.remembered,
            log_entries=self._settings.store.log_entries,
            wall_s=self._wall_s,
            running_s=self._running_s,
            down_most_s=self._settings.store.down_most_s,
        )

    async def _on_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a call on the thread of the relay's store and the inbox. If it is cancelled, the call still ends."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    async def _relay_here(self, mail: Mail) -> bool:
        assert self._relay is not None
        return await self._relay.take(mail)
