"""A gateway that stood still sends nothing before it knows whose shards it has (G6; design, fencing rule 5)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from gateway.host.host_server import HostServer
from gateway.http.event_window import StreamWindow
from gateway.http.stream_link import Pace, StreamLink
from gateway.shard.arrivals import Arrival
from gateway.shard.hold import Hold
from gateway.shard.messages import Delivery, Message, PendingMessage
from mqtt.codes import ReasonCode
from mqtt.packets import Disconnect, Packet, Pingreq, Puback, Publish, Pubrec, Subscribe, Subscription
from mqtt.properties import NO_PROPERTIES
from schemas.identity import shard_of
from tests.unit.gateway.host.test_host_connection import Wire, connect, hosted
from tests.unit.gateway.leases.site import SETTLED_S, ClusterGateway, Site
from tests.unit.gateway.shard.home_harness import SHARDS, turn
from tests.unit.gateway.shard.virtual_time import run

BALANCED_S = 20.0
"""Longer than shards move after a gateway has joined."""


class Stall:
    """A gateway whose loop stands still: nothing of it happens from now on."""

    def __init__(self, gateway: ClusterGateway) -> None:
        self._gateway = gateway
        timer = gateway.control._timer
        assert timer is not None
        timer.cancel()
        gateway.bus._is_dead = True  # it takes no turn

    def handles(self) -> list[Callable[[], None]]:
        """What the loop does when it wakes up, in any order, besides what its sockets have."""
        return [self._reads_kafka, self._gateway.control._tick]

    def _reads_kafka(self) -> None:
        bus = self._gateway.bus
        bus._is_dead = False
        bus.release()


class Clients:
    """Connections to one gateway, with messages at all QoS under way to them and from them."""

    def __init__(self, server: HostServer, shard: int, random: Random) -> None:
        self._random = random
        names = [name for name in map("client{}".format, range(60)) if shard_of(name, SHARDS) == shard]
        self.wires = [Wire(server).send(connect(name)) for name in names[:3]]
        self._next_id = 1

    async def begin(self) -> None:
        for wire in self.wires:
            wire.send(Subscribe(1, [Subscription("t/#", 2)]))
        await turn()

    def act(self) -> None:
        """Each does what clients do, or nothing; some acknowledge what they have got."""
        for wire in self.wires:
            if wire.is_closed:
                continue
            packets = self._random.sample(self._possible(wire), self._random.randrange(4))
            if packets:
                wire.send(*packets)

    def _possible(self, wire: Wire) -> list[Packet]:
        self._next_id += 1
        found: list[Packet] = [
            Publish("t/0", b"0"),
            Publish("t/1", b"1", 1, packet_id=self._next_id),
            Publish("t/2", b"2", 2, packet_id=self._next_id + 1_000),
            Subscribe(self._next_id + 2_000, [Subscription("u/#", 1)]),
            Pingreq(),
        ]
        last = wire.received[-1]
        if isinstance(last, Publish) and last.qos:
            found.append(Puback(last.packet_id) if last.qos == 1 else Pubrec(last.packet_id))
        return found


async def stalled(site: Site, random: Random) -> tuple[ClusterGateway, HostServer, Clients, Stall]:
    """A gateway that has stood still in the middle of its work."""
    await turn(BALANCED_S)
    gateway = site.owner_of(0)
    settings = gateway.node.settings.gateway
    server = HostServer(settings, gateway.home, site.clock, lambda: gateway.bus.in_flight, site.fatal.append)
    clients = Clients(server, 0, random)
    await turn()
    await clients.begin()
    for _ in range(6):
        clients.act()
        await turn(random.choice([0, 0, 0.001, 0.3]))
    clients.act()  # not written yet, or not handled
    return gateway, server, clients, Stall(gateway)


async def woken(stall: Stall, clients: Clients, random: Random) -> None:
    handles = [*stall.handles(), clients.act, clients.act]
    random.shuffle(handles)
    for handle in handles:
        handle()
        for _ in range(random.randrange(3)):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_sent_between_waking_and_the_verification(tmp_path: Path, seed: int) -> None:
    """G6: another gateway has the shard by then. The clients get no packet but the DISCONNECT that ends it."""

    async def scenario() -> None:
        random = Random(seed)
        site = await Site(tmp_path).start(2)
        gateway, server, clients, stall = await stalled(site, random)
        await turn(0)  # what was handed to the transports before
        before = [len(wire.received) for wire in clients.wires]
        other = next(member for member in site.members if member is not gateway)
        await turn(SETTLED_S)
        assert 0 in other.home.shards
        await woken(stall, clients, random)
        await turn(1)
        assert 0 not in gateway.home.shards
        for wire, count in zip(clients.wires, before, strict=True):
            assert wire.is_closed
            [end] = wire.received[count:]
            assert isinstance(end, Disconnect)
            assert end.reason_code in (ReasonCode.SERVER_MOVED, ReasonCode.USE_ANOTHER_SERVER)
        assert not server.connections
        assert not site.fatal

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_a_gateway_that_still_has_its_shards_sends_what_has_waited(tmp_path: Path, seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        site = await Site(tmp_path).start(1)
        gateway, server, clients, stall = await stalled(site, random)
        await turn(2)
        before = [len(wire.received) for wire in clients.wires]
        clients.wires[0].send(Pingreq())
        await turn(0)
        assert [len(wire.received) for wire in clients.wires] == before
        await woken(stall, clients, random)
        await turn(1)
        assert 0 in gateway.home.shards
        sent = Wire(server).send(connect("client9" if shard_of("client9", SHARDS) == 0 else "client1"))
        clients.wires[0].send(Publish("t/last", b"last", 1, packet_id=60_000))
        await turn(1)
        assert not sent.is_closed
        for wire in clients.wires:
            assert not wire.is_closed
            assert any(isinstance(p, Publish) and p.topic == "t/last" for p in wire.received)
        assert not site.fatal

    run(scenario())


def test_a_hold_ends_when_the_leases_are_verified() -> None:
    now, released = [0.0], list[str]()
    hold = Hold()

    def is_on() -> bool:
        return hold.is_on

    assert not is_on()
    hold.begin(lambda: now[0])
    hold.stepped(0.0, 0.6)
    now[0] = 0.6
    assert not is_on()
    now[0] = 0.7
    assert is_on(), "the keeper has not looked for so long"
    hold.after(lambda: released.append("sent"))
    hold.hold()
    hold.stepped(0.7, 0.6)
    assert is_on()
    assert not released
    hold.resume()
    assert released == ["sent"]
    now[0] = 9.0
    assert not is_on()
    hold.stepped(9.0, 0.6)
    hold.stopped()
    now[0] = 99.0
    assert not is_on(), "nobody looks any more"


class Page:
    """The client's end of an event stream."""

    def __init__(self) -> None:
        self.data = b""

    async def write(self, data: bytes) -> None:
        self.data += data


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_event_stream_waits_too(tmp_path: Path, is_lost: bool) -> None:
    async def scenario() -> None:
        harness, server = await hosted(tmp_path)
        link, page = StreamLink(server, 10_000, 10, True), Page()
        attached = await harness.home.attach(Arrival("s", False, 60, None, 10, "peer", "http"), link)
        link.attach(attached)
        link.open(StreamWindow())
        writing = asyncio.ensure_future(link.write_to(page, Pace(1.0, 10.0, None)))
        await turn()
        harness.node.hold.hold()
        message = Message("id", "x", "t", b"hello", 0, False, None, NO_PROPERTIES, -1, -1, 0)
        link.deliver(message, Delivery("s", PendingMessage(message, 0, -1, 0, []), 0, False, ()))
        await turn(5)
        assert b"hello" not in page.data
        if is_lost:
            link.disconnect(ReasonCode.SERVER_MOVED)
        harness.node.hold.resume()
        await turn(0.5)
        assert (b"event: end" in page.data) == writing.done() == is_lost
        assert (b'"payload":"hello"' in page.data) == (not is_lost)
        writing.cancel()

    run(scenario())
