"""Takes bundles: verifies them, publishes them as their originators, and signs receipts (M7, M12, M14, M17, Q1, Q12).

Signatures and payloads take about 0.1 ms each, so a request is worked on in slices, and everybody else has a turn
between two. All messages of a request are given to Kafka as they are opened, and there is one wait for all.

A bundle that was taken lately, here or (as message presence says) by another gateway, is not published again: that only
spares work. What makes a recipient get a bundle once is the memory of its shard (:mod:`gateway.shard.taken_bundles`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bundles.bundle import Bundle, Kind
from gateway.host.authenticator import MESH_BEARER, Credentials, NotAdmitted
from gateway.host.host_server import HostServer
from gateway.mesh.deliveries import DeliveryReports
from gateway.mesh.incarnations import Incarnations
from gateway.mesh.opened import NotOurKey, Opened, Refused, open_bundle, read, verify
from gateway.mesh.platform import Platform
from gateway.shard.messages import Delivery, Message
from gateway.shard.publishing import Publisher
from gateway.slices import in_slices
from mqtt.codes import ReasonCode
from schemas.mesh_api import BundleResult
from schemas.mesh_settings import BUNDLE_ROOM
from schemas.settings import GatewaySettings

_LATER: Final = frozenset(
    {
        *(ReasonCode.QUOTA_EXCEEDED, ReasonCode.UNSPECIFIED_ERROR, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR),
        *(ReasonCode.SERVER_BUSY, ReasonCode.SERVER_UNAVAILABLE, ReasonCode.MESSAGE_RATE_TOO_HIGH),
        *(ReasonCode.CONNECTION_RATE_EXCEEDED, ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.USE_ANOTHER_SERVER),
    }
)
"""Why a message or its originator is refused that may be accepted later. Anything else is for good."""
_TEXTS: Final = {
    ReasonCode.PACKET_TOO_LARGE: "it is larger than a limit of the platform for its topic or content type, or than "
    "Kafka takes",
    ReasonCode.NOT_AUTHORIZED: "its originator may not publish to its destination",
    ReasonCode.TOPIC_NAME_INVALID: "its destination is blocked, or only the platform uses it",
    ReasonCode.PAYLOAD_FORMAT_INVALID: "its user property `conversation` is not a valid id",
    ReasonCode.QUOTA_EXCEEDED: "a limit is reached: of the originator's rate, of retained messages, or of what is in "
    "flight to Kafka",
    ReasonCode.UNSPECIFIED_ERROR: "Kafka refused it; the gateway's log says why",
}
"""For whoever has sent the message."""


class _Later(Exception):
    """The bundle may be taken another time; the text says what has to change."""


class _Answer(NamedTuple):
    """What became of a publish, and when, ms since the epoch."""

    reason: ReasonCode
    at_ms: int


class _Originator:
    """The link of one originator's publishes in one request: receives their answers, by packet id."""

    writable = False

    def __init__(self, answered: Callable[[Opened, ReasonCode], None]) -> None:
        self.sent: dict[int, Opened] = {}
        self._answered = answered

    def answer(self, qos: int, packet_id: int, reason: ReasonCode) -> None:
        self._answered(self.sent.pop(packet_id), reason)

    def deliver(self, message: Message, delivery: Delivery) -> bool:
        return False

    def release(self, packet_id: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None: ...

    def complete(self, packet_id: int, reason: ReasonCode) -> None: ...

    def disconnect(self, reason: ReasonCode) -> None: ...


class BundleAdmission:
    """Of one gateway."""

    def __init__(
        self, platform: Platform, hosts: HostServer, settings: GatewaySettings, reports: DeliveryReports
    ) -> None:
        self._platform = platform
        self._home = hosts.home
        self._authenticator = hosts.authenticator
        self._limits = settings.limits
        self._settings = mesh = settings.mesh
        known = (one for shard in hosts.home.states for one in shard.bundles.stores())
        self._incarnations = Incarnations(mesh.sources, mesh.originator_incarnations, mesh.remembered_s, known)
        self._timeout_s = settings.http.kafka_timeout_s
        self._clock = hosts.clock
        self._is_flooded = hosts.is_flooded
        self._counts = hosts.counts
        self._reports = reports
        self._on_way: dict[str, asyncio.Future[_Answer]] = {}
        self._recent: OrderedDict[str, int] = OrderedDict()  # id: when it was taken, ms since the epoch

    async def take(self, bundles: Sequence[bytes], peer: str) -> list[BundleResult]:
        """A result for each bundle, in order. `peer` is where the request comes from."""
        originators: dict[str, Publisher] = {}
        links: dict[str, _Originator] = {}
        begun: list[BundleResult | tuple[str, asyncio.Future[_Answer]]] = []
        async for number, raw in in_slices(enumerate(bundles, 1)):
            try:
                bundle = self._verified(raw)
                publisher, link = await self._publisher(bundle.header.originator, peer, originators, links)
                answer = self._earlier(bundle)  # nobody else has a turn between this and its publish
                if answer is None:
                    answer = self._publish(self._opened(bundle), number, publisher, link)
                begun.append((bundle.message_id, answer))
            except Refused as error:
                begun.append(BundleResult("refused", str(error)))
            except _Later as error:
                begun.append(BundleResult("later", str(error)))
        waiting = {one[1] for one in begun if isinstance(one, tuple)}
        if waiting:
            await asyncio.wait(waiting, timeout=self._timeout_s)  # never cancelled: others may wait too
        results = []
        async for one in in_slices(begun):
            result = self._result(*one) if isinstance(one, tuple) else one
            self._counts[f"bundles_{result.outcome}"] += 1
            results.append(result)
        return results

    def _verified(self, raw: bytes) -> Bundle:
        bundle = read(raw, self._limits.packet_bytes + BUNDLE_ROOM)
        name = bundle.header.originator
        keys = self._platform.known.originator_keys(name)
        if not keys:
            raise _Later(f"no certificate of {name} is known here that is in force: send it along")
        verify(bundle, keys, self._settings.lifetime_s)
        return bundle

    def _opened(self, bundle: Bundle) -> Opened:
        header, certificates = bundle.header, list[bytes]()
        if header.kind is Kind.ENVELOPE:
            certificates = [one.der for one in self._platform.known.of(header.originator)]
        try:
            return open_bundle(bundle, self._platform.identity, certificates)
        except NotOurKey as error:
            if self._platform.is_sealed_to_another():
                raise _Later(f"{error}, or bring it again: another gateway has a newer key than this one") from error
            raise

    def _earlier(self, bundle: Bundle) -> asyncio.Future[_Answer] | None:
        """The answer to an earlier copy, here or at another gateway; None if none is known."""
        message_id = bundle.message_id
        on_way = self._on_way.get(message_id)
        if on_way is not None:
            return on_way
        at_ms = self._recent.get(message_id)
        if at_ms is None:
            state = self._home.message_presence.get(message_id, self._clock())
            if state is None or state.state != "delivered" or state.delivered_by != self._platform.name:
                return None
            at_ms = state.delivered_us // 1000
        answered: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        answered.set_result(_Answer(ReasonCode.SUCCESS, at_ms))
        return answered

    async def _publisher(
        self, name: str, peer: str, publishers: dict[str, Publisher], links: dict[str, _Originator]
    ) -> tuple[Publisher, _Originator]:
        """What publishes for an originator in this request, by the rules of a client of that name."""
        if name not in publishers:
            try:
                rules = await self._authenticator.admit(Credentials(name, None, None, None, peer, MESH_BEARER))
            except NotAdmitted as error:
                raise (_Later if error.reason in _LATER else Refused)(str(error)) from error
            links[name] = _Originator(self._answered)
            publishers[name] = self._home.bundle_publisher(name, links[name], rules)
        return publishers[name], links[name]

    def _publish(self, opened: Opened, number: int, publisher: Publisher, link: _Originator) -> asyncio.Future[_Answer]:
        if self._is_flooded():
            raise _Later("too much is in flight to Kafka")
        header, packet = opened.header, opened.packet
        if header.kind is Kind.MESSAGE:
            reason = self._incarnations.refusal(header.originator, header.incarnation, self._clock())
            if reason:
                raise _Later(reason)
        packet.packet_id = number
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._on_way[opened.message_id] = answer
        link.sent[number] = opened
        publisher.publish(packet, opened.message_id, opened.mark)
        return answer

    def _answered(self, opened: Opened, reason: ReasonCode) -> None:
        at_ms = int(self._clock() * 1000)
        if reason is ReasonCode.SUCCESS:
            self._recent[opened.message_id] = at_ms
            if len(self._recent) > self._settings.recent_bundles:
                self._recent.popitem(last=False)
            self._reports.delivered(opened.message_id, opened.header)
        self._on_way.pop(opened.message_id).set_result(_Answer(reason, at_ms))

    def _result(self, message_id: str, answered: asyncio.Future[_Answer]) -> BundleResult:
        if not answered.done():
            return BundleResult("later", "Kafka did not confirm the message in time; it may still be stored")
        reason, at_ms = answered.result()
        if reason is ReasonCode.SUCCESS:
            return BundleResult("taken", receipt=self._platform.receipt(message_id, at_ms).encoded)
        text = f"the platform refuses the message: {_TEXTS.get(reason, reason.name.lower().replace('_', ' '))}"
        return BundleResult("later" if reason in _LATER else "refused", text)
