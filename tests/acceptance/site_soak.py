"""Who lives through the faults of a site of gateways, what each is owed, and whether each has got it (Q1, G8, G9, G14,
R8).

To the clients of tests/acceptance/gateway_soak.py come those of 3.1.1, clean sessions, QoS 0, a share group, an inbox,
and HTTP posts and streams. Each connection, and each request, goes to any gateway: to one that is dead, too, but not to
one that stands still, which a client would notice by its keep alive only.

**Order** is per sender and QoS: while a shard changes its owner, a message at QoS 1 may overtake an earlier one at QoS
2 (docs/architecture.md, "Fences and positions").
"""

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, Final

import aiohttp

from harness.gateway_site import SiteGateway
from tests.acceptance.gateway_soak import Soak
from tests.faithful_client import FaithfulClient, eventually
from tests.faithful_http import Poster, StreamReader
from tests.gateway_site import CuttableSite

OWED_S: Final = 30.0
"""How long what is owed may take; a survivor that delivers nothing for minutes fails (tbmq#181)."""
SHARED: Final = "$share/crew"
VISIT: Final = 3
"""Messages to a clean session in one connection."""


class SiteSoak(Soak):
    """`at` says through which gateway each client has connected last. `late_copies`: whether a process that was fenced
    may still have sent what its Kafka client had queued; then messages at QoS 1 may come twice."""

    def __init__(self, site: CuttableSite, rng: random.Random) -> None:
        self.site = site
        self.at: dict[str, SiteGateway] = {}
        self.late_copies = False
        self._settled_at = time.monotonic()
        super().__init__(lambda: 0, uuid.uuid4().hex[:8], rng, lambda: self._settled_at)
        client = self._client
        self.senders.append(client("elder-sender", version=4))
        self.levels.append((1, 2))
        self.sent.append([])
        self.elder = client("elder", version=4)
        self.receivers.append(self.elder)
        self.herald = client("herald")
        self.members = [client("member-1"), client("member-2", version=4), client("member-3")]
        self.visitor = client("visitor", version=4, clean=True)
        self.lossy = client("lossy", clean=True)
        self.audience = client("audience")
        self.shared: list[tuple[bytes, int]] = []
        self.inbox: list[bytes] = []
        self.lossy_sent: list[bytes] = []
        self.poster: Poster
        self.reader: StreamReader
        self._http: aiohttp.ClientSession

    @property
    def everyone(self) -> list[FaithfulClient]:
        return [*super().everyone, self.herald, *self.members, self.visitor, self.lossy, self.audience]

    def _client(self, name: str, **options: Any) -> FaithfulClient:
        name = f"{name}-{self._run}"
        return FaithfulClient(lambda: self._port_for(name), name, **options)

    # -- gateways ------------------------------------------------------------------------------------------------------

    def _door(self, name: str) -> SiteGateway:
        """Any gateway that does not stand still, for the next connection of a client."""
        known = [gateway for gateway in self.site.gateways.values() if hasattr(gateway, "process")]
        chosen = self._rng.choice([gateway for gateway in known if gateway.is_up or gateway.ended()] or known)
        self.at[name] = chosen
        return chosen

    def _port_for(self, name: str) -> int:
        """For the next connection of a client: that of a gateway, or of the dispatcher, if there is one."""
        gateway, dispatcher = self._door(name), self.site.dispatcher
        return gateway.mqtt if dispatcher is None or self._rng.random() < 0.3 else dispatcher.port

    def drop_clients_of(self, *gateways: SiteGateway) -> None:
        """Clients notice that these do not answer any more, and go elsewhere."""
        names = {gateway.gateway_name for gateway in gateways}
        for client in self.everyone:
            if client.name in self.at and self.at[client.name].gateway_name in names:
                client.drop()
        if self.reader.at in {gateway.http for gateway in gateways}:
            self.reader.drop()

    def settled(self) -> None:
        """Each shard has a home from now on: sessions that have expired end within their margin."""
        self._settled_at = time.monotonic()

    # -- its life ------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        self._http = aiohttp.ClientSession()
        self.poster = Poster(self._http, lambda: self._door("poster").http, f"poster-{self._run}")
        self.reader = StreamReader(
            self._http, lambda: self._door("reader").http, f"reader-{self._run}", f"{self._root}-h/#"
        )
        for member in self.members:
            await member.come()
            await member.subscribe(f"{SHARED}/{self._root}-s/#", 2)
        await self.audience.come()
        await self.audience.subscribe(f"{self._root}-h/#", 2)
        await self.reader.open()
        await super().begin()
        await self.lossy.subscribe(f"{self._root}-q/0", 0)

    def _lives(self) -> list[Coroutine[Any, Any, None]]:
        return [
            *super()._lives(),
            self._herald(),
            self._roam_as_member(),
            self._visit(),
            self._post(),
            self._listen_at_qos_0(),
        ]

    async def rest(self) -> None:
        await super().rest()
        await self.herald.published()
        await self._owed(lambda: self.missing(self.elder), "elder has all")
        await self._owed(lambda: self.missing_shared(), "the members of the group have all")
        await self._owed(lambda: self._acknowledged(self.inbox) - set(self.audience.payloads), "the inbox has all")
        await self._owed(lambda: set(self.poster.stored) - set(self.audience.payloads), "audience has all posted")
        await self._owed(lambda: set(self.poster.stored) - set(self.reader.payloads), "the stream brings all posted")
        self.check()

    async def close(self) -> None:
        """After `end`, or instead of it: nothing of the soak goes on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.reader.close()
        for client in self.everyone:
            await client.leave()
        await self._http.close()

    async def _owed(self, missing: Callable[[], set[bytes]], what: str) -> None:
        await eventually(lambda: not missing(), f"{what}; missing: {sorted(missing())[:5]}", OWED_S)

    async def _herald(self) -> None:
        """To the group, to an inbox, and at QoS 0."""
        number = 0
        while True:
            await self._turn("herald", 0.02, 0.08)
            if self.herald.unacknowledged >= 100:
                continue
            number += 1
            qos = self._rng.choice((1, 2))
            self.shared.append((b"s%d %d" % (qos, number), qos))
            self.herald.publish(f"{self._root}-s/{number % 2}", self.shared[-1][0], qos)
            if number % 3 == 0:
                self.inbox.append(b"i %d" % number)
                self.herald.publish(f"@{self.audience.name}", self.inbox[-1], 2)
            if number % 2 == 0 and self.herald.is_connected:
                self.lossy_sent.append(b"q %d" % number)
                self.herald.publish(f"{self._root}-q/0", self.lossy_sent[-1], 0)

    async def _roam_as_member(self) -> None:
        """A member of the group that comes and goes; what it was given stays its own."""
        member = self.members[-1]
        while True:
            await self._turn("member", 0.5, 3.0)
            await member.leave(goodbye=self._rng.random() < 0.5)
            await asyncio.sleep(self._rng.uniform(0, 0.5))
            await member.come()

    async def _visit(self) -> None:
        """A clean session gets what is published after its SUBACK, as long as its connection lasts."""
        number = 0
        while True:
            await self._turn("visitor", 0.2, 1.0)
            number += 1
            await self.visitor.leave(goodbye=self._rng.random() < 0.5)
            await self.visitor.come()
            connection, topic = self.visitor.connection, f"{self._root}-v/{number}"
            await self.visitor.subscribe(topic, 2)
            owed = {b"v %d %d" % (number, n) for n in range(VISIT)}
            for payload in sorted(owed):
                self.herald.publish(topic, payload, 2)
            await eventually(
                lambda owed=owed, of=connection: (  # type: ignore[misc]
                    owed <= set(self.visitor.payloads) or self.visitor.connection != of or not self.visitor.is_connected
                ),
                f"visitor gets what comes to {topic}",
            )
            self.checks["visits"] += owed <= set(self.visitor.payloads)

    async def _post(self) -> None:
        number = 0
        while True:
            await self._turn("poster", 0.05, 0.2)
            number += 1
            await self.poster.post(f"{self._root}-h/{number % 2}", b"p %d" % number, f"{self._run}-{number}")

    async def _listen_at_qos_0(self) -> None:
        """A clean session at QoS 0: whenever it has lost its connection, it subscribes again."""
        while True:
            await self._turn("lossy", 0.1, 0.3)
            if self.lossy.is_connected and self.lossy.connection != self.checks["lossy connection"]:
                connection = self.lossy.connection
                await self.lossy.subscribe(f"{self._root}-q/0", 0)
                self.checks["lossy connection"] = connection

    # -- what holds ----------------------------------------------------------------------------------------------------

    def missing_shared(self) -> set[bytes]:
        got = {payload for member in self.members for payload in member.payloads}
        return self._acknowledged([payload for payload, _ in self.shared]) - got

    def _acknowledged(self, payloads: list[bytes]) -> set[bytes]:
        return self.herald.acknowledged & set(payloads)

    def check(self) -> None:
        super().check()
        for http in (self.poster, self.reader):
            assert not http.faults, f"{http.name}: {http.faults[:5]}"
        self._check_shared()
        self._check_audience()
        self._check_lossy()
        self._check_visitor()
        self._check_ordered(self.reader.payloads, b"p ", self.reader.name)
        self.checks |= Counter(shared=len(self.shared), posted=len(self.poster.stored), streams=self.reader.streams)
        self.checks |= Counter(lossy=len(self.lossy.got), inbox=len(self.inbox), replays=self.poster.replays)

    def _check_shared(self) -> None:
        """Each message at QoS 2 came to one member, once. Order is for subscriptions that are not shared (MQTT 5.0,
        4.6)."""
        copies = Counter(payload for member in self.members for payload in member.payloads)
        twice = [payload for payload, qos in self.shared if qos == 2 and copies[payload] > 1]
        got = [(member.name, one) for member in self.members for one in member.got if one.payload in twice[:5]]
        assert not twice, f"came twice to the group at QoS 2: {len(twice)}, for example {got}"

    def _check_audience(self) -> None:
        """Each message to an inbox came once; each one posted with a key, too."""
        copies, redelivered = Counter(self.audience.payloads), Counter(g.payload for g in self.audience.got if g.dup)
        twice = [payload for payload in self.inbox if copies[payload] > 1]
        assert not twice, f"came twice to an inbox at QoS 2: {twice[:5]}"
        posted = [p for p in self.poster.stored if copies[p] - redelivered[p] > 1]
        assert self.late_copies or not posted, f"posted with a key, and came twice: {posted[:5]}"
        self._check_ordered(self.audience.payloads, b"i ", self.audience.name)
        self._check_ordered(self.audience.payloads, b"p ", self.audience.name)

    def _check_lossy(self) -> None:
        twice = [payload for payload, count in Counter(self.lossy.payloads).items() if count > 1]
        assert not twice, f"came twice at QoS 0: {twice[:5]}"
        assert set(self.lossy.payloads) <= set(self.lossy_sent)
        self._check_ordered(self.lossy.payloads, b"q ", self.lossy.name)

    def _check_visitor(self) -> None:
        twice = [payload for payload, count in Counter(self.visitor.payloads).items() if count > 1]
        assert not twice, f"came twice to a clean session at QoS 2: {twice[:5]}"

    def _check_order(self, receiver: FaithfulClient, number: int, qos_of: dict[bytes, int]) -> None:
        for qos in self.levels[number]:
            of = [payload for payload in receiver.payloads if qos_of.get(payload) == qos]
            self._check_ordered(of, b"%d " % number, f"{receiver.name}, sender {number}, QoS {qos}")

    @staticmethod
    def _check_ordered(payloads: list[bytes], prefix: bytes, of: str) -> None:
        """First copies come in the order in which they were sent."""
        numbers = [int(p.removeprefix(prefix)) for p in dict.fromkeys(payloads) if p.startswith(prefix)]
        late = [after for before, after in pairwise(numbers) if after < before]
        assert not late, f"{of}: out of order: {late[:5]}"
