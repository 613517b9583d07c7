"""The agent's membership in a mesh: node, uplink and identity, wired (M1, M5-M15, M17-M21).

mailroom, MQTT ── sender, transport ──► node ◄── holder ── uplink ── gateways
relay, folder, MQTT ◄── dispatch ◄──── node ◄── bundles from the agent's inbox on the platform
"""

import asyncio
import base64
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bundles import bundle as bundle_format
from bundles.bundle import Header
from bundles.content import Content
from bundles.errors import BundleError
from edge.agent.agent_store import Failed
from edge.agent.envelope import id_of
from edge.agent.errors import EnvelopeError
from edge.agent.mesh.mesh_log import MeshLog
from edge.agent.mesh.mesh_sender import MeshSender, MeshTransport, publish_of
from edge.agent.mesh.node_carrier import NodeCarrier
from edge.agent.mesh.node_holder import NodeHolder
from edge.agent.mesh.renewal import Renewal
from edge.agent.settings import AgentSettings, client_tls
from edge.agent.way import Step
from edge.client.errors import StoreFull
from edge.client.message import IncomingMessage
from edge.enrol import identity_files
from edge.enrol.command import IDENTITY, gateways
from edge.enrol.identity_files import Stored
from edge.node.bundle_store import BundleStore
from edge.node.contacts import PeerStatus
from edge.node.errors import NodeError, NotForUs
from edge.node.node import MeshNode
from edge.reconnect import FullJitter
from edge.uplink import assembly
from edge.uplink.deliverer import Deliverer
from schemas.errors import SettingsError
from schemas.mesh_api import CERTIFICATE_PROPERTY
from schemas.settings_files import secret_if_set

Take = Callable[[IncomingMessage], Awaitable[None]]

_log: Final = logging.getLogger("waystation.agent")


class Member:
    """An asynchronous context manager, inside which `parts` run. What comes for the agent is given to the `take` of
    :meth:`give_to`. Read-only: `sender`. Raises SettingsError, IdentityFilesError; entering raises StoreError,
    NodeError."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        wall_s: Callable[[], float],
        running_s: Callable[[], float],
        backoff: FullJitter | None = None,
    ) -> None:
        self._settings, self._wall_s = settings, wall_s
        directory = Path(settings.store.directory)
        self._stored = identity_files.load(directory / IDENTITY)
        name = self._stored.identity.name
        if name != settings.client_id:
            raise SettingsError(
                f"the identity in {directory / IDENTITY} is that of {name}, not of the agent's client_id"
            )
        self._log = MeshLog(settings.store.log_entries)
        self._node = MeshNode(
            *(settings.mesh, directory, self._stored.identity, self._stored.authority),
            wall_s=wall_s,
            running_s=running_s,
            down_most_s=settings.store.down_most_s,
            on_envelope=self._on_envelope,
            on_failed=self._on_failed,
            log=self._log,
            presence=settings.uplink.enabled,
            backoff=lambda: backoff or FullJitter(0.5, max(0.5, settings.mesh.redial_most_s)),
        )
        lifetime_s = max(1, int(min(settings.store.lifetime_s, settings.mesh.lifetime_s)))
        self.sender = MeshSender(self._node, self._log, lifetime_s)
        self._renewal = Renewal(directory / IDENTITY, self._stored, gateways(settings), self._use, wall_s)
        self._deliverer: Deliverer | None = None
        self._take: asyncio.Future[Take] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> "Member":
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._node)
            self._take_certificates(self._stored)
            if self._settings.uplink.enabled:
                self._deliverer = self._make_deliverer()
                self._node.on_fresh(self._deliverer.wake)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def port(self) -> int:
        """Where peers' links are accepted."""
        return self._node.port

    def give_to(self, take: Take) -> None:
        """`take` returns once a message is on disk; it may get one again, with the same id, after a kill."""
        self._take.set_result(take)

    def parts(self) -> list[Coroutine[Any, Any, None]]:
        """To be run while it is open; each runs for ever, or raises the error that ended it."""
        found = [self._node.ended(), self._renewal.run()]
        return found if self._deliverer is None else [*found, self._deliverer.run()]

    async def network_changed(self) -> None:
        """Addresses or routes of this machine have come or gone: what waits to be tried again is tried now."""
        if self._deliverer is not None:
            self._deliverer.network_changed()
        await self._node.network_changed()

    def transport(self, lane: str, prefix: str) -> MeshTransport:
        """For the spool of the MQTT stand-in."""
        return MeshTransport(self._node, self._log, self.sender, lane, prefix)

    async def bundle_arrived(self, message: IncomingMessage) -> None:
        """A bundle in the agent's inbox on the platform: returns once it is durable here. Raises EnvelopeError if it
        can never be taken, StoreFull, StoreError."""
        try:
            for name, value in message.user_properties:
                if name == CERTIFICATE_PROPERTY:
                    self._node.take_certificate(base64.b64decode(value))
            await self._node.take(bundle_format.decode(message.payload))
        except (BundleError, NotForUs, ValueError) as error:
            raise EnvelopeError(f"the bundle in it cannot be taken: {error}") from error
        except NodeError as error:  # our certificate has expired, for instance: it waits
            raise StoreFull(str(error)) from error

    # -- mails that failed ---------------------------------------------------------------------------------------------

    def take_news(self) -> bool:
        """As :class:`edge.agent.failures.FailedMessages`."""
        return self._log.take_news()

    def try_again(self) -> None:
        self._log.try_again()

    async def first(self) -> Failed | None:
        found: Failed | None = await self._on_log("first_failed")
        return found

    async def forget(self, sequence: int) -> None:
        await self._on_log("forget_failed", sequence)

    # -- for people ----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """One table for the node, one for the uplink."""
        mesh = self._settings.mesh
        until_s = self._renewal.stored.identity.certificate.not_after_s
        found: dict[str, Any] = {
            "mesh": {
                "address": f"{mesh.host}:{self._node.port}",
                "peers": len(self._node.contacts),
                **self._node.status(),
                "certificate_until": datetime.fromtimestamp(until_s, UTC).strftime("%Y-%m-%dT%H:%MZ"),
                "problem": self._renewal.problem,
            }
        }
        if self._deliverer is not None:
            status = msgspec.to_builtins(self._deliverer.status())
            found["uplink"] = {name: value for name, value in status.items() if name not in ("bearers", "refused")}
            found["uplink"]["refused"] = len(status["refused"])
            found["bearers"] = {one.pop("name"): one for one in status["bearers"]}
        return found

    def peers(self) -> list[PeerStatus]:
        """See :meth:`edge.node.node.MeshNode.peers`."""
        return self._node.peers()

    def step_counts(self) -> dict[tuple[str, str], int]:
        """See :attr:`edge.agent.way.WayLog.counts`."""
        return self._log.step_counts

    async def steps(self, method: str, argument: Any) -> list[Step]:
        """Of the log of ways: `newest` or `steps_of`."""
        found: list[Step] = await self._on_log(method, argument)
        return found

    async def names_of(self, identifier: str) -> list[str]:
        """See :meth:`edge.agent.mesh.mesh_log.MeshLog.names_of`."""
        found: list[str] = await self._on_log("names_of", identifier)
        return found

    # -- inside --------------------------------------------------------------------------------------------------------

    def _make_deliverer(self) -> Deliverer:
        uplink = self._settings.uplink
        return assembly.deliverer(
            NodeHolder(self._node, self._settings.client_id),
            uplink,
            tls=client_tls("uplink", uplink.ca_file, uplink.certificate_file, uplink.key_file),
            secret=secret_if_set("uplink.password_file", uplink.password_file),
            carrier=NodeCarrier(self._node),
            clock=lambda: self._node.now_s,
        )

    async def _on_envelope(self, header: Header, content: Content) -> None:
        identifier = id_of(content.user_properties)
        if identifier is not None:
            self._log.arrives(header.message_id, identifier)
        take = await asyncio.shield(self._take)
        await take(IncomingMessage(publish_of(header, content), lambda _: None))

    async def _on_failed(self, message_id: str, reason: str) -> None:
        _log.error("the message in bundle %s was not delivered: %s", message_id, reason)

    def _use(self, stored: Stored) -> None:
        self._node.use(stored.identity)
        self._take_certificates(stored)

    def _take_certificates(self, stored: Stored) -> None:
        for gateway in stored.gateways:
            self._node.take_certificate(gateway.der)
        if stored.revocations.number:
            self._node.take_revocations(stored.revocations.encoded)

    async def _on_log(self, method: str, *arguments: Any) -> Any:
        def call(store: BundleStore) -> Any:
            with store.transaction() as db:
                return getattr(self._log, method)(db, *arguments)

        return await self._node.on_store(call)
